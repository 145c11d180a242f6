// Random bits of elements: a hash of an element's index under a two-word key (wire.md), a row of 32 at a time.
// Compiled once per instruction set (TW_ISA names the namespace).
#pragma once
#include "vectors.h"

namespace tw::TW_ISA {
namespace {

// The Bernoulli threshold unit: u24 * unit < |x| with u24 in [0, 2^24). The float below s makes |x| >= s always hit.
inline float unit_of(float scale) {
  if (!(scale > 0.0f)) return __builtin_inff();
  return float_of(bits_of(scale) - 1) * 0x1p-24f;
}

// h = c ^ k0; h ^= h >> 16; h *= kFirst; h ^= k1; h ^= h >> 15; h *= kSecond; h ^= h >> 16; u24 = h >> 8.
//
// In a row c = 32 r + j, j < 32: before the first product only the last five bits of h depend on j. So h is the sum of
// a number of the row and one of 32 numbers that stay the same for 65,536 elements: one product a row, not one each.
class Draws {
 public:
  Draws(uint32_t k0, uint32_t k1) : k0_(k0), k1_(k1) {}

  // Goes to the row whose first element has this counter, a multiple of 32.
  void seek(uint32_t counter) {
    uint32_t h = counter ^ k0_;
    h ^= h >> 16;
    if ((h & 31) != low_) refill(h & 31);
    row_ = (h & ~31u) * kFirst;
  }

  // 24 random bits for each element of vector i of the row.
  Int u24(int i) const {
    Word h = products_[i] + row_;
    h ^= k1_;
    h ^= h >> 15;
    h *= kSecond;
    return (Int)((h >> 8) ^ (h >> 24));
  }

 private:
  static constexpr uint32_t kFirst = 0x7feb352du, kSecond = 0x846ca68bu;

  void refill(uint32_t low) {
    low_ = low;
    for (int i = 0; i < kVectors; ++i) products_[i] = ((ramp() + static_cast<uint32_t>(kWidth * i)) ^ low) * kFirst;
  }

  uint32_t k0_, k1_, low_ = 32, row_ = 0;
  Word products_[kVectors] = {};
};

}  // namespace
}  // namespace tw::TW_ISA
