// Ternary kernels, compiled once per instruction set (TW_ISA names the namespace).
#include "ternary.h"

#include "draws.h"
#include "sums.h"
#include "trits.h"
#include "words.h"

namespace tw::TW_ISA {
namespace {

constexpr double kConstant = 0x1p-40;      // variance below this share of the mean square is rounding: a constant layer
constexpr int64_t kMostInBytes = 255 / 3;  // payloads whose digits, 3 at most, add up to a byte

int64_t num_granules(const Segment& s, int digits) { return (s.numel + kRow * digits - 1) / (kRow * digits); }

void scale_of_block(const float* x, int64_t n, double clip, bool scaler_is_bound, int32_t* scale_bits, float* bound) {
  *bound = __builtin_inff();
  if (__builtin_isinf(clip)) {
    *scale_bits = static_cast<int32_t>(max_bits(x, n));
    return;
  }
  const Moments m = moments<true>(x, n);
  *scale_bits = static_cast<int32_t>(m.max_bits);
  if (m.max_bits >= 0x7f800000u) return;
  const double mean = m.sum / static_cast<double>(n);
  const double mean_sq = m.sum_sq / static_cast<double>(n);
  const double variance = mean_sq - mean * mean;
  if (!(variance > kConstant * mean_sq)) return;
  const float limit = static_cast<float>(clip * __builtin_sqrt(variance));
  if (!(limit > 0.0f)) return;
  if (scaler_is_bound) {
    *scale_bits = static_cast<int32_t>(bits_of(limit));
  } else {
    *bound = limit;
    *scale_bits = static_cast<int32_t>(least(m.max_bits, bits_of(limit)));
  }
}

void scales(const float* x, const Segment* segments, int64_t num_segments, double clip, bool scaler_is_bound,
            int32_t* scale_bits, float* bounds) {
  for (int64_t i = 0; i < num_segments; ++i) {
    const Segment& s = segments[i];
    const int64_t block = s.block == 0 ? s.numel : s.block;
    for (int64_t b = 0; b < num_blocks(s); ++b)
      scale_of_block(x + s.offset + b * block, least(block, s.numel - b * block), clip, scaler_is_bound,
                     scale_bits + s.scale + b, bounds + s.scale + b);
  }
}

// Thresholds above which a value of a row of 32 is not 0: one draw per element, or half the scale.
struct Drawn {
  explicit Drawn(const uint32_t* key) : draws(key[0], key[1]) {}
  static float unit(float scale) { return unit_of(scale); }
  void seek(uint32_t counter) { draws.seek(counter); }
  Float threshold(int i, float unit) const { return __builtin_convertvector(draws.u24(i), Float) * unit; }

  Draws draws;
};
struct Nearest {
  explicit Nearest(const uint32_t*) {}
  static float unit(float scale) { return scale > 0.0f ? scale * 0.5f : __builtin_inff(); }
  void seek(uint32_t) {}
  Float threshold(int, float unit) const { return splat(unit); }
};

// A row of 32: minus the trits.
template <typename Rounding>
inline void round_row(const float* x, const Rounding& rounding, float unit, float bound, Int* negated) {
  const Float limit = splat(bound);
  for (int i = 0; i < kVectors; ++i) {
    const Int raw = (Int)load(x + kWidth * i);
    const Float magnitude = (Float)(raw & 0x7fffffff);
    const Float clipped = lesser(magnitude, limit);
    negated[i] = turned(rounding.threshold(i, unit) < clipped, raw);  // a comparison gives -1 or 0
  }
}

template <int kRadix, int kDigits, typename Rounding>
void encode_segment(const float* x, const Segment& s, const uint32_t* key, const float* scales, const float* bounds,
                    uint8_t* out) {
  const int64_t granules = num_granules(s, kDigits);
  Rounding rounding(key);
  TritWriter<kRadix, kDigits> writer;
  ScaleCursor scale;
  int64_t current = -1;
  float unit = 0, bound = 0;
  alignas(64) float tail[kRow * kDigits];
  out += s.row / kDigits * kRow;
  for (int64_t g = 0; g < granules; ++g, out += kRow) {
    const int64_t first = g * kRow * kDigits;
    const float* source = x + s.offset + first;
    if (s.numel - first < kRow * kDigits) {
      std::memset(tail, 0, sizeof tail);
      std::memcpy(tail, source, static_cast<size_t>(s.numel - first) * 4);
      source = tail;
    }
    for (int k = 0; k < kDigits; ++k) {
      const int64_t element = first + k * kRow;
      const int64_t index = element < s.numel ? scale.at(s, element) : current;  // padding: any scale will do
      if (index != current) {
        current = index;
        unit = Rounding::unit(scales[index]);
        bound = bounds[index];
      }
      Int negated[kVectors];
      rounding.seek(static_cast<uint32_t>(s.start + element));
      round_row(source + k * kRow, rounding, unit, bound, negated);
      writer.push(negated);
    }
    writer.write(out);
  }
}

void encode(const float* x, const Segment* segments, int64_t num_segments, const uint32_t* keys, const float* scales,
            const float* bounds, int digits, uint8_t* payload) {
  const bool nearest = keys == nullptr;
  const auto encode_one = digits == 5 ? nearest ? encode_segment<3, 5, Nearest> : encode_segment<3, 5, Drawn>
                          : nearest   ? encode_segment<4, 4, Nearest>
                                      : encode_segment<4, 4, Drawn>;
  for (int64_t i = 0; i < num_segments; ++i)
    encode_one(x, segments[i], nearest ? nullptr : keys + 2 * i, scales, bounds, payload);
}

// The sums of granules in bytes, byte by byte of all payloads.
template <int kRadix, int kDigits>
void add_in_bytes(const uint8_t* payloads, int64_t num_payloads, int64_t payload_bytes, int64_t count, uint8_t* sums) {
  for (int64_t g = 0; g < count; ++g, payloads += kRow, sums += kDigits * kRow)
    for (int part = 0; part < kByteVectors; ++part) {
      Bytes total[kDigits] = {};
      for (int64_t p = 0; p < num_payloads; ++p) {
        TritReader<kRadix> reader(payloads + p * payload_bytes + kByteWidth * part);
        for (int k = 0; k < kDigits; ++k) total[k] -= (Bytes)reader.pop();
      }
      for (int k = 0; k < kDigits; ++k) std::memcpy(sums + k * kRow + kByteWidth * part, &total[k], kByteWidth);
    }
}

// The same for sums up to 65535.
template <int kRadix, int kDigits>
void add_in_shorts(const uint8_t* payloads, int64_t num_payloads, int64_t payload_bytes, int64_t count,
                   uint16_t* sums) {
  uint8_t some[kDigits * kRow];
  for (int64_t g = 0; g < count; ++g, payloads += kRow, sums += kDigits * kRow) {
    fill<uint16_t>(sums, kDigits * kRow, 0);
    for (int64_t p = 0; p < num_payloads; p += kMostInBytes) {
      add_in_bytes<kRadix, kDigits>(payloads + p * payload_bytes, least(kMostInBytes, num_payloads - p), payload_bytes,
                                    1, some);
      for (int j = 0; j < kDigits * kRow; ++j) sums[j] = static_cast<uint16_t>(sums[j] + some[j]);
    }
  }
}

template <int kRadix, int kDigits>
void add_trits(const uint8_t* payloads, int64_t num_payloads, int64_t granules, int sum_digits, uint32_t* words) {
  const auto base = static_cast<uint32_t>(2 * num_payloads + 1);
  const int64_t payload_bytes = granules * kRow;
  if (num_payloads <= kMostInBytes)
    add_payloads<uint8_t>(
        granules, kDigits, base, sum_digits,
        [&](int64_t first, int64_t count, uint8_t* sums) {
          add_in_bytes<kRadix, kDigits>(payloads + first * kRow, num_payloads, payload_bytes, count, sums);
        },
        words);
  else
    add_payloads<uint16_t>(
        granules, kDigits, base, sum_digits,
        [&](int64_t first, int64_t count, uint16_t* sums) {
          add_in_shorts<kRadix, kDigits>(payloads + first * kRow, num_payloads, payload_bytes, count, sums);
        },
        words);
}

void add(const uint8_t* payloads, int64_t num_payloads, int64_t granules, int digits, int sum_digits, uint32_t* words) {
  (digits == 5 ? add_trits<3, 5> : add_trits<4, 4>)(payloads, num_payloads, granules, sum_digits, words);
}

template <int kRadix, int kDigits>
void decode_trits(const uint8_t* payload, const Segment* segments, int64_t num_segments, const float* scales,
                  float* x) {
  for (int64_t i = 0; i < num_segments; ++i) {
    const Segment& s = segments[i];
    const uint8_t* bytes = payload + s.row / kDigits * kRow;
    const int64_t num_rows = (s.numel + kRow - 1) / kRow;
    RowWriter writer(&s, 1, scales, x);
    for (int64_t first = 0; first < num_rows; first += kDigits, bytes += kRow) {
      alignas(64) int8_t negated[kDigits * kRow];
      for (int part = 0; part < kByteVectors; ++part) {
        TritReader<kRadix> reader(bytes + kByteWidth * part);
        for (int k = 0; k < kDigits; ++k) {
          const Small digits = reader.pop();
          std::memcpy(negated + k * kRow + kByteWidth * part, &digits, kByteWidth);
        }
      }
      for (int k = 0; k < least<int64_t>(kDigits, num_rows - first); ++k) {
        Int levels[kVectors];
        for (int i = 0; i < kVectors; ++i) levels[i] = -1 - widened(negated + k * kRow + kWidth * i);
        writer.put(s.row + first + k, levels);
      }
    }
  }
  end_of_stream();
}

void decode_own(const uint8_t* payload, int digits, const Segment* segments, int64_t num_segments, const float* scales,
                float* x) {
  (digits == 5 ? decode_trits<3, 5> : decode_trits<4, 4>)(payload, segments, num_segments, scales, x);
}

}  // namespace

extern const TernaryKernels ternary{scales, encode, add, decode_words, decode_own};

}  // namespace tw::TW_ISA
