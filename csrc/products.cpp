// Products in a fixed order of additions, compiled once per instruction set (TW_ISA names the namespace).
#include "products.h"

#include "eigen.h"
#include "vectors.h"

namespace tw::TW_ISA {
namespace {

constexpr int64_t kPair = 2 * kWidth;
constexpr int64_t kFewRows = 64;  // a product of fewer rows does not pay for packing all of b
constexpr int64_t kInPlace = 16;  // rows of b that are read where they lie, at once
constexpr int64_t kCopied = 64;   // rows of b that are copied strip by strip, at once

// What is no number becomes one NaN: its bits would depend on the order of the operands.
inline Float one_nan(Float x) { return x == x ? x : splat(float_of(0x7fc00000u)); }

inline void store(float* p, Float x) { *reinterpret_cast<FloatAt*>(p) = x; }

// c = from + a b for kRows rows and kCount vectors of columns, k ascending. from_row is 0 if all rows begin alike.
template <int kRows, int kCount>
void tile(const float* a, int64_t a_row, int64_t a_step, const float* b, int64_t b_row, int64_t depth,
          const float* from, int64_t from_row, float* c, int64_t c_row) {
  Float sums[kRows][kCount];
  for (int r = 0; r < kRows; ++r)
    for (int v = 0; v < kCount; ++v) sums[r][v] = load(from + r * from_row + v * kWidth);
  for (int64_t k = 0; k < depth; ++k) {
    Float row[kCount];
    for (int v = 0; v < kCount; ++v) row[v] = load(b + k * b_row + v * kWidth);
    for (int r = 0; r < kRows; ++r) {
      const Float factor = splat(a[r * a_row + k * a_step]);
      for (int v = 0; v < kCount; ++v) sums[r][v] += factor * row[v];
    }
  }
  for (int r = 0; r < kRows; ++r)
    for (int v = 0; v < kCount; ++v) store(c + r * c_row + v * kWidth, one_nan(sums[r][v]));
}

using Tile = void (*)(const float*, int64_t, int64_t, const float*, int64_t, int64_t, const float*, int64_t, float*,
                      int64_t);

// Columns of one strip, wide or narrow, and the tiles of 1, 2, ... rows for it.
constexpr Tile kWide[] = {tile<1, 2>, tile<2, 2>, tile<3, 2>, tile<4, 2>};
constexpr Tile kNarrow[] = {tile<1, 1>, tile<2, 1>, tile<3, 1>, tile<4, 1>,
                            tile<5, 1>, tile<6, 1>, tile<7, 1>, tile<8, 1>};

struct Strip {
  int64_t first, count, width;  // columns, how many of them are there, and the width of its tile
  const Tile* tiles;
  int64_t most_rows;
};

Strip strip_at(int64_t first, int64_t columns) {
  const int64_t left = columns - first;
  if (left > kWidth) return {first, left < kPair ? left : kPair, kPair, kWide, 4};
  return {first, left, kWidth, kNarrow, 8};
}

// Rows of b, columns of one strip, as the tile reads them; what is missing is 0.
void pack(const Matrix& b, int64_t k, int64_t depth, const Strip& s, float* into) {
  for (int64_t d = 0; d < depth; ++d, into += s.width) {
    const float* row = b.data + (k + d) * b.row + s.first * b.column;
    int64_t n = 0;
    if (b.column == 1)
      for (; n + kWidth <= s.count; n += kWidth) store(into + n, load(row + n));
    for (; n < s.count; ++n) into[n] = row[n * b.column];
    for (; n < s.width; ++n) into[n] = 0.0f;
  }
}

// Some rows of c, one strip, `depth` terms. `start` is null if c holds the sums so far; a and c begin with the rows.
void run_strip(const Matrix& a, const float* b, int64_t b_row, const float* start, int64_t rows, int64_t depth,
               const Strip& s, float* c, int64_t c_row) {
  for (int64_t i = 0; i < rows;) {
    const int64_t count = least(rows - i, s.most_rows);
    const float* from = start != nullptr ? start + s.first : c + i * c_row + s.first;
    const int64_t from_row = start != nullptr ? 0 : c_row;
    float* to = c + i * c_row + s.first;
    if (s.count == s.width) {
      s.tiles[count - 1](a.data + i * a.row, a.row, a.column, b, b_row, depth, from, from_row, to, c_row);
    } else {
      alignas(64) float spare[kBand * kPair] = {};
      for (int64_t r = 0; r < count; ++r)
        for (int64_t n = 0; n < s.count; ++n) spare[r * s.width + n] = from[r * from_row + n];
      s.tiles[count - 1](a.data + i * a.row, a.row, a.column, b, b_row, depth, spare, s.width, spare, s.width);
      for (int64_t r = 0; r < count; ++r)
        for (int64_t n = 0; n < s.count; ++n) to[r * c_row + n] = spare[r * s.width + n];
    }
    i += count;
  }
}

// A band of rows of a, as tiles read it: as it lies, or as a copy if its rows are not contiguous.
Matrix band(const Matrix& a, int64_t row, int64_t k, int64_t rows, int64_t depth, float* into) {
  const float* from = a.data + row * a.row + k * a.column;
  if (a.column == 1) return {from, a.row, 1};
  for (int64_t d = 0; d < depth; ++d)
    for (int64_t r = 0; r < rows; ++r) into[d * kBand + r] = from[r * a.row + d * a.column];
  return {into, 1, kBand};
}

// b is packed once and read for every row.
void product_packed(const Matrix& a, const Matrix& b, const float* start, int64_t rows, int64_t depth, int64_t columns,
                    float* c, int64_t c_row, float* room) {
  const Pack most = Pack::of(depth, columns);
  float* const band_room = room + most.depth * most.columns;
  for (int64_t first = 0; first < columns; first += most.columns) {
    const int64_t end = least(columns, first + most.columns);
    for (int64_t k = 0; k < depth; k += most.depth) {
      const int64_t deep = least(depth - k, most.depth);
      float* into = room;
      for (int64_t n = first; n < end;) {
        const Strip s = strip_at(n, end);
        pack(b, k, deep, s, into);
        into += deep * s.width;
        n += s.width;
      }
      for (int64_t i = 0; i < rows; i += kBand) {
        const int64_t count = least(rows - i, kBand);
        const Matrix part = band(a, i, k, count, deep, band_room);
        const float* packed = room;
        for (int64_t n = first; n < end;) {
          const Strip s = strip_at(n, end);
          run_strip(part, packed, s.width, k == 0 ? start : nullptr, count, deep, s, c + i * c_row, c_row);
          packed += deep * s.width;
          n += s.width;
        }
      }
    }
  }
}

// b is read once, a few rows at a time; the few rows of c stay in the cache. Rows of b that lie a power of two apart
// would push each other out of the cache: for more than a band of rows of c they are copied.
void product_in_place(const Matrix& a, const Matrix& b, const float* start, int64_t rows, int64_t depth,
                      int64_t columns, float* c, int64_t c_row) {
  alignas(64) float spare[kCopied * kPair];
  const int64_t step = rows > kBand ? kCopied : kInPlace;
  for (int64_t k = 0; k < depth; k += step) {
    const int64_t deep = least(depth - k, step);
    const Matrix part{a.data + k * a.column, a.row, a.column};
    for (int64_t n = 0; n < columns;) {
      const Strip s = strip_at(n, columns);
      const bool copied = s.count < s.width || rows > kBand;
      if (copied) pack(b, k, deep, s, spare);
      run_strip(part, copied ? spare : b.data + k * b.row + n, copied ? s.width : b.row, k == 0 ? start : nullptr, rows,
                deep, s, c, c_row);
      n += s.width;
    }
  }
}

void product(const Matrix& a, const Matrix& b, const float* start, int64_t rows, int64_t depth, int64_t columns,
             float* c, int64_t c_row, float* room) {
  for (int64_t n = 0; n < padded(columns); ++n) room[n] = start != nullptr && n < columns ? start[n] : 0.0f;
  if (depth == 0)
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t n = 0; n < columns; ++n) c[i * c_row + n] = room[n];
  else if (rows < kFewRows && b.column == 1)
    product_in_place(a, b, room, rows, depth, columns, c, c_row);
  else
    product_packed(a, b, room, rows, depth, columns, c, c_row, room + padded(columns));
}

double length_of(const double* x, int64_t count, double* terms) { return __builtin_sqrt(dot(x, x, count, terms)); }

// Takes the directions of the columns before it out of column j, twice: once leaves too much of them.
void clean(double* q, int64_t j, int64_t rows, double* terms) {
  double* const mine = q + j * rows;
  for (int round = 0; round < 2; ++round)
    for (int64_t i = 0; i < j; ++i) take_off(q + i * rows, dot(q + i * rows, mine, rows, terms), rows, mine);
}

// Column j where it depends on those before it: the first unit vector that is far enough from all of them.
double complete(double* q, int64_t j, int64_t rows, double* terms) {
  double left = 0;
  for (int64_t unit = 0; unit < rows; ++unit) {
    for (int64_t k = 0; k < rows; ++k) q[j * rows + k] = k == unit ? 1.0 : 0.0;
    clean(q, j, rows, terms);
    left = length_of(q + j * rows, rows, terms);
    if (left * left * static_cast<double>(2 * rows) >= static_cast<double>(rows - j)) break;
  }
  return left;
}

void orthonormal(float* p, int64_t rows, int64_t columns, double* room) {
  double *q = room, *terms = room + columns * rows;
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j) q[j * rows + i] = static_cast<double>(p[i * columns + j]);
  for (int64_t j = 0; j < columns; ++j)
    if (!__builtin_isfinite(dot(q + j * rows, q + j * rows, rows, terms))) {
      for (int64_t i = 0; i < rows * columns; ++i) p[i] = float_of(0x7fc00000u);
      return;
    }
  for (int64_t j = 0; j < columns; ++j) {
    double* mine = q + j * rows;
    const double whole = length_of(mine, rows, terms);
    clean(q, j, rows, terms);
    double left = length_of(mine, rows, terms);
    if (!(left > whole * 0x1p-40)) left = complete(q, j, rows, terms);
    for (int64_t k = 0; k < rows; ++k) mine[k] /= left;
  }
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j) p[i * columns + j] = static_cast<float>(q[j * rows + i]);
}

}  // namespace

extern const ProductsKernels products{product, orthonormal, eigen};

}  // namespace tw::TW_ISA
