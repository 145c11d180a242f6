// QSGD kernels, compiled once per instruction set (TW_ISA names the namespace).
#include "qsgd.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "fields.h"
#include "vectors.h"
#include "words.h"

namespace tw::TW_ISA {
namespace {

constexpr uint32_t kNan = 0x7fc00000u;
constexpr uint32_t kInf = 0x7f800000u;

// Rows of a segment, those that fill its last granule included.
int64_t padded_rows(const Segment& s, int bits) {
  const int64_t granule = kRow * field_rows(bits);
  return (s.numel + granule - 1) / granule * field_rows(bits);
}

// Where the codes of a segment begin.
int64_t first_byte(const Segment& s, int bits) { return s.row / field_rows(bits) * field_granule_bytes(bits); }

// Calls f<bits>: the number of bits is a constant in all loops.
template <typename F>
void with_bits(int bits, F f) {
  switch (bits) {
    case 2: return f(std::integral_constant<int, 2>{});
    case 3: return f(std::integral_constant<int, 3>{});
    case 4: return f(std::integral_constant<int, 4>{});
    case 5: return f(std::integral_constant<int, 5>{});
    case 6: return f(std::integral_constant<int, 6>{});
    case 7: return f(std::integral_constant<int, 7>{});
    default: return f(std::integral_constant<int, 8>{});
  }
}

// Largest |x| as a bit pattern: NaN > Inf > numbers.
uint32_t max_bits(const float* x, int64_t n) {
  constexpr int kParts = 4;  // more than one, or each maximum would wait for the one before it
  Int top[kParts] = {};
  const int64_t whole = n / (kParts * kWidth) * (kParts * kWidth);
  for (int64_t i = 0; i < whole; i += kParts * kWidth)
    for (int part = 0; part < kParts; ++part) {
      const Int magnitude = (Int)(*reinterpret_cast<const FloatAt*>(x + i + kWidth * part)) & 0x7fffffff;
      top[part] = magnitude > top[part] ? magnitude : top[part];
    }
  for (int part = 1; part < kParts; ++part) top[0] = top[part] > top[0] ? top[part] : top[0];
  uint32_t largest = 0;
  for (int j = 0; j < kWidth; ++j) largest = std::max(largest, static_cast<uint32_t>(top[0][j]));
  for (int64_t i = whole; i < n; ++i) largest = std::max(largest, bits_of(x[i]) & 0x7fffffffu);
  return largest;
}

// The sum of squares in float64, element i into accumulator i mod 16.
double sum_squares(const float* x, int64_t n) {
  constexpr int kParts = kLanes / kHalf;
  Double sq[kParts] = {};
  const int64_t whole = n / kLanes * kLanes;
  for (int64_t i = 0; i < whole; i += kLanes)
    for (int part = 0; part < kParts; ++part) {
      const Double d = __builtin_convertvector(*reinterpret_cast<const HalfAt*>(x + i + kHalf * part), Double);
      sq[part] += d * d;
    }
  double lanes[kLanes];
  std::memcpy(lanes, sq, sizeof lanes);
  for (int64_t i = whole; i < n; ++i) lanes[i - whole] += static_cast<double>(x[i]) * x[i];
  return fold(lanes);
}

// What is not finite becomes one NaN, so that sums of it have the same bits in any order of the operands.
uint32_t norm_bits(const float* x, int64_t n, bool l2) {
  const uint32_t largest = max_bits(x, n);
  if (largest >= kInf) return kNan;
  if (!l2) return largest;
  const double norm = std::sqrt(sum_squares(x, n));
  return bits_of(static_cast<float>(std::min(norm, static_cast<double>(std::numeric_limits<float>::max()))));
}

void scales(const float* x, const Segment* segments, int64_t num_segments, bool l2, int32_t* scale_bits) {
  for (int64_t i = 0; i < num_segments; ++i) {
    const Segment& s = segments[i];
    const int64_t block = s.block == 0 ? s.numel : s.block;
    for (int64_t b = 0; b < num_blocks(s); ++b)
      scale_bits[s.scale + b] =
          static_cast<int32_t>(norm_bits(x + s.offset + b * block, std::min(block, s.numel - b * block), l2));
  }
}

// What rounding needs to know of a block: the step between levels, its inverse, and the unit of the draws.
struct Grid {
  float step = 0, inverse = 0, unit = 0;

  explicit Grid(float s) : step(s), unit(unit_of(s)) {
    if (s > 0.0f) inverse = std::min(1.0f / s, std::numeric_limits<float>::max());
  }
};

// One draw per element: level + s. The level below (s - 1 at most), and one more with probability rest / step.
template <int kBits>
inline Word draw(const float* x, uint32_t counter, uint32_t k0, uint32_t k1, const Grid& grid) {
  constexpr int kTop = (1 << (kBits - 1)) - 1;
  const Int raw = (Int)(*reinterpret_cast<const FloatAt*>(x));
  const Float magnitude = (Float)(raw & 0x7fffffff);
  const Float scaled = magnitude * grid.inverse;
  const Float limit = Float{} + static_cast<float>(kTop - 1);
  const Int below = __builtin_convertvector(scaled < limit ? scaled : limit, Int);
  const Float rest = magnitude - __builtin_convertvector(below, Float) * grid.step;
  const Float threshold = __builtin_convertvector((Int)random24(counter + ramp(), k0, k1), Float) * grid.unit;
  const Int level = below - (threshold < rest);  // a comparison gives -1 or 0
  const Int sign = raw >> 31;
  return (Word)(((level ^ sign) - sign) + kTop);
}

template <int kBits>
void encode_segment(const float* x, const Segment& s, uint32_t k0, uint32_t k1, const float* steps, uint8_t* out) {
  alignas(64) float spare[kRow];
  ScaleCursor scale;
  int64_t current = -1;
  Grid grid(0.0f);
  FieldWriter<kBits> writer(out + first_byte(s, kBits));
  for (int64_t row = 0; row < padded_rows(s, kBits); ++row) {
    const int64_t element = row * kRow;
    const int64_t index = element < s.numel ? scale.at(s, element) : current;  // padding: any scale will do
    if (index != current) {
      current = index;
      grid = Grid(steps[index]);
    }
    const float* source = row_of(x, s, row, spare);
    Word codes[kVectors];
    for (int i = 0; i < kVectors; ++i)
      codes[i] = draw<kBits>(source + kWidth * i, static_cast<uint32_t>(s.start + element + kWidth * i), k0, k1, grid);
    writer.push(codes);
  }
}

void encode(const float* x, const Segment* segments, int64_t num_segments, const uint32_t* keys, const float* steps,
            int bits, uint8_t* payload) {
  with_bits(bits, [&](auto constant) {
    for (int64_t i = 0; i < num_segments; ++i)
      encode_segment<constant>(x, segments[i], keys[2 * i], keys[2 * i + 1], steps, payload);
  });
}

template <int kBits>
inline void add_granule(const uint8_t* bytes, uint32_t* sums) {
  FieldReader<kBits> reader(bytes);
  for (int k = 0; k < field_rows(kBits); ++k) {
    Word codes[kVectors];
    reader.pop(codes);
    for (int i = 0; i < kVectors; ++i) *reinterpret_cast<WordAt*>(sums + k * kRow + kWidth * i) += codes[i];
  }
}

void add(const uint8_t* payloads, int64_t num_payloads, int64_t granules, int bits, int sum_digits, uint32_t* words) {
  const auto base = static_cast<uint32_t>(num_payloads * ((1 << bits) - 2) + 1);
  with_bits(bits, [&](auto constant) {
    add_payloads<uint32_t>(payloads, num_payloads, granules, field_granule_bytes(constant), field_rows(constant), base,
                           sum_digits, add_granule<constant>, words);
  });
}

// x = the sum over payloads of level * step, in the order of the payloads, granule by granule.
template <int kBits>
void decode_segment(const uint8_t* payloads, int64_t num_payloads, int64_t payload_bytes, const Segment& s,
                    const float* steps, int64_t num_steps, float* x) {
  constexpr int kTop = (1 << (kBits - 1)) - 1, kRows = field_rows(kBits);
  const uint8_t* in = payloads + first_byte(s, kBits);
  const int64_t num_rows = (s.numel + kRow - 1) / kRow;
  ScaleCursor scale;
  for (int64_t first = 0; first < num_rows; first += kRows, in += field_granule_bytes(kBits)) {
    const int count = static_cast<int>(std::min<int64_t>(kRows, num_rows - first));
    int64_t index[kRows];
    for (int k = 0; k < count; ++k) index[k] = scale.at(s, (first + k) * kRow);
    for (int64_t p = 0; p < num_payloads; ++p) {
      FieldReader<kBits> reader(in + p * payload_bytes);
      for (int k = 0; k < count; ++k) {
        Word codes[kVectors];
        reader.pop(codes);
        Float values[kVectors];
        for (int i = 0; i < kVectors; ++i)
          values[i] = __builtin_convertvector((Int)codes[i] - kTop, Float) * steps[p * num_steps + index[k]];
        put_row(values, p == 0, s, first + k, x);
      }
    }
  }
}

void decode_own(const uint8_t* payloads, int64_t num_payloads, int64_t payload_bytes, int bits,
                const Segment* segments, int64_t num_segments, const float* steps, int64_t num_steps, float* x) {
  with_bits(bits, [&](auto constant) {
    for (int64_t i = 0; i < num_segments; ++i)
      decode_segment<constant>(payloads, num_payloads, payload_bytes, segments[i], steps, num_steps, x);
  });
}

}  // namespace

extern const QsgdKernels qsgd{scales, encode, add, decode_words, decode_own};

}  // namespace tw::TW_ISA
