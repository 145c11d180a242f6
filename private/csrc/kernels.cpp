// Compiled once per instruction set (TW_ISA); nothing here depends on the set but the speed.
#include "kernels.h"

#include <algorithm>
#include <vector>

#include "packing.h"

namespace tw::crypt::TW_ISA {
namespace {

void pack(const uint64_t* values, size_t count, int width, uint8_t* wire) {
  std::vector<uint64_t> stage(2 * kBlock);
  Packer<uint64_t> packer(stage.data(), width, wire);
  const uint64_t mask = width == 64 ? ~uint64_t{0} : (uint64_t{1} << width) - 1;
  for (size_t i = 0; i < count; i += kBlock) {
    const size_t step = std::min(kBlock, count - i);
    uint64_t* room = packer.next();
    for (size_t j = 0; j < step; ++j) room[j] = values[i + j] & mask;
    packer.advance(step);
  }
  packer.finish();
}

void unpack(const uint8_t* wire, size_t count, int width, uint64_t* values) {
  std::vector<uint64_t> stage(2 * kBlock);
  Unpacker<uint64_t> unpacker(stage.data(), width, wire, count);
  for (size_t i = 0; i < count; i += kBlock) {
    const size_t step = std::min(kBlock, count - i);
    std::memcpy(values + i, unpacker.take(step), step * sizeof(uint64_t));
  }
}

void xor_into(uint8_t* __restrict target, const uint8_t* __restrict source, size_t num_bytes) {
  for (size_t i = 0; i < num_bytes; ++i) target[i] ^= source[i];
}

// 128 rows of bits, bytes first_byte .. first_byte + 15 of each, into 128 rows of 16 bytes:
// bit i of row r becomes bit r of row i. Eklundh's way: swap ever smaller off-diagonal squares.
void transpose(const uint8_t* const* bit_rows, size_t first_byte, uint8_t* out, size_t out_stride) {
  alignas(32) uint64_t x[128][2];
  for (int r = 0; r < 128; ++r) std::memcpy(x[r], bit_rows[r] + first_byte, 16);
  for (int r = 0; r < 64; ++r) std::swap(x[r][1], x[r + 64][0]);
  uint64_t mask = 0x00000000FFFFFFFFu;
  for (int j = 32; j > 0; j >>= 1, mask ^= mask << j) {
    for (int base = 0; base < 128; base += 2 * j) {
      uint64_t* a = x[base];
      uint64_t* b = x[base + j];
      for (int w = 0; w < 2 * j; ++w) {
        const uint64_t swap = ((a[w] >> j) ^ b[w]) & mask;
        b[w] ^= swap;
        a[w] ^= swap << j;
      }
    }
  }
  for (int r = 0; r < 128; ++r) std::memcpy(out + static_cast<size_t>(r) * out_stride, x[r], 16);
}

// out (rows x length) += w (rows x depth) times x (depth x length), modulo the word.
template <typename Word>
void multiply(const Word* w, const Word* x, size_t rows, size_t depth, size_t length, Word* out) {
  for (size_t r = 0; r < rows; ++r)
    for (size_t c = 0; c < depth; ++c) {
      const Word factor = w[r * depth + c];
      const Word* __restrict from = x + c * length;
      Word* __restrict to = out + r * length;
      for (size_t j = 0; j < length; ++j) to[j] += factor * from[j];
    }
}

// Pads of a group of OTs: block j of OT t is pi(pi(row) ^ (index, j)) ^ pi(row), row = rows[t] (^ delta).
class Pads {
 public:
  Pads(const Cipher& pi, size_t num_blocks, size_t group)
      : pi_(pi), num_blocks_(num_blocks), keys_(2 * group), blocks_(2 * group * num_blocks) {}

  const uint8_t* make(const uint8_t* rows, const uint8_t* delta, size_t count, uint64_t index, uint64_t block) {
    uint64_t* keys = keys_.data();
    std::memcpy(keys, rows, 16 * count);
    if (delta != nullptr) {
      uint64_t d[2];
      std::memcpy(d, delta, 16);
      for (size_t t = 0; t < count; ++t) keys[2 * t] ^= d[0], keys[2 * t + 1] ^= d[1];
    }
    pi_.apply(reinterpret_cast<uint8_t*>(keys), reinterpret_cast<uint8_t*>(keys), 16 * count);
    uint64_t* blocks = blocks_.data();
    for (size_t t = 0; t < count; ++t) {
      const uint64_t low = keys[2 * t] ^ (index + t), high = keys[2 * t + 1];
      uint64_t* row = blocks + 2 * t * num_blocks_;
      for (size_t j = 0; j < num_blocks_; ++j) row[2 * j] = low, row[2 * j + 1] = high ^ (block + j);
    }
    pi_.apply(reinterpret_cast<uint8_t*>(blocks), reinterpret_cast<uint8_t*>(blocks), 16 * count * num_blocks_);
    for (size_t t = 0; t < count; ++t) {
      uint64_t* row = blocks + 2 * t * num_blocks_;
      for (size_t j = 0; j < num_blocks_; ++j) row[2 * j] ^= keys[2 * t], row[2 * j + 1] ^= keys[2 * t + 1];
    }
    return reinterpret_cast<const uint8_t*>(blocks);
  }

 private:
  const Cipher& pi_;
  size_t num_blocks_;
  std::vector<uint64_t> keys_, blocks_;
};

template <typename Word>
constexpr Word mask_of(int width) {
  return width >= static_cast<int>(8 * sizeof(Word)) ? ~Word{0} : static_cast<Word>((Word{1} << width) - 1);
}

// How the OTs of a frame are walked: groups small enough that their pads stay in the first cache.
template <typename Word, typename Pad>
struct Walk {
  explicit Walk(const Frame<Word>& frame)
      : num_ots(frame.num_rows * frame.depth), num_blocks((frame.length * sizeof(Pad) + 15) / 16),
        group(std::clamp<size_t>(512 / num_blocks, 1, 128)) {}
  size_t num_ots, num_blocks, group;
};

template <typename Word, typename Pad, bool kNegative>
void cot_send_as(const Frame<Word>& frame) {
  const Walk<Word, Pad> walk(frame);
  Pads zero(*frame.pi, walk.num_blocks, walk.group), one(*frame.pi, walk.num_blocks, walk.group);
  std::vector<Word> stage(kBlock + frame.length);
  Packer<Word> packer(stage.data(), frame.width, frame.wire);
  const Word mask = mask_of<Word>(frame.width);
  const size_t n = frame.length;
  const int shift = frame.shift;
  size_t column = 0;
  Word* out = frame.out;
  for (size_t first = 0; first < walk.num_ots; first += walk.group) {
    const size_t count = std::min(walk.group, walk.num_ots - first);
    const uint64_t index = frame.first_index + first;
    const uint8_t* rows = frame.rows + 16 * first;
    const uint8_t* zeros = zero.make(rows, nullptr, count, index, frame.first_block);
    const uint8_t* ones = one.make(rows, frame.delta, count, index, frame.first_block);
    for (size_t t = 0; t < count; ++t) {
      const Pad* __restrict a = reinterpret_cast<const Pad*>(zeros + 16 * t * walk.num_blocks);
      const Pad* __restrict b = reinterpret_cast<const Pad*>(ones + 16 * t * walk.num_blocks);
      const Word* __restrict d = frame.matrix + column * n;
      Word* __restrict z = packer.next();
      Word* __restrict o = out;
      for (size_t j = 0; j < n; ++j) {
        const Word r = a[j];
        z[j] = (r + d[j] - static_cast<Word>(b[j])) & mask;
        if (kNegative)
          o[j] += static_cast<Word>(r << shift);
        else
          o[j] -= static_cast<Word>(r << shift);
      }
      packer.advance(n);
      if (++column == frame.depth) column = 0, out += n;
    }
  }
  packer.finish();
}

template <typename Word, typename Pad, bool kNegative>
void cot_receive_as(const Frame<Word>& frame) {
  const Walk<Word, Pad> walk(frame);
  Pads own(*frame.pi, walk.num_blocks, walk.group);
  std::vector<Word> stage(2 * kBlock + frame.length);
  Unpacker<Word> unpacker(stage.data(), frame.width, frame.wire, walk.num_ots * frame.length);
  const size_t n = frame.length;
  const int shift = frame.shift;
  size_t column = 0;
  Word* out = frame.out;
  for (size_t first = 0; first < walk.num_ots; first += walk.group) {
    const size_t count = std::min(walk.group, walk.num_ots - first);
    const uint8_t* pads =
        own.make(frame.rows + 16 * first, nullptr, count, frame.first_index + first, frame.first_block);
    for (size_t t = 0; t < count; ++t) {
      const Pad* __restrict b = reinterpret_cast<const Pad*>(pads + 16 * t * walk.num_blocks);
      const Word* __restrict z = unpacker.take(n);
      const Word chosen = static_cast<Word>(-static_cast<Word>(frame.bits[first + t] & 1));
      Word* __restrict o = out;
      for (size_t j = 0; j < n; ++j) {
        const Word value = static_cast<Word>(b[j]) + (z[j] & chosen);
        if (kNegative)
          o[j] -= static_cast<Word>(value << shift);
        else
          o[j] += static_cast<Word>(value << shift);
      }
      if (++column == frame.depth) column = 0, out += n;
    }
  }
}

template <typename Word>
void cot_send(const Frame<Word>& frame) {
  if (frame.width <= 16)
    frame.negative ? cot_send_as<Word, uint16_t, true>(frame) : cot_send_as<Word, uint16_t, false>(frame);
  else if (frame.width <= 32)
    frame.negative ? cot_send_as<Word, uint32_t, true>(frame) : cot_send_as<Word, uint32_t, false>(frame);
  else
    frame.negative ? cot_send_as<Word, Word, true>(frame) : cot_send_as<Word, Word, false>(frame);
}

template <typename Word>
void cot_receive(const Frame<Word>& frame) {
  if (frame.width <= 16)
    frame.negative ? cot_receive_as<Word, uint16_t, true>(frame) : cot_receive_as<Word, uint16_t, false>(frame);
  else if (frame.width <= 32)
    frame.negative ? cot_receive_as<Word, uint32_t, true>(frame) : cot_receive_as<Word, uint32_t, false>(frame);
  else
    frame.negative ? cot_receive_as<Word, Word, true>(frame) : cot_receive_as<Word, Word, false>(frame);
}

// The chosen OT of SiRNN's wrap product: m_c = noise + (f xor c) * d + pad_c, for c = 0 and then for c = 1.
template <typename Word>
void ot_send(const Frame<Word>& frame) {
  const Walk<Word, Word> walk(frame);
  Pads pads(*frame.pi, walk.num_blocks, walk.group);
  std::vector<Word> stage(kBlock + frame.length);
  const Word mask = mask_of<Word>(frame.width);
  const size_t n = frame.length;
  for (int c = 0; c < 2; ++c) {
    Packer<Word> packer(stage.data(), frame.width, frame.wire + (c ? packed_bytes(walk.num_ots * n, frame.width) : 0));
    size_t column = 0;
    Word* out = frame.out;
    for (size_t first = 0; first < walk.num_ots; first += walk.group) {
      const size_t count = std::min(walk.group, walk.num_ots - first);
      const uint8_t* made = pads.make(frame.rows + 16 * first, c ? frame.delta : nullptr, count,
                                      frame.first_index + first, frame.first_block);
      for (size_t t = 0; t < count; ++t) {
        const Word* __restrict pad = reinterpret_cast<const Word*>(made + 16 * t * walk.num_blocks);
        const Word* __restrict d = frame.matrix + column * n;
        const Word* __restrict noise = frame.noise + (first + t) * n;
        const Word takes = static_cast<Word>(-static_cast<Word>((frame.bits[first + t] ^ c) & 1));
        Word* __restrict z = packer.next();
        for (size_t j = 0; j < n; ++j) z[j] = (noise[j] + (d[j] & takes) + pad[j]) & mask;
        if (c == 0)
          for (size_t j = 0; j < n; ++j)
            out[j] += static_cast<Word>((frame.negative ? noise[j] : Word{0} - noise[j]) << frame.shift);
        packer.advance(n);
        if (++column == frame.depth) column = 0, out += n;
      }
    }
    packer.finish();
  }
}

template <typename Word>
void ot_receive(const Frame<Word>& frame) {
  const Walk<Word, Word> walk(frame);
  Pads pads(*frame.pi, walk.num_blocks, walk.group);
  const size_t n = frame.length, total = walk.num_ots * n;
  std::vector<Word> stage0(2 * kBlock + n), stage1(2 * kBlock + n);
  Unpacker<Word> zero(stage0.data(), frame.width, frame.wire, total);
  Unpacker<Word> one(stage1.data(), frame.width, frame.wire + packed_bytes(total, frame.width), total);
  size_t column = 0;
  Word* out = frame.out;
  for (size_t first = 0; first < walk.num_ots; first += walk.group) {
    const size_t count = std::min(walk.group, walk.num_ots - first);
    const uint8_t* made =
        pads.make(frame.rows + 16 * first, nullptr, count, frame.first_index + first, frame.first_block);
    for (size_t t = 0; t < count; ++t) {
      const Word* __restrict pad = reinterpret_cast<const Word*>(made + 16 * t * walk.num_blocks);
      const Word* z0 = zero.take(n);
      const Word* z1 = one.take(n);
      const Word chosen = static_cast<Word>(-static_cast<Word>(frame.bits[first + t] & 1));
      for (size_t j = 0; j < n; ++j) {
        const Word value = ((z0[j] & ~chosen) | (z1[j] & chosen)) - pad[j];
        out[j] += static_cast<Word>((frame.negative ? Word{0} - value : value) << frame.shift);
      }
      if (++column == frame.depth) column = 0, out += n;
    }
  }
}

}  // namespace

const Kernels kernels = {pack,
                         unpack,
                         xor_into,
                         transpose,
                         multiply<uint32_t>,
                         multiply<uint64_t>,
                         cot_send<uint32_t>,
                         cot_send<uint64_t>,
                         cot_receive<uint32_t>,
                         cot_receive<uint64_t>,
                         ot_send<uint64_t>,
                         ot_receive<uint64_t>};

}  // namespace tw::crypt::TW_ISA
