// QSGD kernels, compiled once per instruction set (TW_ISA names the namespace).
#include "qsgd.h"

#include <cfloat>

#include "draws.h"
#include "fields.h"
#include "sums.h"
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
    case 2: return f(Constant<2>{});
    case 3: return f(Constant<3>{});
    case 4: return f(Constant<4>{});
    case 5: return f(Constant<5>{});
    case 6: return f(Constant<6>{});
    case 7: return f(Constant<7>{});
    default: return f(Constant<8>{});
  }
}

// What is not finite becomes one NaN, so that sums of it have the same bits in any order of the operands.
uint32_t norm_bits(const float* x, int64_t n, bool l2) {
  const Moments m = l2 ? moments<false>(x, n) : Moments{max_bits(x, n), 0.0, 0.0};
  if (m.max_bits >= kInf) return kNan;
  if (!l2) return m.max_bits;
  return bits_of(static_cast<float>(least<double>(__builtin_sqrt(m.sum_sq), FLT_MAX)));
}

void scales(const float* x, const Segment* segments, int64_t num_segments, bool l2, int32_t* scale_bits) {
  for (int64_t i = 0; i < num_segments; ++i) {
    const Segment& s = segments[i];
    const int64_t block = s.block == 0 ? s.numel : s.block;
    for (int64_t b = 0; b < num_blocks(s); ++b)
      scale_bits[s.scale + b] =
          static_cast<int32_t>(norm_bits(x + s.offset + b * block, least(block, s.numel - b * block), l2));
  }
}

// What rounding needs to know of a block: the step between levels, its inverse, and the unit of the draws.
struct Grid {
  float step = 0, inverse = 0, unit = 0;

  explicit Grid(float s) : step(s), unit(unit_of(s)) {
    if (s > 0.0f) inverse = least(1.0f / s, FLT_MAX);
  }
};

// One draw per element, a row of 32: level + s. The level below (s - 1 at most), and one more with probability
// rest / step.
template <int kBits>
inline void draw_row(const float* x, const Draws& draws, const Grid& grid, Word* codes) {
  constexpr int kTop = (1 << (kBits - 1)) - 1;
  const Float limit = splat(static_cast<float>(kTop - 1));
  for (int i = 0; i < kVectors; ++i) {
    const Int raw = (Int)load(x + kWidth * i);
    const Float magnitude = (Float)(raw & 0x7fffffff);
    const Float scaled = magnitude * grid.inverse;
    const Int below = __builtin_convertvector(lesser(scaled, limit), Int);
    const Float rest = magnitude - __builtin_convertvector(below, Float) * grid.step;
    const Float threshold = __builtin_convertvector(draws.u24(i), Float) * grid.unit;
    const Int level = below - (threshold < rest);  // a comparison gives -1 or 0
    codes[i] = (Word)(turned(level, raw) + kTop);
  }
}

// Rounding a row, by one draw per element or to the nearest level.
struct Drawn {
  explicit Drawn(const uint32_t* key) : draws(key[0], key[1]) {}
  template <int kBits>
  void row(const float* x, uint32_t counter, const Grid& grid, Word* codes) {
    draws.seek(counter);
    draw_row<kBits>(x, draws, grid, codes);
  }

  Draws draws;
};
struct Nearest {
  explicit Nearest(const uint32_t*) {}
  template <int kBits>
  void row(const float* x, uint32_t, const Grid& grid, Word* codes) {
    constexpr int kTop = (1 << (kBits - 1)) - 1;
    const Float limit = splat(static_cast<float>(kTop));
    for (int i = 0; i < kVectors; ++i) {
      const Int raw = (Int)load(x + kWidth * i);
      const Float scaled = (Float)(raw & 0x7fffffff) * grid.inverse;
      const Int level = __builtin_convertvector(lesser(scaled, limit) + 0.5f, Int);
      codes[i] = (Word)(turned(level, raw) + kTop);
    }
  }
};

template <int kBits, typename Rounding>
void encode_segment(const float* x, const Segment& s, const uint32_t* key, const float* steps, uint8_t* out) {
  alignas(64) float spare[kRow];
  ScaleCursor scale;
  int64_t current = -1;
  Grid grid(0.0f);
  Rounding rounding(key);
  FieldWriter<kBits> writer(out + first_byte(s, kBits));
  for (int64_t row = 0; row < padded_rows(s, kBits); ++row) {
    const int64_t element = row * kRow;
    const int64_t index = element < s.numel ? scale.at(s, element) : current;  // padding: any scale will do
    if (index != current) {
      current = index;
      grid = Grid(steps[index]);
    }
    Word codes[kVectors];
    const auto counter = static_cast<uint32_t>(s.start + element);
    rounding.template row<kBits>(row_of(x, s, row, spare), counter, grid, codes);
    writer.push(codes);
  }
}

void encode(const float* x, const Segment* segments, int64_t num_segments, const uint32_t* keys, const float* steps,
            int bits, uint8_t* payload) {
  with_bits(bits, [&](auto constant) {
    for (int64_t i = 0; i < num_segments; ++i) {
      if (keys == nullptr)
        encode_segment<constant, Nearest>(x, segments[i], nullptr, steps, payload);
      else
        encode_segment<constant, Drawn>(x, segments[i], keys + 2 * i, steps, payload);
    }
  });
}

// The sums of granules, payload by payload.
template <int kBits>
void add_fields(const uint8_t* payloads, int64_t num_payloads, int64_t payload_bytes, int64_t count, uint32_t* sums) {
  constexpr int kRows = field_rows(kBits);
  for (int64_t g = 0; g < count; ++g, payloads += field_granule_bytes(kBits), sums += kRows * kRow)
    for (int64_t p = 0; p < num_payloads; ++p) {
      FieldReader<kBits> reader(payloads + p * payload_bytes);
      for (int k = 0; k < kRows; ++k) {
        Word codes[kVectors];
        reader.pop(codes);
        for (int i = 0; i < kVectors; ++i) {
          WordAt& sum = *reinterpret_cast<WordAt*>(sums + k * kRow + kWidth * i);
          sum = p == 0 ? codes[i] : sum + codes[i];
        }
      }
    }
}

// The same for 2, 4 and 8 bits and few payloads: sums of every other field fit into twice the bits, so that words are
// added as they are.
template <int kBits>
void add_in_pairs(const uint8_t* payloads, int64_t num_payloads, int64_t payload_bytes, int64_t count, uint32_t* sums) {
  constexpr int kRows = field_rows(kBits);
  constexpr uint32_t kField = (1u << 2 * kBits) - 1, kEven = 0xffffffffu / kField * ((1u << kBits) - 1);
  for (int64_t g = 0; g < count; ++g, payloads += 4 * kRow, sums += kRows * kRow)
    for (int i = 0; i < kVectors; ++i) {
      Word even = {}, odd = {};
      for (int64_t p = 0; p < num_payloads; ++p) {
        const Word fields = *reinterpret_cast<const WordAt*>(payloads + p * payload_bytes + 4 * kWidth * i);
        even += fields & kEven;
        odd += (fields >> kBits) & kEven;
      }
      for (int k = 0; k < kRows; k += 2) {
        *reinterpret_cast<WordAt*>(sums + k * kRow + kWidth * i) = (even >> kBits * k) & kField;
        *reinterpret_cast<WordAt*>(sums + (k + 1) * kRow + kWidth * i) = (odd >> kBits * k) & kField;
      }
    }
}

void add(const uint8_t* payloads, int64_t num_payloads, int64_t granules, int bits, int sum_digits, uint32_t* words) {
  const auto base = static_cast<uint32_t>(num_payloads * ((1 << bits) - 2) + 1);
  with_bits(bits, [&](auto constant) {
    constexpr int kBits = decltype(constant)::value;
    constexpr bool kPairs = 32 % kBits == 0;
    const int64_t granule_bytes = field_granule_bytes(kBits), payload_bytes = granules * granule_bytes;
    const bool few = kPairs && num_payloads <= (1 << kBits) + 1;  // (2^b + 1) (2^b - 1) = 2^2b - 1
    add_payloads<uint32_t>(
        granules, field_rows(kBits), base, sum_digits,
        [&](int64_t first, int64_t n, uint32_t* sums) {
          const uint8_t* from = payloads + first * granule_bytes;
          if constexpr (kPairs)
            if (few) return add_in_pairs<kBits>(from, num_payloads, payload_bytes, n, sums);
          add_fields<kBits>(from, num_payloads, payload_bytes, n, sums);
        },
        words);
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
    const int count = static_cast<int>(least<int64_t>(kRows, num_rows - first));
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

void decode_own(const uint8_t* payloads, int64_t num_payloads, int64_t payload_bytes, int bits, const Segment* segments,
                int64_t num_segments, const float* steps, int64_t num_steps, float* x) {
  with_bits(bits, [&](auto constant) {
    for (int64_t i = 0; i < num_segments; ++i)
      decode_segment<constant>(payloads, num_payloads, payload_bytes, segments[i], steps, num_steps, x);
  });
}

}  // namespace

extern const QsgdKernels qsgd{scales, encode, add, decode_words, decode_own};

}  // namespace tw::TW_ISA
