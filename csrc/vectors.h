// The compiler's own vector types, as wide as the instruction set, and the arithmetic that families share.
// Compiled once per instruction set (TW_ISA names the namespace); no intrinsics: every build computes the same bits.
#pragma once
#include <cstdint>
#include <cstring>
#include <limits>

#include "lane.h"

namespace tw::TW_ISA {
namespace {

constexpr int kLanes = 16;  // accumulators of sums in float64; part of the definition of their bits

#if defined(__AVX512F__)
constexpr int kWidth = 16;
#elif defined(__AVX2__)
constexpr int kWidth = 8;
#else
constexpr int kWidth = 4;
#endif
constexpr int kHalf = kWidth / 2;
constexpr int kVectors = kRow / kWidth;  // in a row
typedef float Float __attribute__((vector_size(4 * kWidth)));
typedef float FloatAt __attribute__((vector_size(4 * kWidth), aligned(4)));
typedef int32_t Int __attribute__((vector_size(4 * kWidth)));
typedef uint32_t Word __attribute__((vector_size(4 * kWidth)));
typedef uint8_t BytesAt __attribute__((vector_size(kWidth), aligned(1)));
typedef float HalfAt __attribute__((vector_size(4 * kHalf), aligned(4)));
typedef int32_t HalfInt __attribute__((vector_size(4 * kHalf)));
typedef double Double __attribute__((vector_size(8 * kHalf)));

inline uint32_t bits_of(float x) {
  uint32_t b;
  std::memcpy(&b, &x, 4);
  return b;
}

inline float float_of(uint32_t b) {
  float x;
  std::memcpy(&x, &b, 4);
  return x;
}

inline Float splat(float x) { return x - Float{}; }  // x - 0 is x, also for -0

// Folds the accumulators of a sum in halves; the first one then holds the sum.
inline double fold(double* lanes) {
  for (int half = kLanes / 2; half > 0; half /= 2)
    for (int j = 0; j < half; ++j) lanes[j] += lanes[j + half];
  return lanes[0];
}

// The Bernoulli threshold unit: u24 * unit < |x| with u24 in [0, 2^24). The float below s makes |x| >= s always hit.
inline float unit_of(float scale) {
  if (!(scale > 0.0f)) return std::numeric_limits<float>::infinity();
  return float_of(bits_of(scale) - 1) * 0x1p-24f;
}

inline Word ramp() {
  Word w;
  for (int j = 0; j < kWidth; ++j) w[j] = static_cast<uint32_t>(j);
  return w;
}

// 24 random bits for each counter under a two-word key.
inline Word random24(Word h, uint32_t k0, uint32_t k1) {
  h ^= k0;
  h ^= h >> 16;
  h *= 0x7feb352du;
  h ^= k1;
  h ^= h >> 15;
  h *= 0x846ca68bu;
  h ^= h >> 16;
  return h >> 8;
}

}  // namespace
}  // namespace tw::TW_ISA
