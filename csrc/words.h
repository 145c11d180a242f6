// Sums of integers in 32-bit words: `sum_digits` digits of a base in a word, which is kept as the fraction
// floor(v * 2^32 / base^sum_digits) + 1, so that decoding is multiply and take the high half. Digit k of word j of a
// pack is element j of the pack's row k. Compiled once per instruction set, in every family that adds integers.
#pragma once
#include "rows.h"

namespace tw::TW_ISA {
namespace {

constexpr int kMaxSumDigits = 20;  // base 3: the sums of one ternary payload
constexpr int kMaxGranuleRows = 32;

// Packs rows of sums into words. 2^32 / limit is whole + rest, and rest * 2^64, rounded up, is `high` and `low`: then
// the quotient is too large by less than v / 2^64 < 1 / limit, so that nothing is lost by rounding it down. All is
// arithmetic modulo 2^32: sums that are no digits give wrong words and nothing worse.
class WordPacker {
 public:
  WordPacker(uint32_t base, int sum_digits) : base_(base), sum_digits_(sum_digits) {
    uint64_t limit = 1;
    for (int k = 0; k < sum_digits; ++k) limit *= base;
    const uint64_t rest = (uint64_t{1} << 32) % limit, next = (rest << 32) % limit;
    whole_ = static_cast<uint32_t>((uint64_t{1} << 32) / limit);
    high_ = (rest << 32) / limit;
    low_ = (next << 32) / limit + 1;  // the limit is odd: it never divides a power of 2
  }

  // `sum_digits` rows of sums to 32 words.
  template <typename Sum>
  void pack(const Sum* sums, uint32_t* words) const {
    for (int i = 0; i < kVectors; ++i) {
      Word v = widened(sums + kWidth * i);
      for (int k = 1; k < sum_digits_; ++k) v = v * base_ + widened(sums + k * kRow + kWidth * i);
      *reinterpret_cast<WordAt*>(words + kWidth * i) = fraction(v);
    }
  }

 private:
  Wide part(Wide v) const { return times_low(v, Wide{} + high_) + (times_low(v, Wide{} + low_) >> 32); }

  Word fraction(Word v) const { return v * whole_ + high_halves(part((Wide)v), part((Wide)v >> 32)) + 1u; }

  uint32_t base_, whole_;
  int sum_digits_;
  uint64_t high_, low_;
};

// Adds payloads as integers and packs the sums. `add_granules(first, count, sums)` writes the sums of some granules, of
// all payloads, to their rows.
template <typename Sum, typename AddGranules>
inline void add_payloads(int64_t granules, int granule_rows, uint32_t base, int sum_digits, AddGranules add_granules,
                         uint32_t* words) {
  const WordPacker packer(base, sum_digits);
  alignas(64) Sum sums[kMaxGranuleRows * kMaxSumDigits * kRow];  // sum_digits granules in, granule_rows packs out
  for (int64_t first = 0; first < granules; first += sum_digits) {
    const int64_t count = least<int64_t>(sum_digits, granules - first), rows = count * granule_rows;
    const int64_t packs = (rows + sum_digits - 1) / sum_digits;
    add_granules(first, count, sums);
    fill<Sum>(sums + rows * kRow, (packs * sum_digits - rows) * kRow, 0);
    for (int64_t pack = 0; pack < packs; ++pack, words += kRow) packer.pack(sums + pack * sum_digits * kRow, words);
  }
}

// 32 words that give up their leading digits: the high halves of words * base; the low halves remain.
class WordReader {
 public:
  explicit WordReader(const uint32_t* words) {
    for (int i = 0; i < kVectors; ++i) {
      even_[i] = (Wide)(*reinterpret_cast<const WordAt*>(words + kWidth * i));
      odd_[i] = even_[i] >> 32;
    }
  }

  void pop(Wide base, Word* digits) {
    for (int i = 0; i < kVectors; ++i) {
      even_[i] = times_low(even_[i], base);
      odd_[i] = times_low(odd_[i], base);
      digits[i] = high_halves(even_[i], odd_[i]);
    }
  }

 private:
  Wide even_[kVectors], odd_[kVectors];
};

// Unpacks sums, 0 .. 2 * zero, and scales them: x = (digit - zero) * step.
inline void decode_words(const uint32_t* words, int64_t num_shards, int64_t rows_per_shard, int zero, int sum_digits,
                         const Segment* segments, int64_t num_segments, const float* steps, float* x) {
  if (num_segments == 0 || rows_per_shard == 0) return;
  const Wide base = Wide{} + static_cast<uint64_t>(2 * zero + 1);
  RowWriter writer(segments, num_segments, steps, x);
  for (int64_t shard = 0; shard < num_shards; ++shard)
    for (int64_t first = 0; first < rows_per_shard; first += sum_digits, words += kRow) {
      WordReader reader(words);
      const int64_t row = shard * rows_per_shard + first, count = least<int64_t>(sum_digits, rows_per_shard - first);
      for (int64_t k = 0; k < count; ++k) {
        Word digits[kVectors];
        Int levels[kVectors];
        reader.pop(base, digits);
        for (int i = 0; i < kVectors; ++i) levels[i] = (Int)digits[i] - zero;
        writer.put(row + k, levels);
      }
    }
  end_of_stream();
}

}  // namespace
}  // namespace tw::TW_ISA
