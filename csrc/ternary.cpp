// Ternary kernels, compiled once per instruction set (TW_ISA names the namespace). Loops over rows of 32 and the
// compiler's own vector types, no intrinsics: every build computes the same bits.
#include "ternary.h"

#include <algorithm>
#include <cmath>

#include "vectors.h"
#include "words.h"

namespace tw::TW_ISA {
namespace {

constexpr double kConstant = 0x1p-40;  // variance below this share of the mean square is rounding: a constant layer

int64_t num_granules(const Segment& s, int digits) {
  return (s.numel + kRow * digits - 1) / (kRow * digits);
}

// Largest |x| as a bit pattern (NaN > Inf > numbers) and the float64 moments, element i into accumulator i mod 16.
struct Moments {
  uint32_t max_bits;
  double sum, sum_sq;
};

Moments moments(const float* x, int64_t n) {
  constexpr int kParts = kLanes / kHalf;
  Double sum[kParts] = {}, sq[kParts] = {};
  HalfInt top[kParts] = {};
  const int64_t whole = n / kLanes * kLanes;
  for (int64_t i = 0; i < whole; i += kLanes) {
    for (int part = 0; part < kParts; ++part) {
      const HalfAt v = *reinterpret_cast<const HalfAt*>(x + i + kHalf * part);
      const HalfInt magnitude = (HalfInt)v & 0x7fffffff;
      top[part] = magnitude > top[part] ? magnitude : top[part];
      const Double d = __builtin_convertvector(v, Double);
      sum[part] += d;
      sq[part] += d * d;
    }
  }
  double s[kLanes], q[kLanes];
  std::memcpy(s, sum, sizeof s);
  std::memcpy(q, sq, sizeof q);
  uint32_t max_bits = 0;
  for (int j = 0; j < kLanes; ++j) max_bits = std::max(max_bits, static_cast<uint32_t>(top[j / kHalf][j % kHalf]));
  for (int64_t i = whole; i < n; ++i) {
    const double d = x[i];
    s[i - whole] += d;
    q[i - whole] += d * d;
    max_bits = std::max(max_bits, bits_of(x[i]) & 0x7fffffffu);
  }
  return {max_bits, fold(s), fold(q)};
}

void scale_of_block(const float* x, int64_t n, double clip, bool scaler_is_bound, int32_t* scale_bits, float* bound) {
  const Moments m = moments(x, n);
  *bound = std::numeric_limits<float>::infinity();
  *scale_bits = static_cast<int32_t>(m.max_bits);
  if (m.max_bits >= 0x7f800000u || std::isinf(clip)) return;
  const double mean = m.sum / static_cast<double>(n);
  const double mean_sq = m.sum_sq / static_cast<double>(n);
  const double variance = mean_sq - mean * mean;
  if (!(variance > kConstant * mean_sq)) return;
  const float limit = static_cast<float>(clip * std::sqrt(variance));
  if (!(limit > 0.0f)) return;
  if (scaler_is_bound) {
    *scale_bits = static_cast<int32_t>(bits_of(limit));
  } else {
    *bound = limit;
    *scale_bits = static_cast<int32_t>(std::min(m.max_bits, bits_of(limit)));
  }
}

void scales(const float* x, const Segment* segments, int64_t num_segments, double clip, bool scaler_is_bound,
            int32_t* scale_bits, float* bounds) {
  for (int64_t i = 0; i < num_segments; ++i) {
    const Segment& s = segments[i];
    const int64_t block = s.block == 0 ? s.numel : s.block;
    for (int64_t b = 0; b < num_blocks(s); ++b)
      scale_of_block(x + s.offset + b * block, std::min(block, s.numel - b * block), clip, scaler_is_bound,
                     scale_bits + s.scale + b, bounds + s.scale + b);
  }
}

// One draw per element: trit + 1.
inline Word draw(const float* x, uint32_t counter, uint32_t k0, uint32_t k1, float unit, float bound) {
  const Int raw = (Int)(*reinterpret_cast<const FloatAt*>(x));
  const Float magnitude = (Float)(raw & 0x7fffffff);
  const Float limit = Float{} + bound;
  const Float clipped = magnitude < limit ? magnitude : limit;
  const Float threshold = __builtin_convertvector((Int)random24(counter + ramp(), k0, k1), Float) * unit;
  const Int hit = threshold < clipped;  // -1 or 0
  return (Word)(1 + (hit & (1 | (raw >> 31))));
}

// Adds one digit to 32 words: v = v * radix + (trit + 1).
template <int kRadix>
inline void push_row(const float* x, uint32_t counter, uint32_t k0, uint32_t k1, float unit, float bound, Word* v) {
  for (int i = 0; i < kVectors; ++i)
    v[i] = v[i] * kRadix + draw(x + kWidth * i, counter + static_cast<uint32_t>(kWidth * i), k0, k1, unit, bound);
}

template <int kRadix>
inline void store_bytes(const Word* v, uint8_t* out) {
  for (int i = 0; i < kVectors; ++i) {  // base 3 is stored as the fraction floor(v * 256 / 243) + 1
    const Word w = kRadix == 3 ? v[i] + 1 + ((v[i] * 3507u) >> 16) : v[i];
    *reinterpret_cast<BytesAt*>(out + kWidth * i) = __builtin_convertvector(w, BytesAt);
  }
}

template <int kRadix, int kDigits>
void encode_segment(const float* x, const Segment& s, uint32_t k0, uint32_t k1, const float* scales,
                    const float* bounds, uint8_t* out) {
  const int64_t granules = num_granules(s, kDigits);
  int64_t current = -1;
  float unit = 0, bound = 0;
  alignas(64) float tail[kRow * kDigits];
  for (int64_t g = 0; g < granules; ++g) {
    const int64_t first = g * kRow * kDigits;
    const float* source = x + s.offset + first;
    if (s.numel - first < kRow * kDigits) {
      std::memset(tail, 0, sizeof tail);
      std::memcpy(tail, source, static_cast<size_t>(s.numel - first) * 4);
      source = tail;
    }
    Word v[kVectors] = {};
    for (int k = 0; k < kDigits; ++k) {
      const int64_t element = first + k * kRow;
      const int64_t index = element < s.numel ? s.scale_index(element) : current;  // padding: any scale will do
      if (index != current) {
        current = index;
        unit = unit_of(scales[index]);
        bound = bounds[index];
      }
      push_row<kRadix>(source + k * kRow, static_cast<uint32_t>(s.start + element), k0, k1, unit, bound, v);
    }
    store_bytes<kRadix>(v, out + (s.row / kDigits + g) * kRow);
  }
}

void encode(const float* x, const Segment* segments, int64_t num_segments, const uint32_t* keys, const float* scales,
            const float* bounds, int digits, uint8_t* payload) {
  for (int64_t i = 0; i < num_segments; ++i) {
    const auto encode_one = digits == 5 ? encode_segment<3, 5> : encode_segment<4, 4>;
    encode_one(x, segments[i], keys[2 * i], keys[2 * i + 1], scales, bounds, payload);
  }
}

// Adds the `digits` digits of one granule to `digits` rows of sums.
inline void add_granule(const uint8_t* __restrict bytes, int digits, uint16_t* __restrict sums) {
  const uint16_t radix = digits == 5 ? 3 : 4;
  uint16_t w[kRow];
  for (int j = 0; j < kRow; ++j) w[j] = bytes[j];
  for (int k = 0; k < digits; ++k)
    for (int j = 0; j < kRow; ++j) {
      const uint16_t t = static_cast<uint16_t>(w[j] * radix);
      sums[k * kRow + j] = static_cast<uint16_t>(sums[k * kRow + j] + (t >> 8));
      w[j] = t & 255;
    }
}

void add(const uint8_t* payloads, int64_t num_payloads, int64_t granules, int digits, int sum_digits,
         uint32_t* words) {
  const auto add_one = [digits](const uint8_t* bytes, uint16_t* sums) { add_granule(bytes, digits, sums); };
  add_payloads<uint16_t>(payloads, num_payloads, granules, kRow, digits, static_cast<uint32_t>(2 * num_payloads + 1),
                         sum_digits, add_one, words);
}

void decode_own(const uint8_t* payload, int digits, const Segment* segments, int64_t num_segments,
                const float* scales, float* x) {
  const uint32_t radix = digits == 5 ? 3 : 4;
  for (int64_t i = 0; i < num_segments; ++i) {
    const Segment& s = segments[i];
    for (int64_t g = 0; g < num_granules(s, digits); ++g) {
      const uint8_t* bytes = payload + (s.row / digits + g) * kRow;
      alignas(64) uint32_t w[kRow];
      alignas(64) int32_t level[kRow];
      for (int j = 0; j < kRow; ++j) w[j] = static_cast<uint32_t>(bytes[j]) << 24;
      for (int k = 0; k < digits; ++k) {
        pop_digit(w, radix, 1, level);
        const int64_t element = (g * digits + k) * kRow;
        const int64_t present = std::min<int64_t>(s.numel - element, kRow);
        if (present > 0)
          store_row(level, scales[s.scale_index(element)], present, x + s.offset + element);
      }
    }
  }
  end_of_stream();
}

}  // namespace

extern const TernaryKernels ternary{scales, encode, add, decode_words, decode_own};

}  // namespace tw::TW_ISA
