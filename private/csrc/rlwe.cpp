// Harvey's lazy butterflies: residues stay below 4 p < 2^64 inside a transform and are reduced once, at its end.
#include "rlwe.h"

#include <algorithm>
#include <vector>

namespace tw::crypt::rlwe {
namespace {

using Wide = unsigned __int128;

constexpr int kLogN = 12;
constexpr uint64_t kPrimes[2] = {0x3ffffffffffe8001, 0x3fffffffffff0001};  // 1 modulo 2 N, the smaller one first
constexpr uint64_t kRoots[2] = {0xb4d9fc032f09ce4, 0x2f0fda7ba70548e7};    // of order 2 N
constexpr size_t kLazyTerms = 15;                                          // products below 2^124 that 128 bits hold

uint64_t high(uint64_t a, uint64_t b) { return static_cast<uint64_t>(static_cast<Wide>(a) * b >> 64); }

// x minus `limit` unless that is negative; without a branch.
uint64_t below(uint64_t x, uint64_t limit) { return x - (limit & -static_cast<uint64_t>(x >= limit)); }

// A factor that many numbers are multiplied with: w and floor(2^64 w / p) (Shoup).
struct Factor {
  uint64_t w, quotient;
};

// Modulo p: x w below 2 p, for every x below 2^64.
uint64_t times(uint64_t x, Factor f, uint64_t p) { return x * f.w - high(x, f.quotient) * p; }

uint64_t power(uint64_t base, uint64_t exponent, uint64_t p) {
  uint64_t result = 1;
  for (; exponent; exponent >>= 1, base = static_cast<uint64_t>(static_cast<Wide>(base) * base % p))
    if (exponent & 1) result = static_cast<uint64_t>(static_cast<Wide>(result) * base % p);
  return result;
}

Factor factor(uint64_t w, uint64_t p) { return {w, static_cast<uint64_t>((static_cast<Wide>(w) << 64) / p)}; }

size_t reversed(size_t i) {
  size_t r = 0;
  for (int b = 0; b < kLogN; ++b) r |= (i >> b & 1) << (kLogN - 1 - b);
  return r;
}

// One prime with its tables: powers of the root in bit-reversed order, and those of its inverse.
struct Prime {
  explicit Prime(int which) : p(kPrimes[which]) {
    const uint64_t root = kRoots[which], inverse = power(root, p - 2, p);
    for (size_t i = 0; i < kN; ++i) {
      forward.push_back(factor(power(root, reversed(i), p), p));
      backward.push_back(factor(power(inverse, reversed(i), p), p));
    }
    by_n = factor(power(kN, p - 2, p), p);
    one = factor(1, p);
    two_64 = factor(static_cast<uint64_t>((static_cast<Wide>(1) << 64) % p), p);
  }

  uint64_t reduce(uint64_t x) const { return below(times(x, one, p), p); }
  uint64_t reduce(Wide x) const {
    const uint64_t sum = times(static_cast<uint64_t>(x >> 64), two_64, p) + times(static_cast<uint64_t>(x), one, p);
    return below(below(sum, 2 * p), p);
  }

  void transform(uint64_t* a) const {
    for (size_t m = 1, t = kN / 2; m < kN; m *= 2, t /= 2)
      for (size_t i = 0; i < m; ++i) {
        const Factor f = forward[m + i];
        uint64_t* x = a + 2 * i * t;
        uint64_t* y = x + t;
        for (size_t j = 0; j < t; ++j) {
          const uint64_t u = below(x[j], 2 * p), v = times(y[j], f, p);
          x[j] = u + v;
          y[j] = u - v + 2 * p;
        }
      }
    for (size_t j = 0; j < kN; ++j) a[j] = below(below(a[j], 2 * p), p);
  }

  void transform_back(uint64_t* a) const {
    for (size_t m = kN / 2, t = 1; m >= 1; m /= 2, t *= 2)
      for (size_t i = 0; i < m; ++i) {
        const Factor f = backward[m + i];
        uint64_t* x = a + 2 * i * t;
        uint64_t* y = x + t;
        for (size_t j = 0; j < t; ++j) {
          const uint64_t u = x[j], v = y[j];
          x[j] = below(u + v, 2 * p);
          y[j] = times(u - v + 2 * p, f, p);
        }
      }
    for (size_t j = 0; j < kN; ++j) a[j] = below(times(a[j], by_n, p), p);
  }

  uint64_t p;
  Factor by_n, one, two_64;
  std::vector<Factor> forward, backward;
};

const Prime& prime(int which) {
  static const Prime primes[2] = {Prime(0), Prime(1)};
  return primes[which];
}

// The signed integer below p0 p1 / 2 with these residues, modulo 2^128.
Wide lift(uint64_t x0, uint64_t x1) {
  static const Factor inverse = factor(power(kPrimes[0], kPrimes[1] - 2, kPrimes[1]), kPrimes[1]);
  constexpr Wide kProduct = static_cast<Wide>(kPrimes[0]) * kPrimes[1];
  const uint64_t p1 = kPrimes[1];
  const uint64_t v = below(times(x1 + p1 - x0, inverse, p1), p1);
  const Wide x = x0 + static_cast<Wide>(kPrimes[0]) * v;
  return x - (kProduct & -static_cast<Wide>(x > kProduct / 2));
}

Wide bits(int count) { return (static_cast<Wide>(1) << count) - 1; }
Wide signed_wide(int64_t x) { return static_cast<Wide>(static_cast<__int128>(x)); }

uint64_t popcount(uint64_t x) {  // without a table: its address would depend on x
  x -= x >> 1 & 0x5555555555555555;
  x = (x & 0x3333333333333333) + (x >> 2 & 0x3333333333333333);
  return ((x + (x >> 4)) & 0x0f0f0f0f0f0f0f0f) * 0x0101010101010101 >> 56;
}

int32_t binomial_of(uint64_t word) {
  constexpr uint64_t kHalf = (uint64_t{1} << 21) - 1;
  return static_cast<int32_t>(popcount(word & kHalf)) - static_cast<int32_t>(popcount(word >> 21 & kHalf));
}

void untransformed(const uint64_t* image, uint64_t* residues) {
  std::copy(image, image + kImage, residues);
  for (int which = 0; which < 2; ++which) prime(which).transform_back(residues + which * kN);
}

}  // namespace

void ternary(const uint64_t* random, int32_t* out) {
  for (size_t j = 0; j < kN; ++j) out[j] = static_cast<int32_t>(high(random[j], 3)) - 1;
}

void binomial(const uint64_t* random, int32_t* out) {
  for (size_t j = 0; j < kN; ++j) out[j] = binomial_of(random[j]);
}

void image_of_small(const int32_t* coefficients, uint64_t* image) {
  for (int which = 0; which < 2; ++which) {
    const Prime& modulus = prime(which);
    uint64_t* out = image + which * kN;
    for (size_t j = 0; j < kN; ++j) {
      const int64_t c = coefficients[j];
      out[j] = static_cast<uint64_t>(c) + (modulus.p & static_cast<uint64_t>(c >> 63));
    }
    modulus.transform(out);
  }
}

void image_of_words(const uint64_t* words, uint64_t* image) {
  for (int which = 0; which < 2; ++which) {
    const Prime& modulus = prime(which);
    uint64_t* out = image + which * kN;
    for (size_t j = 0; j < kN; ++j) out[j] = modulus.reduce(static_cast<Wide>(words[kN + j]) << 64 | words[j]);
    modulus.transform(out);
  }
}

void words_of_image(const uint64_t* image, int k, uint64_t* words) {
  std::vector<uint64_t> x(kImage);
  untransformed(image, x.data());
  for (size_t j = 0; j < kN; ++j) {
    const Wide value = lift(x[j], x[kN + j]) & bits(k);
    words[j] = static_cast<uint64_t>(value);
    words[kN + j] = static_cast<uint64_t>(value >> 64);
  }
}

void multiply_add(const uint64_t* ciphertexts, const uint64_t* factors, size_t terms, uint64_t* accumulated) {
  for (size_t first = 0; first < terms; first += kLazyTerms) {
    const size_t count = std::min(kLazyTerms, terms - first);
    for (size_t half = 0; half < 2; ++half)
      for (int which = 0; which < 2; ++which) {
        const Prime& modulus = prime(which);
        const uint64_t* a = ciphertexts + (2 * first + half) * kImage + which * kN;
        const uint64_t* b = factors + first * kImage + which * kN;
        uint64_t* out = accumulated + half * kImage + which * kN;
        for (size_t j = 0; j < kN; ++j) {
          Wide sum = out[j];
          for (size_t t = 0; t < count; ++t) sum += static_cast<Wide>(a[2 * t * kImage + j]) * b[t * kImage + j];
          out[j] = modulus.reduce(sum);
        }
      }
  }
}

void encrypt(const uint64_t* image_s, const uint64_t* image_a, const uint64_t* random, const uint64_t* message, int k,
             int l, uint64_t* c0) {
  std::vector<uint64_t> x(kImage);
  for (int which = 0; which < 2; ++which)
    for (size_t j = which * kN; j < (which + 1) * kN; ++j)
      x[j] = prime(which).reduce(static_cast<Wide>(image_a[j]) * image_s[j]);
  for (int which = 0; which < 2; ++which) prime(which).transform_back(x.data() + which * kN);
  for (size_t j = 0; j < kN; ++j) {
    const Wide masked = signed_wide(binomial_of(random[j])) - lift(x[j], x[kN + j]);
    const Wide value = (masked + (static_cast<Wide>(message[j]) << (k - l))) & bits(k);
    c0[j] = static_cast<uint64_t>(value);
    c0[kN + j] = static_cast<uint64_t>(value >> 64);
  }
}

void answer(const uint64_t* accumulated, const uint64_t* random, const uint64_t* flood, const uint32_t* places,
            size_t num_places, int k, int l, int f, uint64_t* top, uint64_t* share, uint64_t* low) {
  std::vector<uint64_t> x(kImage);
  untransformed(accumulated, x.data());
  const Wide half = static_cast<Wide>(1) << (k - l - kLowBits - 1), centre = static_cast<Wide>(1) << (f - 1);
  for (size_t i = 0; i < num_places; ++i) {
    const size_t j = places[i];
    const Wide noise = (static_cast<Wide>(flood[2 * i + 1]) << 64 | flood[2 * i]) & bits(f);
    const Wide value = (lift(x[j], x[kN + j]) + noise - centre + half) & bits(k);
    share[i] = static_cast<uint64_t>(value >> (k - l));
    low[i] = static_cast<uint64_t>(value >> (k - l - kLowBits) & bits(kLowBits));
  }
  untransformed(accumulated + kImage, x.data());
  const int cut = k - l - kTopBits;
  for (size_t j = 0; j < kN; ++j) {
    const Wide value =
        lift(x[j], x[kN + j]) + signed_wide(binomial_of(random[j])) + (static_cast<Wide>(1) << (cut - 1));
    top[j] = static_cast<uint64_t>((value & bits(k)) >> cut);
  }
}

void decrypt(const uint64_t* image_s, const uint64_t* top, const uint64_t* low, const uint32_t* places,
             size_t num_places, int l, uint64_t* share, int32_t* distance) {
  const Prime& modulus = prime(0);
  std::vector<uint64_t> x(top, top + kN);
  modulus.transform(x.data());
  for (size_t j = 0; j < kN; ++j) x[j] = modulus.reduce(static_cast<Wide>(x[j]) * image_s[j]);
  modulus.transform_back(x.data());
  constexpr uint64_t kUnit = uint64_t{1} << kTopBits;
  for (size_t i = 0; i < num_places; ++i) {
    const uint64_t residue = x[places[i]];
    const uint64_t product = residue - (modulus.p & -static_cast<uint64_t>(residue > modulus.p / 2));
    const uint64_t value = product + (low[i] << (kTopBits - kLowBits)) + kUnit / 2;
    share[i] = value >> kTopBits & static_cast<uint64_t>(bits(l));
    distance[i] = static_cast<int32_t>(value & (kUnit - 1)) - static_cast<int32_t>(kUnit / 2);
  }
}

}  // namespace tw::crypt::rlwe
