// The passes of a complex transform (Stockham, decimation in frequency) on slots: a slot is a number of one row
// (float) or the numbers of several rows side by side (Float). Slots 2k and 2k + 1 are real and imaginary part.
//
// A pass of radix r takes groups of n = r m points apart, with s interleaved transforms:
//   y[q + s (r p + k)] = w^(p k) sum_j x[q + s (p + m j)] v^(j k),   w = exp(-2 pi i / n), v = exp(-2 pi i / r)
#pragma once
#include <cstdint>

#include "vectors.h"

namespace tw::TW_ISA {
namespace {

template <typename T>
struct Point {
  T re, im;
};

template <typename T>
inline Point<T> point(const T* slots, int64_t k) {
  return {slots[2 * k], slots[2 * k + 1]};
}

template <typename T>
inline void put(T* slots, int64_t k, Point<T> z) {
  slots[2 * k] = z.re, slots[2 * k + 1] = z.im;
}

template <typename T>
inline Point<T> operator+(Point<T> a, Point<T> b) {
  return {a.re + b.re, a.im + b.im};
}

template <typename T>
inline Point<T> operator-(Point<T> a, Point<T> b) {
  return {a.re - b.re, a.im - b.im};
}

template <typename T>
inline Point<T> times(Point<T> z, float re, float im) {
  return {z.re * re - z.im * im, z.re * im + z.im * re};
}

template <typename T>
inline Point<T> scaled(Point<T> z, float by) {
  return {z.re * by, z.im * by};
}

// -i z
template <typename T>
inline Point<T> down(Point<T> z) {
  return {z.im, -z.re};
}

template <typename T>
inline Point<T> mirrored(Point<T> z) {
  return {z.re, -z.im};
}

template <typename T>
inline void turn(Point<T> (&z)[2]) {
  const Point<T> a = z[0], b = z[1];
  z[0] = a + b;
  z[1] = a - b;
}

template <typename T>
inline void turn(Point<T> (&z)[4]) {
  const Point<T> even = z[0] + z[2], odd = z[0] - z[2], other = z[1] + z[3], turned = down(z[1] - z[3]);
  z[0] = even + other;
  z[1] = odd + turned;
  z[2] = even - other;
  z[3] = odd - turned;
}

template <typename T>
inline void turn(Point<T> (&z)[3]) {
  const Point<T> sum = z[1] + z[2], turned = scaled(down(z[1] - z[2]), 0x1.bb67aep-1f);
  const Point<T> middle = z[0] - scaled(sum, 0.5f);
  z[0] = z[0] + sum;
  z[1] = middle + turned;
  z[2] = middle - turned;
}

template <typename T>
inline void turn(Point<T> (&z)[5]) {
  constexpr float cos1 = 0x1.3c6ef4p-2f, cos2 = -0x1.9e377ap-1f, sin1 = 0x1.e6f0e2p-1f, sin2 = 0x1.2cf23p-1f;
  const Point<T> near = z[1] + z[4], far = z[2] + z[3], dnear = down(z[1] - z[4]), dfar = down(z[2] - z[3]);
  const Point<T> one = (z[0] + scaled(near, cos1)) + scaled(far, cos2);
  const Point<T> two = (z[0] + scaled(near, cos2)) + scaled(far, cos1);
  const Point<T> turned1 = scaled(dnear, sin1) + scaled(dfar, sin2), turned2 = scaled(dnear, sin2) - scaled(dfar, sin1);
  z[0] = (z[0] + near) + far;
  z[1] = one + turned1;
  z[2] = two + turned2;
  z[3] = two - turned2;
  z[4] = one - turned1;
}

template <int kRadix, typename T>
void pass(const T* __restrict x, T* __restrict y, int64_t m, int64_t s, const float* __restrict factors) {
  for (int64_t p = 0; p < m; ++p) {
    const float* w = factors + 2 * (kRadix - 1) * (p - 1);
    for (int64_t q = 0; q < s; ++q) {
      Point<T> z[kRadix];
      for (int j = 0; j < kRadix; ++j) z[j] = point(x, q + s * (p + m * j));
      turn(z);
      put(y, q + s * kRadix * p, z[0]);
      for (int k = 1; k < kRadix; ++k)
        put(y, q + s * (kRadix * p + k), p == 0 ? z[k] : times(z[k], w[2 * k - 2], w[2 * k - 1]));
    }
  }
}

// Two passes in one walk over memory, the same operations: m = n / (kFirst kSecond).
template <int kFirst, int kSecond, typename T>
void pass_twice(const T* __restrict x, T* __restrict y, int64_t m, int64_t s, const float* __restrict first,
                const float* __restrict second) {
  for (int64_t p = 0; p < m; ++p)
    for (int64_t q = 0; q < s; ++q) {
      Point<T> all[kFirst][kSecond];
      for (int j = 0; j < kSecond; ++j) {
        const int64_t group = p + m * j;
        const float* w = first + 2 * (kFirst - 1) * (group - 1);
        Point<T> z[kFirst];
        for (int i = 0; i < kFirst; ++i) z[i] = point(x, q + s * (group + m * kSecond * i));
        turn(z);
        all[0][j] = z[0];
        for (int k = 1; k < kFirst; ++k) all[k][j] = group == 0 ? z[k] : times(z[k], w[2 * k - 2], w[2 * k - 1]);
      }
      const float* w = second + 2 * (kSecond - 1) * (p - 1);
      for (int k = 0; k < kFirst; ++k) {
        T* const to = y + 2 * (q + s * (kFirst * kSecond * p + k));
        turn(all[k]);
        put(to, 0, all[k][0]);
        for (int l = 1; l < kSecond; ++l)
          put(to, s * kFirst * l, p == 0 ? all[k][l] : times(all[k][l], w[2 * l - 2], w[2 * l - 1]));
      }
    }
}

// Runs all passes; the result is in the buffer it returns, x or spare.
template <typename T>
T* run_passes(T* x, T* spare, int64_t points, const int64_t* radices, int64_t num_radices, const float* factors) {
  int64_t n = points, s = 1;
  for (int64_t i = 0; i < num_radices;) {
    const int64_t radix = radices[i], m = n / radix, next = i + 1 < num_radices ? radices[i + 1] : 0;
    const float* const after = factors + 2 * (radix - 1) * (m - 1);
    const bool twice = radix == 4 && (next == 4 || next == 2);
    if (twice && next == 4) pass_twice<4, 4>(x, spare, m / 4, s, factors, after);
    if (twice && next == 2) pass_twice<4, 2>(x, spare, m / 2, s, factors, after);
    if (!twice && radix == 4) pass<4>(x, spare, m, s, factors);
    if (radix == 2) pass<2>(x, spare, m, s, factors);
    if (radix == 3) pass<3>(x, spare, m, s, factors);
    if (radix == 5) pass<5>(x, spare, m, s, factors);
    n = twice ? m / next : m;
    factors = twice ? after + 2 * (next - 1) * (n - 1) : after;
    s *= twice ? radix * next : radix;
    i += twice ? 2 : 1;
    T* const done = spare;
    spare = x;
    x = done;
  }
  return x;
}

}  // namespace
}  // namespace tw::TW_ISA
