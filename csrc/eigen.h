// Sums in float64 in one order, and the eigenvectors of a symmetric matrix made of them.
// The order is defined in src/thinwire/kernels/reference/linalg.py; both must match.
#pragma once
#include <cstdint>

#include "vectors.h"

namespace tw::TW_ISA {
namespace {

constexpr int kMostSweeps = 60;  // for one eigenvalue; two or three are usual

// x . y: the upper half of what is left is added on the lower one until one number is left.
inline double dot(const double* x, const double* y, int64_t count, double* __restrict terms) {
  for (int64_t i = 0; i < count; ++i) terms[i] = x[i] * y[i];
  while (count > 1) {
    const int64_t half = (count + 1) / 2;
    for (int64_t i = 0; i < count - half; ++i) terms[i] += terms[i + half];
    count = half;
  }
  return count == 0 ? 0.0 : terms[0];
}

// y -= by x
inline void take_off(const double* __restrict x, double by, int64_t count, double* __restrict y) {
  for (int64_t i = 0; i < count; ++i) y[i] -= by * x[i];
}

// y = sum over i of x[i] rows[i], i ascending
inline void combine(const double* rows, int64_t row, const double* x, int64_t count, int64_t width,
                    double* __restrict y) {
  for (int64_t j = 0; j < width; ++j) y[j] = 0.0;
  for (int64_t i = 0; i < count; ++i) {
    const double* __restrict from = rows + i * row;
    const double by = x[i];
    for (int64_t j = 0; j < width; ++j) y[j] += by * from[j];
  }
}

// A symmetric matrix (n x n) to Q T Q^T, T tridiagonal: Householder's reflections. a becomes Q^T.
class Tridiagonal {
 public:
  Tridiagonal(double* a, int64_t n, double* diagonal, double* beside, double* room)
      : a_(a), n_(n), d_(diagonal), e_(beside), v_(room), w_(room + n), terms_(room + 2 * n), factor_(room + 3 * n) {}

  void run() {
    for (int64_t k = 0; k + 2 < n_; ++k) reflect(k);
    for (int64_t k = 0; k < n_; ++k) d_[k] = a_[k * n_ + k];
    for (int64_t k = 0; k + 1 < n_; ++k)
      if (k + 2 >= n_) e_[k] = a_[(k + 1) * n_ + k];
    if (n_ > 0) e_[n_ - 1] = 0.0;
    collect();
  }

 private:
  // Makes column k zero below the place under the diagonal; its vector is kept in row k, right of the diagonal.
  void reflect(int64_t k) {
    const int64_t m = n_ - k - 1;
    double* const row = a_ + k * n_ + k + 1;
    const double first = row[0], length = __builtin_sqrt(dot(row, row, m, terms_));
    factor_[k] = 0.0;
    e_[k] = first;
    if (dot(row + 1, row + 1, m - 1, terms_) == 0.0) return;
    e_[k] = first > 0.0 ? -length : length;
    row[0] = first - e_[k];
    for (int64_t i = 0; i < m; ++i) v_[i] = row[i];
    const double by = 2.0 / dot(v_, v_, m, terms_);
    factor_[k] = by;
    combine(a_ + (k + 1) * n_ + k + 1, n_, v_, m, m, w_);
    for (int64_t i = 0; i < m; ++i) w_[i] *= by;
    const double share = dot(w_, v_, m, terms_) * by * 0.5;
    take_off(v_, share, m, w_);
    for (int64_t i = 0; i < m; ++i) {
      double* __restrict to = a_ + (k + 1 + i) * n_ + k + 1;
      const double vi = v_[i], wi = w_[i];
      for (int64_t j = 0; j < m; ++j) to[j] -= vi * w_[j] + wi * v_[j];
    }
  }

  // Q^T = H_(n-3) ... H_0, the last reflection first: rows and columns below k are done when k is.
  void collect() {
    for (int64_t k = n_ - 1; k >= 0; --k) {
      const int64_t m = n_ - k - 1;
      double* const below = a_ + (k + 1) * n_ + k + 1;
      if (k + 2 < n_ && factor_[k] != 0.0) {
        for (int64_t i = 0; i < m; ++i) v_[i] = a_[k * n_ + k + 1 + i];
        for (int64_t i = 0; i < m; ++i) {  // Q^T is multiplied from the right: row by row
          const double share = dot(below + i * n_, v_, m, terms_) * factor_[k];
          take_off(v_, share, m, below + i * n_);
        }
      }
      for (int64_t i = k; i < n_; ++i) a_[k * n_ + i] = a_[i * n_ + k] = i == k ? 1.0 : 0.0;
    }
  }

  double* a_;
  int64_t n_;
  double *d_, *e_, *v_, *w_, *terms_, *factor_;
};

// Turns rows x and y by the angle of (c, s).
inline void rotate(double* __restrict x, double* __restrict y, double c, double s, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const double low = x[i], high = y[i];
    y[i] = s * low + c * high;
    x[i] = c * low - s * high;
  }
}

// One sweep of the QL method with implicit shifts over the numbers first..last; the rows of z turn with it.
inline void sweep(double* d, double* e, double* z, int64_t n, int64_t first, int64_t last) {
  double g = (d[first + 1] - d[first]) / (2.0 * e[first]), r = __builtin_sqrt(g * g + 1.0);
  g = d[last] - d[first] + e[first] / (g + (g < 0.0 ? -r : r));
  double s = 1.0, c = 1.0, p = 0.0;
  for (int64_t i = last - 1; i >= first; --i) {
    const double f = s * e[i], b = c * e[i];
    r = __builtin_sqrt(f * f + g * g);
    e[i + 1] = r;
    if (r == 0.0) {
      d[i + 1] -= p;
      e[last] = 0.0;
      return;
    }
    s = f / r;
    c = g / r;
    g = d[i + 1] - p;
    r = (d[i] - g) * s + 2.0 * c * b;
    p = s * r;
    d[i + 1] = g + p;
    g = c * r - b;
    rotate(z + i * n, z + (i + 1) * n, c, s, n);
  }
  d[first] -= p;
  e[first] = g;
  e[last] = 0.0;
}

// a (n x n, symmetric) becomes its eigenvectors, as rows, not sorted; what is not finite gives NaN. room: 5 n.
inline void eigen(double* a, int64_t n, double* values, double* room) {
  for (int64_t i = 0; i < n * n; ++i)
    if (!__builtin_isfinite(a[i])) {
      for (int64_t j = 0; j < n * n; ++j) a[j] = __builtin_nan("");
      for (int64_t j = 0; j < n; ++j) values[j] = __builtin_nan("");
      return;
    }
  double* const beside = room;
  Tridiagonal(a, n, values, beside, room + n).run();
  for (int64_t first = 0; first < n; ++first)
    for (int sweeps = 0; sweeps < kMostSweeps; ++sweeps) {
      int64_t last = first;
      while (last + 1 < n && !(__builtin_fabs(beside[last]) <=
                               0x1p-52 * (__builtin_fabs(values[last]) + __builtin_fabs(values[last + 1]))))
        ++last;
      if (last == first) break;
      sweep(values, beside, a, n, first, last);
    }
}

}  // namespace
}  // namespace tw::TW_ISA
