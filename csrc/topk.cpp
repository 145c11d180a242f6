// Top-k kernels, compiled once per instruction set (TW_ISA names the namespace). Selection is exact whatever the
// data: a sample only guesses where to look first.
#include "topk.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <vector>

namespace tw::TW_ISA {
namespace {

constexpr int kBlock = 32;             // numbers compared at once
constexpr int64_t kSmall = 4096;       // chunks up to this size are selected from directly
constexpr int64_t kMaxSample = 32768;  // numbers that the guess is made from
constexpr int64_t kGroup = 8;          // of them lie side by side: a cache line is read for several
constexpr int kGuesses = 2;
constexpr int64_t kWindow = 16384;     // numbers that are added to while they lie in the cache
constexpr uint32_t kMagnitude = 0x7fffffffu;

uint32_t magnitude_bits(float x) {
  uint32_t b;
  std::memcpy(&b, &x, 4);
  return b & kMagnitude;
}

// Bit j: |x[j]| >= bound, as bit patterns, for 32 numbers.
inline uint32_t reaching(const float* x, uint32_t bound) {
  uint32_t hits = 0;
  for (int j = 0; j < kBlock; ++j) hits |= magnitude_bits(x[j]) >= bound ? 1u << j : 0u;  // one vector reduction
  return hits;
}

// Calls visit(index) for every number with |x| >= bound, in order, until it returns false.
template <typename Visit>
inline void visit_reaching(const float* x, int64_t n, uint32_t bound, Visit visit) {
  const int64_t whole = n / kBlock * kBlock;
  for (int64_t first = 0; first < whole; first += kBlock)
    for (uint32_t hits = reaching(x + first, bound); hits != 0; hits &= hits - 1)
      if (!visit(first + __builtin_ctz(hits))) return;
  for (int64_t i = whole; i < n; ++i)
    if (magnitude_bits(x[i]) >= bound && !visit(i)) return;
}

// The k-th largest of n bit patterns, and how many that equal it are among the k largest.
struct Threshold {
  uint32_t bits;
  int64_t ties;
};

// Radix selection on 31 bits, 11 + 11 + 9, the leading ones first; get(i) is the i-th pattern.
template <typename Get>
Threshold kth_largest(Get get, int64_t n, int64_t k) {
  constexpr int kShift[] = {20, 9, 0}, kWidth[] = {11, 11, 9};
  constexpr int kCopies = 4;  // neighbours are often alike: counting both in one place would wait for each other
  uint32_t prefix = 0;
  for (int level = 0; level < 3; ++level) {
    const int shift = kShift[level], width = kWidth[level];
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

// Numbers that may be among the k largest: their indices in ascending order, and their patterns.
class Candidates {
 public:
  void reserve(int64_t count) {
    if (count <= room_) return;
    indices_.reset(new uint32_t[static_cast<size_t>(count)]);
    bits_.reset(new uint32_t[static_cast<size_t>(count)]);
    room_ = count;
  }

  // All numbers with |x| >= bound; false if there are more than `limit`.
  bool collect(const float* x, int64_t n, uint32_t bound, int64_t limit) {
    reserve(limit);
    count_ = 0;
    bool fits = true;
    visit_reaching(x, n, bound, [&](int64_t i) {
      fits = count_ < limit;
      if (!fits) return false;
      indices_[count_] = static_cast<uint32_t>(i);
      bits_[count_++] = magnitude_bits(x[i]);
      return true;
    });
    return fits;
  }

  int64_t count() const { return count_; }
  uint32_t index(int64_t i) const { return indices_[i]; }
  uint32_t bits(int64_t i) const { return bits_[i]; }

 private:
  std::unique_ptr<uint32_t[]> indices_, bits_;
  int64_t count_ = 0, room_ = 0;
};

// Selects from one chunk at a time; its buffers are used again for the next chunk.
class Selector {
 public:
  // Calls emit(j, index) for the k chosen numbers, indices ascending.
  template <typename Emit>
  void select(const float* x, int64_t n, int64_t k, Emit emit) {
    if (n <= kSmall) return walk(x, n, k, small_threshold(x, n, k), emit);
    for (int slack = 1; slack <= kGuesses; ++slack) {
      const Guess guess = guess_bound(x, n, k, slack);
      if (guess.bound == 0 && candidates_.collect(x, n, 1, k)) return walk(x, n, k, {0, k - candidates_.count()}, emit);
      if (guess.bound == 0 || !candidates_.collect(x, n, guess.bound, guess.limit)) break;  // too many are alike
      if (candidates_.count() >= k) return choose(k, emit);
    }
    walk(x, n, k, kth_largest([&](int64_t i) { return magnitude_bits(x[i]); }, n, k), emit);
  }

 private:
  struct Guess {
    uint32_t bound;  // 0: none
    int64_t limit;
  };

  template <typename Emit>
  void choose(int64_t k, Emit emit) {
    const Candidates& c = candidates_;
    Threshold t = kth_largest([&](int64_t i) { return c.bits(i); }, c.count(), k);
    for (int64_t i = 0, j = 0; j < k; ++i)
      if (c.bits(i) > t.bits || (c.bits(i) == t.bits && t.ties-- > 0)) emit(j++, static_cast<int64_t>(c.index(i)));
  }

  template <typename Emit>
  void walk(const float* x, int64_t n, int64_t k, Threshold t, Emit emit) {
    int64_t j = 0;
    visit_reaching(x, n, t.bits, [&](int64_t i) {
      if (magnitude_bits(x[i]) > t.bits || t.ties-- > 0) emit(j++, i);
      return j < k;
    });
  }

  Threshold small_threshold(const float* x, int64_t n, int64_t k) {
    for (int64_t i = 0; i < n; ++i) sample_[i] = magnitude_bits(x[i]);
    std::nth_element(sample_, sample_ + k - 1, sample_ + n, std::greater<uint32_t>());
    const uint32_t bits = sample_[k - 1];
    const int64_t above = std::count_if(sample_, sample_ + k, [&](uint32_t b) { return b > bits; });
    return {bits, k - above};
  }

  // A bound that a few more than k numbers reach: 4 standard deviations of a sample more, times `slack`.
  Guess guess_bound(const float* x, int64_t n, int64_t k, int slack) {
    const int64_t stride = std::max<int64_t>(n / (kMaxSample / kGroup), 4 * kGroup), groups = n / stride;
    const int64_t size = groups * kGroup;
    uint32_t jitter = 0x9e3779b9u;
    for (int64_t g = 0; g < groups; ++g) {
      jitter = jitter * 1664525u + 1013904223u;
      const float* group = x + g * stride + (jitter >> 8) % (stride - kGroup + 1);
      for (int64_t i = 0; i < kGroup; ++i) sample_[g * kGroup + i] = magnitude_bits(group[i]);
    }
    const double expected = static_cast<double>(k) * static_cast<double>(size) / static_cast<double>(n);
    const auto rank = slack * static_cast<int64_t>(expected + 4 * __builtin_sqrt(expected) + 4);
    if (rank >= size) return {0, 0};
    std::nth_element(sample_, sample_ + rank, sample_ + size, std::greater<uint32_t>());
    return {sample_[rank], std::min(n, 2 * (rank + 16) * (n / size + 1))};
  }

  static constexpr int64_t kSampleRoom = 2 * kMaxSample;  // n / stride groups: less than twice as many as wanted
  uint32_t sample_[kSampleRoom];
  Candidates candidates_;
};

// Writes numbers of a few bits each, the lowest bits first.
class BitWriter {
 public:
  BitWriter(uint8_t* bytes, int64_t width) : bytes_(bytes), width_(static_cast<int>(width)) {}

  void put(uint32_t value) {
    word_ |= static_cast<uint64_t>(value) << filled_;
    filled_ += width_;
    if (filled_ >= 32) {
      std::memcpy(bytes_, &word_, 4);
      bytes_ += 4, word_ >>= 32, filled_ -= 32;
    }
  }
  void finish() { std::memcpy(bytes_, &word_, static_cast<size_t>(filled_ + 7) / 8); }

 private:
  uint8_t* bytes_;
  uint64_t word_ = 0;
  int width_, filled_ = 0;
};

// Reads what a BitWriter wrote; never beyond `size` bytes.
class BitReader {
 public:
  BitReader(const uint8_t* bytes, int64_t size, int64_t width)
      : bytes_(bytes), end_(bytes + size), width_(static_cast<int>(width)) {}

  uint32_t get() {
    if (filled_ < width_) {
      const auto count = static_cast<size_t>(std::min<int64_t>(4, end_ - bytes_));
      uint32_t next = 0;
      std::memcpy(&next, bytes_, count);
      bytes_ += count;
      word_ |= static_cast<uint64_t>(next) << filled_;
      filled_ += 32;
    }
    const auto value = static_cast<uint32_t>(word_ & ((uint64_t{1} << width_) - 1));
    word_ >>= width_, filled_ -= width_;
    return value;
  }

 private:
  const uint8_t *bytes_, *end_;
  uint64_t word_ = 0;
  int width_, filled_ = 0;
};

// Finds the set bits of some bytes one after the other.
class BitScanner {
 public:
  static constexpr int64_t kNone = std::numeric_limits<int64_t>::max();

  BitScanner(const uint8_t* bytes, int64_t size) : bytes_(bytes), size_(size) {}

  int64_t next() {
    while (word_ == 0) {
      if (read_ >= size_) return kNone;
      base_ = 8 * read_;
      std::memcpy(&word_, bytes_ + read_, static_cast<size_t>(std::min<int64_t>(8, size_ - read_)));
      read_ += 8;
    }
    const int64_t bit = base_ + __builtin_ctzll(word_);
    word_ &= word_ - 1;
    return bit;
  }

 private:
  const uint8_t* bytes_;
  int64_t size_, read_ = 0, base_ = 0;
  uint64_t word_ = 0;
};

void select_run(const float* x, const Run& r, Selector& selector, uint8_t* indices, float* values) {
  BitWriter low(indices + r.low_byte, r.low_bits);
  uint8_t* high = indices + r.high_byte;
  const int64_t high_bits = r.high_bits();
  const uint32_t mask = (1u << r.low_bits) - 1;
  std::memset(high, 0, static_cast<size_t>(r.high_bytes()));
  for (int64_t c = 0; c < r.count; ++c) {
    const float* chunk = x + r.offset + c * r.chunk;
    float* out = values + r.value + c * r.k;
    selector.select(chunk, r.chunk, r.k, [&](int64_t j, int64_t index) {
      out[j] = chunk[index];
      low.put(static_cast<uint32_t>(index) & mask);
      if (high_bits == 0) return;
      const int64_t bit = c * high_bits + (index >> r.low_bits) + (r.low_bits == 0 ? 0 : j);
      high[bit / 8] = static_cast<uint8_t>(high[bit / 8] | (1u << (bit % 8)));
    });
  }
  low.finish();
}

void select(const float* x, const Run* runs, int64_t num_runs, uint8_t* indices, float* values) {
  const auto selector = std::make_unique<Selector>();
  for (int64_t i = 0; i < num_runs; ++i) select_run(x, runs[i], *selector, indices, values);
}

// Reads the indices of one payload's run, chunk after chunk; they ascend within a chunk.
class Places {
 public:
  Places(const uint8_t* indices, const Run& r)
      : run_(r), high_bits_(r.high_bits()), low_(indices + r.low_byte, r.low_bytes(), r.low_bits),
        high_(indices + r.high_byte, r.high_bytes()) {}

  // The next index in its chunk, or -1 if the bytes are damaged.
  int64_t next() {
    int64_t index = low_.get();
    if (high_bits_ != 0) {
      const int64_t bit = high_.next() - base_;
      const int64_t part = bit - (run_.low_bits == 0 ? 0 : rank_);
      if (bit < 0 || bit >= high_bits_ || part < 0) return -1;
      index |= part << run_.low_bits;
    }
    if (++rank_ == run_.k) rank_ = 0, base_ += high_bits_;
    return index < run_.chunk ? index : -1;
  }
  // No bits beyond the last place.
  bool at_end() { return high_.next() >= base_; }

 private:
  const Run& run_;
  int64_t high_bits_, rank_ = 0, base_ = 0;
  BitReader low_;
  BitScanner high_;
};

// One payload on its way through a chunk: the value that comes next and its place.
struct Cursor {
  Places places;
  const float* value;
  int64_t index = 0, left = 0;

  bool start(int64_t k) {
    left = k;
    return (index = places.next()) >= 0;
  }
  bool add_until(int64_t end, float factor, float* chunk) {
    while (index < end) {
      chunk[index] += *value++ * factor;
      if (--left == 0) index = std::numeric_limits<int64_t>::max();
      else if ((index = places.next()) < 0) return false;
    }
    return true;
  }
};

// Window by window, so that numbers are added where they still lie in the cache.
bool scatter_chunk(std::vector<Cursor>& cursors, const Run& r, float factor, float* chunk) {
  for (Cursor& cursor : cursors)
    if (!cursor.start(r.k)) return false;
  for (int64_t first = 0; first < r.chunk; first += kWindow) {
    const int64_t end = std::min(first + kWindow, r.chunk);
    std::fill(chunk + first, chunk + end, 0.0f);
    for (Cursor& cursor : cursors)
      if (!cursor.add_until(end, factor, chunk)) return false;
  }
  return true;
}

bool scatter(const uint8_t* indices, int64_t num_payloads, int64_t payload_bytes, const Run* runs, int64_t num_runs,
             const float* values, int64_t num_values, float factor, float* x) {
  std::vector<Cursor> cursors;
  for (int64_t i = 0; i < num_runs; ++i) {
    const Run& r = runs[i];
    cursors.clear();
    for (int64_t p = 0; p < num_payloads; ++p)
      cursors.push_back({Places(indices + p * payload_bytes, r), values + p * num_values + r.value});
    for (int64_t c = 0; c < r.count; ++c)
      if (!scatter_chunk(cursors, r, factor, x + r.offset + c * r.chunk)) return false;
    for (Cursor& cursor : cursors)
      if (!cursor.places.at_end()) return false;
  }
  return true;
}

}  // namespace

extern const TopkKernels topk{select, scatter};

}  // namespace tw::TW_ISA
