// Range float kernels, compiled once per instruction set (TW_ISA names the namespace).
#include "rangefloat.h"

#include "fields.h"
#include "grid.h"
#include "sums.h"

namespace tw::TW_ISA {
namespace {

constexpr int64_t kSample = 4096;
constexpr int kChunkRows = 32;  // whole granules of any number of bits
constexpr int64_t kChunk = kRow * kChunkRows;
constexpr int64_t kCached = 1 << 20;  // results of more numbers are not found in a cache when they are read

// Calls f<bits>: the number of bits is a constant in all loops.
template <typename F>
void with_bits(int bits, F f) {
  switch (bits) {
    case 4: return f(Constant<4>{});
    case 5: return f(Constant<5>{});
    case 6: return f(Constant<6>{});
    case 7: return f(Constant<7>{});
    case 8: return f(Constant<8>{});
    case 9: return f(Constant<9>{});
    case 10: return f(Constant<10>{});
    case 11: return f(Constant<11>{});
    case 12: return f(Constant<12>{});
    case 13: return f(Constant<13>{});
    case 14: return f(Constant<14>{});
    case 15: return f(Constant<15>{});
    default: return f(Constant<16>{});
  }
}

// sum (x - q)^2, one chunk as sums.h defines it; n is a multiple of 16.
static_assert(kSample <= kSumChunk, "the numbers of a sample are one chunk");
double squared_distance(const float* x, const float* q, int64_t n) {
  double lanes[kLanes] = {};
  for (int64_t i = 0; i < n; i += kLanes)
    for (int j = 0; j < kLanes; ++j) {
      const double d = static_cast<double>(x[i + j]) - static_cast<double>(q[i + j]);
      lanes[j] += d * d;
    }
  return fold(lanes);
}

void measure_span(const float* x, int64_t n, int bits, int first, int count, int32_t largest, int32_t* words) {
  const int32_t own = largest != 0 ? largest : static_cast<int32_t>(max_bits(x, n));
  if (largest == 0) *words++ = own;
  if (count == 0) return;
  alignas(64) float sample[kSample] = {}, rounded[kSample] = {};  // magnitudes
  const int64_t stride = (n + kSample - 1) / kSample | 1;
  int64_t size = 0;
  for (int64_t i = 0; i < n; i += stride) sample[size++] = float_of(bits_of(x[i]) & 0x7fffffffu);
  const bool usable = most(own, static_cast<int32_t>(max_bits(sample, size))) < kInf;
  const int64_t padded = (size + kLanes - 1) / kLanes * kLanes;
  const double energy = squared_distance(sample, rounded, padded);
  for (int i = 0; i < count; ++i) {
    words[i] = 0;
    if (!usable || energy == 0.0) continue;
    const Grid grid({own, first + i}, bits);
    for (int64_t j = 0; j < padded; ++j) {
      const auto magnitude = static_cast<int32_t>(bits_of(sample[j]));
      const int32_t nearest = magnitude < grid.threshold ? 0 : grid.place(magnitude) << grid.shift;
      rounded[j] = float_of(static_cast<uint32_t>(nearest));
    }
    const double error = squared_distance(sample, rounded, padded) / energy;
    words[i] = static_cast<int32_t>(bits_of(static_cast<float>(error)));
  }
}

void measure(const float* x, const Span* spans, int64_t num_spans, int bits, int first, int count, int32_t largest,
             int32_t* words) {
  for (int64_t i = 0; i < num_spans; ++i, words += count + (largest == 0))
    measure_span(x + spans[i].offset, spans[i].numel, bits, first, count, largest, words);
}

// Any number of floats to codes, the last of them by way of a spare vector.
template <int kBits>
void encode_piece(const float* x, int64_t n, const Grid& grid, uint32_t* codes, Lost* lost) {
  Rounding<kBits> rounding(grid);
  int64_t j = 0;
  for (; j + kWidth <= n; j += kWidth)
    *reinterpret_cast<WordAt*>(codes + j) = rounding.code(*reinterpret_cast<const FloatAt*>(x + j));
  if (j < n) {
    float spare[kWidth] = {};
    std::memcpy(spare, x + j, static_cast<size_t>(n - j) * 4);
    const Word last = rounding.code(*reinterpret_cast<const FloatAt*>(spare));
    std::memcpy(codes + j, &last, static_cast<size_t>(n - j) * 4);
  }
  rounding.count(lost);
}

// Any number of codes to floats in x, or added to it. True if one of them says "not finite".
template <int kBits>
bool decode_piece(const uint32_t* codes, int64_t n, const Grid& grid, float factor, bool add, float* x) {
  Values<kBits> values(grid, factor);
  int64_t j = 0;
  for (; j + kWidth <= n; j += kWidth) {
    FloatAt& target = *reinterpret_cast<FloatAt*>(x + j);
    const Float value = values.value(*reinterpret_cast<const WordAt*>(codes + j));
    target = add ? target + value : value;
  }
  if (j < n) {
    uint32_t spare[kWidth] = {};
    std::memcpy(spare, codes + j, static_cast<size_t>(n - j) * 4);
    const Float last = values.value(*reinterpret_cast<const WordAt*>(spare));
    for (int64_t i = 0; j < n; ++i, ++j) x[j] = add ? x[j] + last[i] : last[i];
  }
  return values.not_finite();
}

// A whole chunk of one span, from floats to bytes without a stop.
template <int kBits>
void encode_chunk(const float* x, const Grid& grid, uint8_t* out, Lost* lost) {
  Rounding<kBits> rounding(grid);
  for (int64_t row = 0; row < kChunkRows; row += field_rows(kBits), out += field_granule_bytes(kBits)) {
    FieldWriter<kBits> writer(out);
    for (int k = 0; k < field_rows(kBits); ++k, x += kRow) {
      Word codes[kVectors];
      for (int i = 0; i < kVectors; ++i) codes[i] = rounding.code(*reinterpret_cast<const FloatAt*>(x + kWidth * i));
      writer.push(codes);
    }
  }
  rounding.count(lost);
}

// A whole chunk of one span to `sums`, or added to them. True if a code says "not finite".
template <int kBits, bool kAdd>
bool decode_chunk(const uint8_t* in, const Grid& grid, float factor, float* sums) {
  Values<kBits> values(grid, factor);
  for (int64_t row = 0; row < kChunkRows; row += field_rows(kBits), in += field_granule_bytes(kBits)) {
    FieldReader<kBits> reader(in);
    for (int k = 0; k < field_rows(kBits); ++k, sums += kRow) {
      Word codes[kVectors];
      reader.pop(codes);
      for (int i = 0; i < kVectors; ++i) {
        Float& sum = *reinterpret_cast<Float*>(sums + kWidth * i);
        const Float value = values.value(codes[i]);
        sum = kAdd ? sum + value : value;
      }
    }
  }
  return values.not_finite();
}

// A chunk of sums to x; past the caches if x is too large for them, see RowWriter.
void store_chunk(const float* sums, bool large, float* x) {
  if (!large || !can_stream(x)) {
    std::memcpy(x, sums, 4 * kChunk);
    return;
  }
  for (int64_t j = 0; j < kChunk; j += kWidth) stream(x + j, *reinterpret_cast<const Float*>(sums + j));
}

// Walks the spans of a lane as one stream of numbers, a chunk at a time.
class Walk {
 public:
  Walk(const Span* spans, const Fit* fits, int64_t num_spans, int bits)
      : spans_(spans), fits_(fits), num_spans_(num_spans), bits_(bits) {}

  // From here on with these fits.
  void take(const Fit* fits) { fits_ = fits; }

  // Calls f(span, offset in x, elements, place in the chunk, grid) for each piece of the next chunk; its elements.
  template <typename F>
  int64_t chunk(F f) {
    int64_t filled = 0;
    while (filled < kChunk && index_ < num_spans_) {
      const int64_t count = least(kChunk - filled, spans_[index_].numel - done_);
      f(index_, spans_[index_].offset + done_, count, filled, Grid(fits_[index_], bits_));
      filled += count;
      done_ += count;
      if (done_ == spans_[index_].numel) ++index_, done_ = 0;
    }
    return filled;
  }

 private:
  const Span* spans_;
  const Fit* fits_;
  int64_t num_spans_;
  int bits_;
  int64_t index_ = 0, done_ = 0;
};

template <int kBits>
void pack_rows(const uint32_t* codes, int64_t rows, uint8_t* out) {
  FieldWriter<kBits> writer(out);
  for (int64_t k = 0; k < rows; ++k) {
    Word row[kVectors];
    std::memcpy(row, codes + k * kRow, sizeof row);
    writer.push(row);
  }
  writer.flush();
}

template <int kBits>
void unpack_rows(const uint8_t* in, int64_t rows, uint32_t* codes) {
  FieldReader<kBits> reader(in);
  for (int64_t k = 0; k < rows; ++k) {
    Word row[kVectors];
    reader.pop(row);
    std::memcpy(codes + k * kRow, row, sizeof row);
  }
}

int64_t rows_of(int64_t numel) { return (numel + kRow - 1) / kRow; }

void encode(const float* x, const Span* spans, const Fit* fits, int64_t num_spans, int bits, uint8_t* payload,
            Lost* lost) {
  fill(lost, num_spans, Lost{0, 0});
  with_bits(bits, [&](auto constant) {
    alignas(64) uint32_t codes[kChunk];
    Walk walk(spans, fits, num_spans, bits);
    while (true) {
      bool whole = false;
      const int64_t filled = walk.chunk([&](int64_t i, int64_t offset, int64_t n, int64_t at, const Grid& grid) {
        whole = n == kChunk;
        if (whole) return encode_chunk<constant>(x + offset, grid, payload, lost + i);
        encode_piece<constant>(x + offset, n, grid, codes + at, lost + i);
      });
      if (filled == 0) return;
      if (!whole) {
        fill(codes + filled, rows_of(filled) * kRow - filled, 0u);
        pack_rows<constant>(codes, rows_of(filled), payload);
      }
      payload += 4 * kRow * constant;
    }
  });
}

// Payload by payload within a chunk: its sums stay in the nearest cache.
void decode(const uint8_t* payloads, int64_t num_payloads, int64_t payload_bytes, const Span* spans, const Fit* fits,
            int64_t num_spans, int bits, float factor, float* x) {
  int64_t numel = 0;
  for (int64_t i = 0; i < num_spans; ++i) numel += spans[i].numel;
  Buffer<uint8_t> bad;  // for every span: a code said "not finite"
  bad.reserve(num_spans);
  fill<uint8_t>(bad.data(), num_spans, 0);
  with_bits(bits, [&](auto constant) {
    alignas(64) uint32_t codes[kChunk];
    alignas(64) float sums[kChunk];
    Walk walk(spans, fits, num_spans, bits);
    for (int64_t done = 0; done < numel; done += kChunk, payloads += 4 * kRow * constant) {
      const Walk here = walk;
      for (int64_t p = 0; p < num_payloads; ++p) {
        const uint8_t* in = payloads + p * payload_bytes;
        walk = here;  // every payload has the same pieces, and fits of its own
        walk.take(fits + p * num_spans);
        walk.chunk([&](int64_t i, int64_t offset, int64_t n, int64_t at, const Grid& grid) {
          bool not_finite;
          if (n == kChunk) {
            not_finite = p == 0 ? decode_chunk<constant, false>(in, grid, factor, sums)
                                : decode_chunk<constant, true>(in, grid, factor, sums);
            if (p == num_payloads - 1) store_chunk(sums, numel > kCached, x + offset);
          } else {
            if (at == 0) unpack_rows<constant>(in, rows_of(least(kChunk, numel - done)), codes);
            not_finite = decode_piece<constant>(codes + at, n, grid, factor, p > 0, x + offset);
          }
          bad[i] |= not_finite;
        });
      }
    }
  });
  end_of_stream();
  for (int64_t i = 0; i < num_spans; ++i)
    if (bad[i]) fill(x + spans[i].offset, spans[i].numel, float_of(0x7fc00000u));
}

}  // namespace

extern const RangefloatKernels rangefloat{measure, encode, decode};

}  // namespace tw::TW_ISA
