// Matrix products and what is made of them, in one order of additions: the same bits on every machine, wherever
// the numbers lie and however many threads there are. The order is defined in
// src/thinwire/kernels/reference/linalg.py; both must match.
#pragma once
#include <cstdint>

namespace tw {

// A matrix in memory; strides count elements.
struct Matrix {
  const float* data;
  int64_t row, column;
};

constexpr int64_t kStrip = 32;           // columns are padded to whole strips in the workspace
constexpr int64_t kPackNumel = 1 << 16;  // numbers of b that are packed at once: they stay in the cache
constexpr int64_t kBand = 8;             // rows of a that are worked on at once

constexpr int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
constexpr int64_t padded(int64_t columns) { return (columns + kStrip - 1) / kStrip * kStrip; }

// What of b is packed at once: so many columns, and so many rows.
struct Pack {
  int64_t columns, depth;

  static constexpr Pack of(int64_t depth, int64_t columns) {
    const int64_t wide = kPackNumel / (depth < 1 ? 1 : least(depth, 256)) / kStrip * kStrip;
    const int64_t taken = columns < 1 ? kStrip : least(padded(columns), wide);
    return {taken, least(depth, least(kPackNumel / taken, 2048))};
  }
};

// Floats that `product` needs to work: a first row, and what is packed of b and of a.
constexpr int64_t product_room(int64_t depth, int64_t columns) {
  const Pack pack = Pack::of(depth, columns);
  return padded(columns) + pack.depth * (pack.columns + kBand);
}

struct ProductsKernels {
  // c[i][n] = start[n] + a[i][0] b[0][n] + a[i][1] b[1][n] + ..., one after the other; start may be null: 0.
  void (*product)(const Matrix& a, const Matrix& b, const float* start, int64_t rows, int64_t depth, int64_t columns,
                  float* c, int64_t c_row, float* room);
  // Makes the columns of p (rows x columns, columns <= rows) orthonormal; room: (columns + 1) * rows.
  void (*orthonormal)(float* p, int64_t rows, int64_t columns, double* room);
  // a (n x n, symmetric) becomes its eigenvectors, as rows, not sorted; room: 5 n.
  void (*eigen)(double* a, int64_t n, double* values, double* room);
};

namespace portable { extern const ProductsKernels products; }
namespace avx2 { extern const ProductsKernels products; }
namespace avx512 { extern const ProductsKernels products; }

}  // namespace tw
