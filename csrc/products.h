// Matrix products and what is made of them, in one order of additions: the same bits on every machine, wherever
// the numbers lie and however many threads there are. The order is defined in
// src/thinwire/kernels/reference/products.py; both must match.
#pragma once
#include <cstdint>

namespace tw {

// A matrix in memory; strides count elements.
struct Matrix {
  const float* data;
  int64_t row, column;
};

constexpr int64_t kStrip = 32;          // columns of a product are padded to whole strips in the workspace
constexpr int64_t kPackNumel = 1 << 16;  // numbers of b that are packed at once: they stay in the cache

// Rows of b that are packed at once.
constexpr int64_t packed_depth(int64_t depth, int64_t columns) {
  const int64_t padded = (columns + kStrip - 1) / kStrip * kStrip;
  const int64_t fitting = kPackNumel / (padded > 0 ? padded : 1);
  const int64_t most = fitting < 16 ? 16 : fitting > 2048 ? 2048 : fitting;
  return depth < most ? depth : most;
}

// Floats that `product` needs to work: a first row, and packed rows of b.
constexpr int64_t product_room(int64_t depth, int64_t columns) {
  return (packed_depth(depth, columns) + 1) * ((columns + kStrip - 1) / kStrip * kStrip);
}

struct ProductsKernels {
  // c[i][n] = start[n] + a[i][0] b[0][n] + a[i][1] b[1][n] + ..., one after the other; start may be null: 0.
  void (*product)(const Matrix& a, const Matrix& b, const float* start, int64_t rows, int64_t depth, int64_t columns,
                  float* c, int64_t c_row, float* room);
  // Makes the columns of p (rows x columns, columns <= rows) orthonormal; room: (columns + 1) * rows.
  void (*orthonormal)(float* p, int64_t rows, int64_t columns, double* room);
};

namespace portable { extern const ProductsKernels products; }
namespace avx2 { extern const ProductsKernels products; }
namespace avx512 { extern const ProductsKernels products; }

}  // namespace tw
