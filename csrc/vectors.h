// The compiler's own vector types, as wide as the instruction set; intrinsics for the few things that compilers do
// badly with them. Compiled once per instruction set (TW_ISA names the namespace); every build computes the same bits.
#pragma once
#if defined(__SSE2__)
#include <immintrin.h>
#endif

#include <cstdint>
#include <cstring>

#include "basics.h"
#include "lane.h"

namespace tw::TW_ISA {
namespace {

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
typedef uint32_t WordAt __attribute__((vector_size(4 * kWidth), aligned(1)));
typedef uint64_t Wide __attribute__((vector_size(4 * kWidth)));
typedef uint8_t BytesAt __attribute__((vector_size(kWidth), aligned(1)));
typedef float HalfAt __attribute__((vector_size(4 * kHalf), aligned(4)));
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

inline Float load(const float* x) { return *reinterpret_cast<const FloatAt*>(x); }

// a where a < b, else b: b too where one of them is NaN.
inline Float lesser(Float a, Float b) {
#if defined(__AVX2__) && !defined(__AVX512F__)
  return (Float)_mm256_min_ps((__m256)a, (__m256)b);
#else
  return a < b ? a : b;
#endif
}

// n, or -n where x < 0. n must be 0 where x is +0.
inline Int turned(Int n, Int x) {
#if defined(__AVX2__) && !defined(__AVX512F__)
  return (Int)_mm256_sign_epi32((__m256i)n, (__m256i)x);
#else
  const Int sign = x >> 31;
  return (n ^ sign) - sign;
#endif
}

// Half a vector of floats as float64.
inline Double doubles(const float* x) {
#if defined(__AVX512F__)
  return (Double)_mm512_maskz_cvtps_pd(0xff, _mm256_loadu_ps(x));
#elif defined(__AVX2__)
  return (Double)_mm256_cvtps_pd(_mm_loadu_ps(x));
#else
  return __builtin_convertvector(*reinterpret_cast<const HalfAt*>(x), Double);
#endif
}

// sum + d * d. The square of a float32 is exact in float64, so that fusing changes no bit.
inline Double add_square(Double sum, Double d) {
#if defined(__AVX512F__) && defined(__FMA__)
  return (Double)_mm512_fmadd_pd((__m512d)d, (__m512d)d, (__m512d)sum);
#elif defined(__AVX2__) && defined(__FMA__)
  return (Double)_mm256_fmadd_pd((__m256d)d, (__m256d)d, (__m256d)sum);
#else
  return sum + d * d;
#endif
}

// The 64-bit products of the low halves of 64-bit numbers; what is in the high halves does not matter.
inline Wide times_low(Wide a, Wide b) {
#if defined(__AVX512F__)
  return (Wide)_mm512_maskz_mul_epu32(0xff, (__m512i)a, (__m512i)b);
#elif defined(__AVX2__)
  return (Wide)_mm256_mul_epu32((__m256i)a, (__m256i)b);
#elif defined(__SSE2__)
  return (Wide)_mm_mul_epu32((__m128i)a, (__m128i)b);
#else
  return (a & 0xffffffffu) * (b & 0xffffffffu);
#endif
}

// The high halves of `even` and of `odd`, in turn (little-endian).
inline Word high_halves(Wide even, Wide odd) {
#if defined(__AVX2__) && !defined(__AVX512F__)
  return (Word)_mm256_blend_epi32(_mm256_srli_epi64((__m256i)even, 32), (__m256i)odd, 0xaa);
#else
  return (Word)((even >> 32) | (odd & 0xffffffff00000000u));
#endif
}

// As many numbers of a narrower type as a vector has.
inline Word widened(const uint8_t* from) {
#if defined(__AVX512F__)
  return (Word)_mm512_maskz_cvtepu8_epi32(0xffff, _mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
#elif defined(__AVX2__)
  return (Word)_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)));
#elif defined(__SSE2__)
  int four;
  std::memcpy(&four, from, 4);
  const __m128i zero = _mm_setzero_si128();
  return (Word)_mm_unpacklo_epi16(_mm_unpacklo_epi8(_mm_cvtsi32_si128(four), zero), zero);
#else
  return Word{from[0], from[1], from[2], from[3]};
#endif
}
inline Int widened(const int8_t* from) {
#if defined(__AVX512F__)
  return (Int)_mm512_maskz_cvtepi8_epi32(0xffff, _mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
#elif defined(__AVX2__)
  return (Int)_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)));
#elif defined(__SSE2__)
  int four;
  std::memcpy(&four, from, 4);
  const __m128i pairs = _mm_unpacklo_epi8(_mm_cvtsi32_si128(four), _mm_cvtsi32_si128(four));
  return (Int)_mm_srai_epi32(_mm_unpacklo_epi16(pairs, pairs), 24);
#else
  return Int{from[0], from[1], from[2], from[3]};
#endif
}
inline Word widened(const uint16_t* from) {
  Word w;
  for (int j = 0; j < kWidth; ++j) w[j] = from[j];
  return w;
}
inline Word widened(const uint32_t* from) { return *reinterpret_cast<const WordAt*>(from); }

// Writes past the caches; `out` must be aligned.
inline void stream(float* out, Float value) {
#if defined(__AVX512F__)
  _mm512_stream_ps(out, (__m512)value);
#elif defined(__AVX2__)
  _mm256_stream_ps(out, (__m256)value);
#elif defined(__SSE2__)
  _mm_stream_ps(out, (__m128)value);
#else
  *reinterpret_cast<Float*>(out) = value;
#endif
}

inline bool can_stream(const float* out) { return reinterpret_cast<uintptr_t>(out) % (4 * kWidth) == 0; }

// After the last streamed row: other threads must see the rows before whatever this thread writes next.
inline void end_of_stream() {
#if defined(__SSE2__)
  _mm_sfence();
#endif
}

inline Word ramp() {
  Word w;
  for (int j = 0; j < kWidth; ++j) w[j] = static_cast<uint32_t>(j);
  return w;
}

}  // namespace
}  // namespace tw::TW_ISA
