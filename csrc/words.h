// Sums of integers in 32-bit words: `sum_digits` digits of a base in a word, which is kept as the fraction
// floor(v * 2^32 / base^sum_digits) + 1, so that decoding is multiply and take the high half. Digit k of word j of a
// pack is element j of the pack's row k. Compiled once per instruction set, in every family that adds integers.
#pragma once
#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "lane.h"

namespace tw::TW_ISA {
namespace {

constexpr int kMaxSumDigits = 20;  // base 3: the sums of one ternary payload
constexpr int kMaxGranuleRows = 32;

// Packs `sum_digits` rows of sums into 32 words. The quotient by way of float64 is at most one off: its rest tells.
template <typename Sum>
inline void pack_words(const Sum* __restrict sums, uint32_t base, int sum_digits, int64_t limit,
                       uint32_t* __restrict words) {
  const double inverse = 0x1p32 / static_cast<double>(limit);
  uint32_t v[kRow] = {};
  for (int k = 0; k < sum_digits; ++k)
    for (int j = 0; j < kRow; ++j) v[j] = v[j] * base + sums[k * kRow + j];
  for (int j = 0; j < kRow; ++j) {
    const int64_t quotient = static_cast<int64_t>(static_cast<double>(v[j]) * inverse);
    const int64_t rest = static_cast<int64_t>(static_cast<uint64_t>(v[j]) << 32) - quotient * limit;
    words[j] = static_cast<uint32_t>(quotient + (rest >= limit) - (rest < 0)) + 1;
  }
}

// Adds payloads as integers and packs the sums. `add_granule(bytes, sums)` adds one granule to its rows of sums.
template <typename Sum, typename AddGranule>
inline void add_payloads(const uint8_t* payloads, int64_t num_payloads, int64_t granules, int64_t granule_bytes,
                         int granule_rows, uint32_t base, int sum_digits, AddGranule add_granule, uint32_t* words) {
  int64_t limit = 1;
  for (int k = 0; k < sum_digits; ++k) limit *= base;
  alignas(64) Sum sums[kMaxGranuleRows * kMaxSumDigits * kRow];  // sum_digits granules in, granule_rows packs out
  for (int64_t first = 0; first < granules; first += sum_digits) {
    const int64_t count = std::min<int64_t>(sum_digits, granules - first);
    std::memset(sums, 0, sizeof *sums * static_cast<size_t>(granule_rows * sum_digits * kRow));
    for (int64_t p = 0; p < num_payloads; ++p)
      for (int64_t g = 0; g < count; ++g)
        add_granule(payloads + (p * granules + first + g) * granule_bytes, sums + g * granule_rows * kRow);
    const int64_t packs = (count * granule_rows + sum_digits - 1) / sum_digits;
    for (int64_t pack = 0; pack < packs; ++pack)
      pack_words(sums + pack * sum_digits * kRow, base, sum_digits, limit,
                 words + (first / sum_digits * granule_rows + pack) * kRow);
  }
}

// Walks the rows of a lane in order and tells where each row's elements live.
struct RowCursor {
  const Segment* segment;
  const Segment* end;

  // The row's element offset in its tensor and how many of its 32 elements exist (0: padding).
  int64_t locate(int64_t row, int64_t* element) {
    while (segment + 1 < end && row >= segment[1].row) ++segment;
    *element = (row - segment->row) * kRow;
    return row < segment->row ? 0 : std::clamp<int64_t>(segment->numel - *element, 0, kRow);
  }
};

#if defined(__AVX512F__)
inline void stream(float* out, Float value) { _mm512_stream_ps(out, (__m512)value); }
#elif defined(__AVX2__)
inline void stream(float* out, Float value) { _mm256_stream_ps(out, (__m256)value); }
#endif

// After the last streamed row: other threads must see the rows before whatever this thread writes next.
inline void end_of_stream() {
#if defined(__AVX2__)
  _mm_sfence();
#endif
}

// Whole rows go past the caches where they can: nothing reads them soon, and a cached store would first read what
// it overwrites, which is half of the memory traffic of decoding.
inline void store_row(const int32_t* __restrict level, float step, int64_t count, float* __restrict out) {
  if (count == kRow) {
#if defined(__AVX2__)
    if (reinterpret_cast<uintptr_t>(out) % (4 * kWidth) == 0) {
      for (int i = 0; i < kRow; i += kWidth) {
        const Int part = *reinterpret_cast<const Int*>(level + i);
        stream(out + i, __builtin_convertvector(part, Float) * step);
      }
      return;
    }
#endif
    for (int j = 0; j < kRow; ++j) out[j] = static_cast<float>(level[j]) * step;
  } else {
    for (int64_t j = 0; j < count; ++j) out[j] = static_cast<float>(level[j]) * step;
  }
}

// Takes the leading digit off 32 fractions: the high half of w * base; the low half remains.
inline void pop_digit(uint32_t* __restrict w, uint32_t base, int32_t zero, int32_t* __restrict level) {
  for (int j = 0; j < kRow; ++j) {
    const uint64_t t = static_cast<uint64_t>(w[j]) * base;
    level[j] = static_cast<int32_t>(t >> 32) - zero;
    w[j] = static_cast<uint32_t>(t);
  }
}

// Unpacks sums, 0 .. 2 * zero, and scales them: x = (digit - zero) * step.
inline void decode_words(const uint32_t* words, int64_t num_shards, int64_t rows_per_shard, int zero, int sum_digits,
                         const Segment* segments, int64_t num_segments, const float* steps, float* x) {
  if (num_segments == 0) return;
  const uint32_t base = static_cast<uint32_t>(2 * zero + 1);
  RowCursor cursor{segments, segments + num_segments};
  ScaleCursor scale;
  for (int64_t shard = 0; shard < num_shards; ++shard)
    for (int64_t first = 0; first < rows_per_shard; first += sum_digits, words += kRow) {
      alignas(64) uint32_t w[kRow];
      alignas(64) int32_t level[kRow];
      std::memcpy(w, words, sizeof w);
      const int64_t count = std::min<int64_t>(sum_digits, rows_per_shard - first);
      for (int64_t k = 0; k < count; ++k) {
        pop_digit(w, base, zero, level);
        int64_t element;
        const int64_t present = cursor.locate(shard * rows_per_shard + first + k, &element);
        if (present > 0)
          store_row(level, steps[scale.at(*cursor.segment, element)], present, x + cursor.segment->offset + element);
      }
    }
  end_of_stream();
}

}  // namespace
}  // namespace tw::TW_ISA
