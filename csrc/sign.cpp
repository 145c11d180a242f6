// Sign kernels, compiled once per instruction set (TW_ISA names the namespace).
#include "sign.h"

#include "fields.h"
#include "sums.h"

namespace tw::TW_ISA {
namespace {

constexpr int kRows = field_rows(1);  // of a granule

// What is not finite becomes one NaN, so that sums of it have the same bits in any order of the operands.
float value_of(double sum, int64_t count) {
  if (count == 0) return 0.0f;
  const float mean = static_cast<float>(sum / static_cast<double>(count));
  return __builtin_isfinite(mean) ? mean : float_of(0x7fc00000u);
}

// Sums of the elements >= 0 and of the others (NaN among them), as sums.h defines them.
class BlockSums {
 public:
  // Takes a row; its bits, one in every word.
  void add_row(const float* x, Word* bits) {
    if (++rows_ > kSumChunk / kRow) next_chunk();
    for (int i = 0; i < kVectors; ++i) {
      const Int up = load(x + kWidth * i) >= Float{};  // -1 or 0
      bits[i] = (Word)(up & 1);
      num_other_[i] += up + 1;
    }
    for (int part = 0; part < kRow / kHalf; ++part) {
      const Double d = doubles(x + kHalf * part);
      up_[part % kLaneVectors] += d >= Double{} ? d : Double{};
      other_[part % kLaneVectors] += d >= Double{} ? Double{} : d;
    }
  }

  // The values that stand for both kinds of its `count` elements.
  void finish(int64_t count, bool scaled, float* low, float* high) {
    next_chunk();
    const double up = all_up_.value(), other = all_other_.value();
    int64_t num_other = 0;
    for (int j = 0; j < kRow; ++j) num_other += num_other_[j / kWidth][j % kWidth];
    if (scaled) {
      *high = value_of(up - other, count);
      *low = __builtin_isnan(*high) ? *high : -*high;
    } else {
      *high = value_of(up, count - num_other);
      *low = value_of(other, num_other);
    }
  }

 private:
  void next_chunk() {
    all_up_.add(fold(up_));
    all_other_.add(fold(other_));
    for (int part = 0; part < kLaneVectors; ++part) up_[part] = other_[part] = Double{};
    rows_ = 1;
  }

  Double up_[kLaneVectors] = {}, other_[kLaneVectors] = {};
  Int num_other_[kVectors] = {};
  Total all_up_, all_other_;
  int64_t rows_ = 0;  // of this chunk
};

int64_t num_rows(const Segment& s) { return (s.numel + kRow - 1) / kRow; }

int64_t first_byte(const Segment& s) { return s.row / kRows * field_granule_bytes(1); }

void encode_segment(const float* x, const Segment& s, bool scaled, uint8_t* out, float* low, float* high) {
  alignas(64) float spare[kRow];
  FieldWriter<1> writer(out + first_byte(s));
  const int64_t block = s.block == 0 ? most<int64_t>(num_rows(s), 1) : s.block / kRow;  // in rows
  int64_t row = 0;
  for (int64_t b = 0; b < num_blocks(s); ++b) {
    BlockSums sums;
    const int64_t end = least(num_rows(s), (b + 1) * block);
    for (; row < end; ++row) {
      Word bits[kVectors];
      sums.add_row(row_of(x, s, row, spare), bits);
      writer.push(bits);
    }
    const int64_t count = least(s.numel, end * kRow) - b * block * kRow;
    sums.finish(count, scaled, low + s.scale + b, high + s.scale + b);
  }
  Word padding[kVectors];
  for (int i = 0; i < kVectors; ++i) padding[i] = Word{} + 1u;
  for (; row % kRows != 0; ++row) writer.push(padding);
}

void encode(const float* x, const Segment* segments, int64_t num_segments, bool scaled, uint8_t* payload, float* low,
            float* high) {
  for (int64_t i = 0; i < num_segments; ++i) encode_segment(x, segments[i], scaled, payload, low, high);
}

// x = the sum over payloads of the value of each element's bit, in the order of the payloads, granule by granule.
void decode_segment(const uint8_t* payloads, int64_t num_payloads, int64_t payload_bytes, const Segment& s,
                    const float* low, const float* high, int64_t num_values, float* x) {
  const uint8_t* in = payloads + first_byte(s);
  ScaleCursor scale;
  for (int64_t first = 0; first < num_rows(s); first += kRows, in += field_granule_bytes(1)) {
    const int count = static_cast<int>(least<int64_t>(kRows, num_rows(s) - first));
    int64_t index[kRows];
    for (int k = 0; k < count; ++k) index[k] = scale.at(s, (first + k) * kRow);
    for (int64_t p = 0; p < num_payloads; ++p) {
      FieldReader<1> reader(in + p * payload_bytes);
      for (int k = 0; k < count; ++k) {
        Word bits[kVectors];
        reader.pop(bits);
        const Float down = splat(low[p * num_values + index[k]]), up = splat(high[p * num_values + index[k]]);
        Float values[kVectors];
        for (int i = 0; i < kVectors; ++i) values[i] = (Int)bits[i] == 1 ? up : down;
        put_row(values, p == 0, s, first + k, x);
      }
    }
  }
}

void decode(const uint8_t* payloads, int64_t num_payloads, int64_t payload_bytes, const Segment* segments,
            int64_t num_segments, const float* low, const float* high, int64_t num_values, float* x) {
  for (int64_t i = 0; i < num_segments; ++i)
    decode_segment(payloads, num_payloads, payload_bytes, segments[i], low, high, num_values, x);
}

}  // namespace

extern const SignKernels sign{encode, decode};

}  // namespace tw::TW_ISA
