// Selection of the k groups of largest magnitude. Exact whatever the data: a sample only guesses where to look first.
// Compiled once per instruction set (TW_ISA names the namespace).
#pragma once
#include <cfloat>
#include <cstdint>
#include <cstring>

#include "basics.h"

namespace tw::TW_ISA {
namespace {

constexpr int kBlock = 32;             // groups compared at once
constexpr int64_t kSmall = 8192;       // chunks up to this many groups are selected from directly
constexpr int64_t kMaxSample = 32768;  // groups that the guess is made from
constexpr int64_t kNeighbours = 8;     // of them lie side by side: a cache line is read for several
constexpr int kGuesses = 2;
constexpr uint32_t kMagnitude = 0x7fffffffu, kNan = 0x7fc00000u;

// The magnitude of a group of G numbers as the bit pattern of a float: NaN > Inf > numbers, all below 2^31. Of two
// numbers it is sqrt(a^2 + b^2) in float64, at most the largest float unless one of them is not finite.
template <int G>
inline uint32_t key_of(const float* x) {
  float magnitude = x[0];
  if constexpr (G == 2) {
    const double a = x[0], b = x[1], length = __builtin_sqrt(a * a + b * b);
    constexpr double largest = FLT_MAX, infinity = __builtin_inf();
    magnitude = static_cast<float>(length > largest && length < infinity ? largest : length);
  }
  uint32_t bits;
  std::memcpy(&bits, &magnitude, 4);
  bits &= kMagnitude;
  return G == 1 ? bits : least(bits, kNan);  // one NaN is as good as another
}

template <int G>
inline void keys_of(const float* x, int64_t n, uint32_t* keys) {
  for (int64_t i = 0; i < n; ++i) keys[i] = key_of<G>(x + G * i);
}

// Bit j: keys[j] >= bound, for 32 keys.
inline uint32_t reaching(const uint32_t* keys, uint32_t bound) {
  uint32_t hits = 0;
  for (int j = 0; j < kBlock; ++j) hits |= keys[j] >= bound ? 1u << j : 0u;  // one vector reduction
  return hits;
}

// Calls visit(index, key) for every group whose key reaches the bound, in order, until it returns false.
template <int G, typename Visit>
inline void visit_reaching(const float* x, int64_t n, uint32_t bound, Visit visit) {
  const int64_t whole = n / kBlock * kBlock;
  uint32_t keys[kBlock];
  for (int64_t first = 0; first < whole; first += kBlock) {
    keys_of<G>(x + G * first, kBlock, keys);
    for (uint32_t hits = reaching(keys, bound); hits != 0; hits &= hits - 1) {
      const int j = __builtin_ctz(hits);
      if (!visit(first + j, keys[j])) return;
    }
  }
  for (int64_t i = whole; i < n; ++i) {
    const uint32_t key = key_of<G>(x + G * i);
    if (key >= bound && !visit(i, key)) return;
  }
}

// A bound that the k largest of n keys reach, and how many that equal it are among them.
struct Threshold {
  uint32_t bits;
  int64_t ties;
};

// Radix selection on 31 bits, 11 + 11 + 9, the leading ones first; get(i) is the i-th key.
template <typename Get>
Threshold kth_largest(Get get, int64_t n, int64_t k) {
  constexpr int kShift[] = {20, 9, 0}, kDigit[] = {11, 11, 9};
  constexpr int kCopies = 4;  // neighbours are often alike: counting both in one place would wait for each other
  uint32_t prefix = 0;
  for (int level = 0; level < 3; ++level) {
    const int shift = kShift[level], width = kDigit[level];
    const uint32_t mask = (1u << width) - 1;
    uint32_t counts[kCopies][2048] = {};
    for (int64_t i = 0; i < n; ++i) {
      const uint32_t bits = get(i);
      if ((bits >> shift >> width) == prefix) ++counts[i % kCopies][(bits >> shift) & mask];
    }
    uint32_t digit = mask;
    for (;; --digit) {
      int64_t here = 0;
      for (int copy = 0; copy < kCopies; ++copy) here += counts[copy][digit];
      if (here >= k || digit == 0) break;
      k -= here;
    }
    prefix = (prefix << width) | digit;
  }
  return {prefix, k};
}

inline int64_t count_reaching(const uint32_t* keys, int64_t n, uint32_t bound) {
  int32_t count = 0;
  for (int64_t i = 0; i < n; ++i) count += static_cast<int32_t>(keys[i]) >= static_cast<int32_t>(bound) ? 1 : 0;
  return count;
}

// The same for few keys, bit by bit: counting in vectors beats sorting while all keys lie in the nearest cache.
inline Threshold kth_of_few(const uint32_t* keys, int64_t n, int64_t k) {
  uint32_t prefix = 0;
  for (uint32_t bit = 1u << 30; bit != 0; bit >>= 1) {
    const int64_t count = count_reaching(keys, n, prefix | bit);
    if (count >= k) prefix |= bit;
    if (count == k) return {prefix, k};
  }
  return {prefix, k - count_reaching(keys, n, prefix + 1)};
}

// Groups that may be among the k largest: their indices in ascending order, and their keys.
class Candidates {
 public:
  void reserve(int64_t count) {
    indices_.reserve(count);
    keys_.reserve(count);
  }

  // All groups whose key reaches the bound; false if there are more than `limit`.
  template <int G>
  bool collect(const float* x, int64_t n, uint32_t bound, int64_t limit) {
    reserve(limit);
    count_ = 0;
    bool fits = true;
    visit_reaching<G>(x, n, bound, [&](int64_t i, uint32_t key) {
      fits = count_ < limit;
      if (!fits) return false;
      indices_[count_] = static_cast<uint32_t>(i);
      keys_[count_++] = key;
      return true;
    });
    return fits;
  }

  int64_t count() const { return count_; }
  uint32_t index(int64_t i) const { return indices_[i]; }
  uint32_t key(int64_t i) const { return keys_[i]; }

 private:
  Buffer<uint32_t> indices_, keys_;
  int64_t count_ = 0;
};

// Selects from one chunk at a time; its buffers are used again for the next chunk.
class Selector {
 public:
  // Calls emit(index) for the k chosen ones of n groups of G numbers, indices ascending.
  template <int G, typename Emit>
  void select(const float* x, int64_t n, int64_t k, Emit emit) {
    if (k == n) {
      for (int64_t i = 0; i < n; ++i) emit(i);
      return;
    }
    if (n <= kSmall) return select_few<G>(x, n, k, emit);
    for (int slack = 1; slack <= kGuesses; ++slack) {
      const Guess guess = guess_bound<G>(x, n, k, slack);
      if (guess.bound == 0 && candidates_.collect<G>(x, n, 1, k))
        return walk<G>(x, n, k, {0, k - candidates_.count()}, emit);
      if (guess.bound == 0 || !candidates_.collect<G>(x, n, guess.bound, guess.limit)) break;  // too many are alike
      if (candidates_.count() >= k) return choose(k, emit);
    }
    walk<G>(x, n, k, kth_largest([&](int64_t i) { return key_of<G>(x + G * i); }, n, k), emit);
  }

 private:
  struct Guess {
    uint32_t bound;  // 0: none
    int64_t limit;
  };

  template <int G, typename Emit>
  void select_few(const float* x, int64_t n, int64_t k, Emit emit) {
    keys_of<G>(x, n, sample_);
    Threshold t = kth_of_few(sample_, n, k);
    const int64_t whole = n / kBlock * kBlock;
    int64_t left = k;
    const auto visit = [&](int64_t i) {
      if (sample_[i] > t.bits || t.ties-- > 0) emit(i), --left;
    };
    for (int64_t first = 0; first < whole && left > 0; first += kBlock)
      for (uint32_t hits = reaching(sample_ + first, t.bits); hits != 0; hits &= hits - 1)
        visit(first + __builtin_ctz(hits));
    for (int64_t i = whole; i < n; ++i)
      if (sample_[i] >= t.bits) visit(i);
  }

  template <typename Emit>
  void choose(int64_t k, Emit emit) {
    const Candidates& c = candidates_;
    Threshold t = kth_largest([&](int64_t i) { return c.key(i); }, c.count(), k);
    for (int64_t i = 0, left = k; left > 0; ++i)
      if (c.key(i) > t.bits || (c.key(i) == t.bits && t.ties-- > 0)) emit(static_cast<int64_t>(c.index(i))), --left;
  }

  template <int G, typename Emit>
  void walk(const float* x, int64_t n, int64_t k, Threshold t, Emit emit) {
    visit_reaching<G>(x, n, t.bits, [&, left = k](int64_t i, uint32_t key) mutable {
      if (key > t.bits || t.ties-- > 0) emit(i), --left;
      return left > 0;
    });
  }

  // A bound that a few more than k groups reach: 4 standard deviations of a sample more, times `slack`.
  template <int G>
  Guess guess_bound(const float* x, int64_t n, int64_t k, int slack) {
    const int64_t stride = most<int64_t>(n / (kMaxSample / kNeighbours), 4 * kNeighbours), places = n / stride;
    const int64_t size = places * kNeighbours;
    uint32_t jitter = 0x9e3779b9u;
    for (int64_t place = 0; place < places; ++place) {
      jitter = jitter * 1664525u + 1013904223u;
      const int64_t first = place * stride + (jitter >> 8) % (stride - kNeighbours + 1);
      keys_of<G>(x + G * first, kNeighbours, sample_ + place * kNeighbours);
    }
    const double expected = static_cast<double>(k) * static_cast<double>(size) / static_cast<double>(n);
    const auto rank = slack * static_cast<int64_t>(expected + 4 * __builtin_sqrt(expected) + 4);
    if (rank >= size) return {0, 0};
    const uint32_t bound = kth_largest([&](int64_t i) { return sample_[i]; }, size, rank + 1).bits;
    return {bound, least(n, 2 * (rank + 16) * (n / size + 1))};
  }

  static constexpr int64_t kSampleRoom = 2 * kMaxSample;  // n / stride places: less than twice as many as wanted
  Buffer<uint32_t> room_;
  uint32_t* const sample_ = room_.reserved(kSampleRoom);
  Candidates candidates_;
};

}  // namespace
}  // namespace tw::TW_ISA
