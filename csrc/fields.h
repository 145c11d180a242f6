// Fields of a few bits in 32-bit little-endian words. Column j of a granule, its rows' elements j, is one long number:
// row k takes its bits kBits*k .. kBits*k + kBits - 1. Its words are 32 words apart: word p of column j is word
// 32*p + j of the granule. A granule has as few rows as fill whole words: 32 / gcd(kBits, 32).
// Nothing is stored in single bytes, so that packing is plain SIMD on words. Compiled once per instruction set.
#pragma once
#include <cstdint>
#include <cstring>

#include "vectors.h"

namespace tw::TW_ISA {
namespace {

// Writes rows of codes one behind the other.
template <int kBits>
class FieldWriter {
 public:
  explicit FieldWriter(uint8_t* out) : out_(out) {}

  void push(const Word* codes) {
    for (int i = 0; i < kVectors; ++i) word_[i] |= codes[i] << used_;
    used_ += kBits;
    if (used_ < 32) return;
    used_ -= 32;
    for (int i = 0; i < kVectors; ++i) {
      *reinterpret_cast<WordAt*>(out_ + 4 * kWidth * i) = word_[i];
      word_[i] = codes[i] >> (kBits - used_);  // what did not fit: nothing if used_ is 0
    }
    out_ += 4 * kRow;
  }

  // After the last row, if the rows do not fill whole words.
  void flush() {
    if (used_ == 0) return;
    for (int i = 0; i < kVectors; ++i) *reinterpret_cast<WordAt*>(out_ + 4 * kWidth * i) = word_[i];
  }

 private:
  uint8_t* out_;
  Word word_[kVectors] = {};
  int used_ = 0;
};

// Reads what a FieldWriter wrote.
template <int kBits>
class FieldReader {
 public:
  explicit FieldReader(const uint8_t* in) : in_(in) {}

  void pop(Word* codes) {
    constexpr uint32_t kMask = (1u << kBits) - 1;
    if (left_ >= kBits) {
      for (int i = 0; i < kVectors; ++i) {
        codes[i] = word_[i] & kMask;
        word_[i] >>= kBits;
      }
      left_ -= kBits;
      return;
    }
    for (int i = 0; i < kVectors; ++i) {
      const Word next = *reinterpret_cast<const WordAt*>(in_ + 4 * kWidth * i);
      codes[i] = (word_[i] | next << left_) & kMask;
      word_[i] = next >> (kBits - left_);
    }
    in_ += 4 * kRow;
    left_ += 32 - kBits;
  }

 private:
  const uint8_t* in_;
  Word word_[kVectors] = {};
  int left_ = 0;
};

// Row k of a segment, in `spare` with zeros behind its end if it is not whole.
inline const float* row_of(const float* x, const Segment& s, int64_t row, float* spare) {
  const int64_t present = s.numel - row * kRow;
  if (present >= kRow) return x + s.offset + row * kRow;
  std::memset(spare, 0, 4 * kRow);
  if (present > 0) std::memcpy(spare, x + s.offset + row * kRow, static_cast<size_t>(present) * 4);
  return spare;
}

// Writes 32 values to a row of a segment, or adds them to what is there; those behind its end are dropped.
inline void put_row(const Float* values, bool first, const Segment& s, int64_t row, float* x) {
  float* out = x + s.offset + row * kRow;
  const int64_t present = s.numel - row * kRow;
  if (present >= kRow) {
    for (int i = 0; i < kVectors; ++i) {
      FloatAt& target = *reinterpret_cast<FloatAt*>(out + kWidth * i);
      target = first ? values[i] : target + values[i];
    }
    return;
  }
  float spare[kRow];
  std::memcpy(spare, values, sizeof spare);
  for (int64_t j = 0; j < present; ++j) out[j] = first ? spare[j] : out[j] + spare[j];
}

}  // namespace
}  // namespace tw::TW_ISA
