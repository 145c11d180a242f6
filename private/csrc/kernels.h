// The inner loops, compiled once per instruction set: exact-width packing, transposes, pads and batched COT.
#pragma once
#include <cstddef>
#include <cstdint>

#include "evp.h"

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "messages are little-endian, and so must this machine be");

namespace tw::crypt {

// One frame of a batched COT: `num_rows * depth` OTs, each with a vector of `length` correlations.
template <typename Word>
struct Frame {
  const Cipher* pi;      // the permutation of the hash
  const uint8_t* rows;   // one 16-byte row per OT: q (sender) or v (receiver)
  const uint8_t* delta;  // sender: 16 bytes
  const uint8_t* bits;   // receiver: the choice bit of each OT; sender of a chosen OT: its flag f
  uint64_t first_index;  // tweak of the first OT; it never repeats under one key
  uint64_t first_block;  // tweak of the first pad block: queries that share OTs start at different blocks
  const Word* matrix;    // sender: depth x length
  const Word* noise;     // sender of a chosen OT: its random shares, num_rows * depth x length
  Word* out;             // num_rows x length, added to
  size_t num_rows, depth, length;
  int width, shift;  // bits of a message element; power of two that the choice bit stands for
  bool negative;     // the bit stands for -2^shift
  uint8_t* wire;     // the packed message (written by senders)
};

struct Kernels {
  void (*pack)(const uint64_t* values, size_t count, int width, uint8_t* wire);
  void (*unpack)(const uint8_t* wire, size_t count, int width, uint64_t* values);
  void (*xor_into)(uint8_t* target, const uint8_t* source, size_t num_bytes);
  void (*transpose)(const uint8_t* const* bit_rows, size_t first_byte, uint8_t* out, size_t out_stride);
  void (*multiply_32)(const uint32_t* w, const uint32_t* x, size_t rows, size_t depth, size_t length, uint32_t* out);
  void (*multiply_64)(const uint64_t* w, const uint64_t* x, size_t rows, size_t depth, size_t length, uint64_t* out);
  void (*cot_send_32)(const Frame<uint32_t>&);
  void (*cot_send_64)(const Frame<uint64_t>&);
  void (*cot_receive_32)(const Frame<uint32_t>&);
  void (*cot_receive_64)(const Frame<uint64_t>&);
  void (*ot_send_64)(const Frame<uint64_t>&);
  void (*ot_receive_64)(const Frame<uint64_t>&);
};

inline size_t packed_bytes(size_t count, int width) { return (count * static_cast<size_t>(width) + 7) / 8; }

namespace portable { extern const Kernels kernels; }
namespace avx2 { extern const Kernels kernels; }

// The best set this machine can run.
const Kernels& kernels();

}  // namespace tw::crypt
