// Sums whose bits are defined (wire.md), whatever the instruction set: chunks of 4096 numbers, in each 16
// accumulators in float64, element i into accumulator i mod 16; chunks can be summed in parallel. The sums of chunks
// are summed likewise until one is left. Compiled once per instruction set (TW_ISA names the namespace).
#pragma once
#include "vectors.h"

namespace tw::TW_ISA {
namespace {

constexpr int kLanes = 16;
constexpr int64_t kSumChunk = 4096;
constexpr int kLaneVectors = kLanes / kHalf;

// Folds the accumulators of a sum in halves; the first one then holds the sum.
inline double fold(double* lanes) {
  for (int half = kLanes / 2; half > 0; half /= 2)
    for (int j = 0; j < half; ++j) lanes[j] += lanes[j + half];
  return lanes[0];
}

inline double fold(const Double* lanes) {
  double all[kLanes];
  std::memcpy(all, lanes, sizeof all);
  return fold(all);
}

// The sum of the sums of chunks, which come in order.
class Total {
 public:
  void add(double sum) { add(sum, 0); }

  double value() {
    int level = 0;
    for (; level + 1 < kLevels && levels_[level + 1].count > 0; ++level) add(levels_[level].take(), level + 1);
    return levels_[level].take();
  }

 private:
  static constexpr int kLevels = 5;  // 2^72 numbers: nobody has more

  struct Level {
    double lanes[kLanes];
    int64_t count;

    double take() {
      const double sum = fold(lanes);
      fill(lanes, kLanes, 0.0);
      count = 0;
      return sum;
    }
  };

  // A full level goes up when one more number comes.
  void add(double sum, int level) {
    for (; level < kLevels; ++level) {
      Level& l = levels_[level];
      const bool full = l.count == kSumChunk;
      const double up = full ? l.take() : 0.0;
      l.lanes[l.count++ % kLanes] += sum;
      if (!full) return;
      sum = up;
    }
  }

  Level levels_[kLevels] = {};
};

// Largest |x| as a bit pattern (NaN > Inf > numbers), the sum, and the sum of squares.
struct Moments {
  uint32_t max_bits;
  double sum, sum_sq;
};

// kSum: the sum is wanted too, else it is 0.
template <bool kSum>
inline Moments chunk_moments(const float* x, int64_t n) {
  Double sum[kLaneVectors] = {}, sq[kLaneVectors] = {};
  Int top[kLanes / kWidth] = {};
  const int64_t whole = n / kLanes * kLanes;
  for (int64_t i = 0; i < whole; i += kLanes) {
    for (int part = 0; part < kLanes / kWidth; ++part) {
      const Int magnitude = (Int)load(x + i + kWidth * part) & 0x7fffffff;
      top[part] = magnitude > top[part] ? magnitude : top[part];
    }
    for (int part = 0; part < kLaneVectors; ++part) {
      const Double d = doubles(x + i + kHalf * part);
      if (kSum) sum[part] += d;
      sq[part] = add_square(sq[part], d);
    }
  }
  double s[kLanes], q[kLanes];
  std::memcpy(s, sum, sizeof s);
  std::memcpy(q, sq, sizeof q);
  uint32_t max_bits = 0;
  for (int j = 0; j < kLanes; ++j) max_bits = most(max_bits, static_cast<uint32_t>(top[j / kWidth][j % kWidth]));
  for (int64_t i = whole; i < n; ++i) {
    const double d = x[i];
    if (kSum) s[i - whole] += d;
    q[i - whole] += d * d;
    max_bits = most(max_bits, bits_of(x[i]) & 0x7fffffffu);
  }
  return {max_bits, kSum ? fold(s) : 0.0, fold(q)};
}

template <bool kSum>
inline Moments moments(const float* x, int64_t n) {
  if (n <= kSumChunk) return chunk_moments<kSum>(x, n);
  Total sum, sum_sq;
  uint32_t max_bits = 0;
  for (int64_t first = 0; first < n; first += kSumChunk) {
    const Moments m = chunk_moments<kSum>(x + first, least(kSumChunk, n - first));
    max_bits = most(max_bits, m.max_bits);
    if (kSum) sum.add(m.sum);
    sum_sq.add(m.sum_sq);
  }
  return {max_bits, kSum ? sum.value() : 0.0, sum_sq.value()};
}

// Largest |x| alone.
inline uint32_t max_bits(const float* x, int64_t n) {
  constexpr int kParts = 4;  // more than one, or each maximum would wait for the one before it
  Int top[kParts] = {};
  const int64_t whole = n / (kParts * kWidth) * (kParts * kWidth);
  for (int64_t i = 0; i < whole; i += kParts * kWidth)
    for (int part = 0; part < kParts; ++part) {
      const Int magnitude = (Int)load(x + i + kWidth * part) & 0x7fffffff;
      top[part] = magnitude > top[part] ? magnitude : top[part];
    }
  for (int part = 1; part < kParts; ++part) top[0] = top[part] > top[0] ? top[part] : top[0];
  uint32_t largest = 0;
  for (int j = 0; j < kWidth; ++j) largest = most(largest, static_cast<uint32_t>(top[0][j]));
  for (int64_t i = whole; i < n; ++i) largest = most(largest, bits_of(x[i]) & 0x7fffffffu);
  return largest;
}

}  // namespace
}  // namespace tw::TW_ISA
