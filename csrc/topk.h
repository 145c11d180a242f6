// Top-k kernels: the k groups of largest magnitude of every chunk, their places packed into bits, and adding them back.
//
// A group is one number, or two (a complex one). Magnitudes are compared by bit pattern (NaN > Inf > numbers); of equal
// ones the lowest index goes first. The bytes are defined in docs/reference/wire.md, the arithmetic in
// src/thinwire/kernels/reference/topk.py; both must match.
#pragma once
#include <cstdint>

namespace tw {

// Chunks of one tensor that are alike: `count` chunks of `chunk` groups from x[offset] on keep `k` groups each. A group
// is `group` numbers; `offset` and `value` count numbers.
//
// An index is cut into `low_bits` low bits, written one behind the other from byte `low_byte` on, and a high part
// h = index >> low_bits, which is a bit set in the chunk's own high_bits bits from byte `high_byte` on: bit h + j
// for the j-th index of the chunk (Elias-Fano), or bit h if low_bits = 0 (a bitmap); no bits if h is always 0, and
// none at all if the chunk is kept whole.
struct Run {
  int64_t offset, chunk, count, k, low_bits, low_byte, high_byte, value, group;
};
constexpr int64_t kRunColumns = sizeof(Run) / sizeof(int64_t);

namespace {  // functions with internal linkage: see basics.h

inline bool whole(const Run& r) { return r.k == r.chunk; }

inline int64_t high_bits(const Run& r) {
  const int64_t highest = (r.chunk - 1) >> r.low_bits;
  return highest == 0 || whole(r) ? 0 : r.low_bits == 0 ? r.chunk : highest + r.k;
}

inline int64_t low_bytes(const Run& r) { return (r.count * r.k * r.low_bits + 7) / 8; }
inline int64_t high_bytes(const Run& r) { return (r.count * high_bits(r) + 7) / 8; }

}  // namespace

struct TopkKernels {
  void (*select)(const float* x, const Run* runs, int64_t num_runs, uint8_t* indices, float* values);
  // x = the sum, in order, of all payloads' values * factor at their indices, and 0 elsewhere. Payload p has its
  // indices from byte p * payload_bytes on and its values from p * num_values on. False if the bytes name a place
  // outside its chunk, or too few or too many places; then x is left half-written.
  bool (*scatter)(const uint8_t* indices, int64_t num_payloads, int64_t payload_bytes, const Run* runs,
                  int64_t num_runs, const float* values, int64_t num_values, float factor, float* x);
};

namespace portable { extern const TopkKernels topk; }
namespace avx2 { extern const TopkKernels topk; }
namespace avx512 { extern const TopkKernels topk; }

}  // namespace tw
