// The grid of a range float: the numbers that its codes stand for, and how vectors of floats are rounded to it.
// Compiled once per instruction set.
#pragma once
#include <cstdint>

#include "rangefloat.h"
#include "vectors.h"

namespace tw::TW_ISA {
namespace {

constexpr int32_t kInf = 0x7f800000;
constexpr int32_t kFirstNormal = 0x00800000;
constexpr int32_t kNever = INT32_MAX;

constexpr int32_t positive_codes(int bits) { return (1 << (bits - 1)) - 1; }

// The numbers that codes stand for: code k > 0 is the float with bit pattern (base + k - 1) << shift.
struct Grid {
  int32_t shift, base, half, limit;
  int32_t threshold;  // below it |x| becomes 0
  int32_t ceiling;    // above it |x| is too large
  int32_t bad;        // from here on |x| is not finite: all numbers, if max|x| is not

  Grid(Fit fit, int bits) : shift(23 - fit.mantissa), bad(fit.largest < kInf ? kInf : 0) {
    half = 1 << (shift - 1);
    const int32_t top = least((least(fit.largest, kInf - 1) + half) >> shift, (kInf - 1) >> shift);
    base = most(top - (positive_codes(bits) - 1), 1 << fit.mantissa);
    limit = top << shift;
    const bool empty = top < base;  // max|x| is 0 or denormal
    threshold = empty ? kInf : most((base << shift) - kFirstNormal, kFirstNormal);
    ceiling = empty ? kNever : limit + half - 1;
    if (bad == 0) threshold = 0, ceiling = kNever;  // nothing to count
  }

  // The place base .. top of the number nearest to |x|; what is below the threshold is up to the caller.
  int32_t place(int32_t magnitude) const { return most((least(magnitude, limit) + half) >> shift, base); }
};

// Rounds floats to codes and counts what does not fit.
template <int kBits>
class Rounding {
 public:
  explicit Rounding(const Grid& grid) : grid_(grid) {}

  Word code(Float x) {
    constexpr int32_t kTop = positive_codes(kBits), kNotFinite = 2 * kTop + 1;
    const Int raw = (Int)x, magnitude = raw & 0x7fffffff;
    const Int limit = Int{} + grid_.limit, base = Int{} + grid_.base;
    const Int nearest = ((magnitude < limit ? magnitude : limit) + grid_.half) >> grid_.shift;
    const Int place = nearest > base ? nearest : base;
    const Int small = magnitude < grid_.threshold;  // a comparison gives -1 or 0
    const Int code = place - (grid_.base - 1) + ((raw >> 31) & kTop);
    saturated_ -= magnitude > grid_.ceiling;
    underflown_ -= small & (magnitude != 0);
    return (Word)(magnitude >= grid_.bad ? Int{} + kNotFinite : code & ~small);
  }

  void count(Lost* lost) const {
    for (int j = 0; j < kWidth; ++j) {
      lost->saturated += saturated_[j];
      lost->underflown += underflown_[j];
    }
  }

 private:
  const Grid grid_;
  Int saturated_ = {}, underflown_ = {};
};

// Codes to the floats they stand for, times a factor.
template <int kBits>
class Values {
 public:
  Values(const Grid& grid, float factor)
      : shift_(grid.shift), factor_(factor), positive_(grid.base - 1),
        // the sign is added with the rest: shifted, it is bit 31
        negative_(grid.base - 1 - positive_codes(kBits) + (1 << (31 - grid.shift))) {}

  Float value(Word code) {
    const Int sum = (Int)code + ((Int)code > positive_codes(kBits) ? Int{} + negative_ : Int{} + positive_);
    largest_ = (Int)code > largest_ ? (Int)code : largest_;
    return (Float)(code == 0 ? Word{} : (Word)sum << shift_) * factor_;
  }

  // True if a code said so.
  bool not_finite() const {
    for (int j = 0; j < kWidth; ++j)
      if (largest_[j] == 2 * positive_codes(kBits) + 1) return true;
    return false;
  }

 private:
  const int32_t shift_;
  const float factor_;
  const int32_t positive_, negative_;
  Int largest_ = {};
};

}  // namespace
}  // namespace tw::TW_ISA
