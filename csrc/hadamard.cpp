// Random rotations, compiled once per instruction set (TW_ISA names the namespace).
#include "hadamard.h"

#include "vectors.h"

namespace tw::TW_ISA {
namespace {

constexpr int kSigns = 16;  // elements whose signs are the bits of one draw
constexpr uint32_t kMinus = 0x80000000u;
constexpr int64_t kAhead = 1024;    // elements that are fetched before they are needed
constexpr int64_t kLong = 1 << 18;  // elements that leave the caches anyway

// What is no number becomes one NaN: its bits would depend on the order of operands.
inline Float one_nan(Float v) { return v == v ? v : splat(float_of(0x7fc00000u)); }
inline float one_nan(float v) { return v == v ? v : float_of(0x7fc00000u); }

// Lane j of the result is lane j ^ kDistance of v.
template <int kDistance>
inline Float swapped(Float v) {
  Int places;
  for (int j = 0; j < kWidth; ++j) places[j] = j ^ kDistance;
  return __builtin_shuffle(v, places);
}

// (a, b) to (a + b, a - b) for lanes that lie kDistance apart. v times 1 or -1 is exact: fusing changes no bit.
template <int kDistance>
inline Float crossed(Float v) {
#if defined(__AVX2__) && defined(__FMA__) && !defined(__AVX512F__)
  Float ones;
  for (int j = 0; j < kWidth; ++j) ones[j] = j & kDistance ? -1.0f : 1.0f;
  return (Float)_mm256_fmadd_ps((__m256)v, (__m256)ones, (__m256)swapped<kDistance>(v));
#else
  Word minus;
  for (int j = 0; j < kWidth; ++j) minus[j] = j & kDistance ? kMinus : 0;
  return swapped<kDistance>(v) + (Float)((Word)v ^ minus);
#endif
}

inline Float inside(Float v) {
  v = crossed<2>(crossed<1>(v));
  if constexpr (kWidth > 4) v = crossed<4>(v);
  if constexpr (kWidth > 8) v = crossed<8>(v);
  return v;
}

template <int kRadix>
inline void butterflies(Float* v) {
  for (int h = 1; h < kRadix; h *= 2)
    for (int i = 0; i < kRadix; ++i)
      if ((i & h) == 0) {
        const Float a = v[i], b = v[i + h];
        v[i] = a + b;
        v[i + h] = a - b;
      }
}

// The signs of a block, from its first element on, as a mask for each vector.
class Signs {
 public:
  Signs(uint32_t k0, uint32_t k1) : k0_(k0), k1_(k1) {
    for (int j = 0; j < kWidth; ++j) shifts_[j] = static_cast<uint32_t>(31 - j);
  }

  // Draws the signs of kMaxTurned elements, far ahead of their use; `first` is a multiple of 16.
  void seek(int64_t first) {
    const auto start = static_cast<uint32_t>(first / kSigns);
    for (int i = 0; i < kMaxTurned / kSigns; i += kWidth)
      *reinterpret_cast<Word*>(draws_ + i) = drawn(ramp() + (start + static_cast<uint32_t>(i)));
  }

  // The vector that begins at element i, with its signs.
  Float on(Float v, int64_t i) const {
#if defined(__AVX512F__)
    const uint32_t bits = draws_[i / kSigns] >> i % kSigns;
    return (Float)_mm512_mask_xor_epi32((__m512i)v, static_cast<__mmask16>(bits), (__m512i)v,
                                        (__m512i)(Word{} + kMinus));
#else
    const Word bits = (Word{} + draws_[i / kSigns]) << (shifts_ - static_cast<uint32_t>(i % kSigns));
    return (Float)((Word)v ^ (bits & kMinus));
#endif
  }
  float on(float v, int64_t i) const { return float_of(bits_of(v) ^ draws_[i / kSigns] >> i % kSigns << 31); }

 private:
  // The hash of draws.h, for counters that are not a row of 32.
  Word drawn(Word counters) const {
    Word h = counters ^ k0_;
    h = (h ^ (h >> 16)) * 0x7feb352du;
    h ^= k1_;
    h = (h ^ (h >> 15)) * 0x846ca68bu;
    return (h ^ (h >> 16)) >> 8;
  }

  uint32_t k0_, k1_;
  Word shifts_;
  alignas(64) uint32_t draws_[kMaxTurned / kSigns];
};

// kRadix vectors `h` elements apart through butterflies, for all places of a block of n elements.
template <int kRadix, bool kInside, typename Load, typename Store>
inline void pass(int64_t n, int64_t h, const Load& load, const Store& store) {
  for (int64_t base = 0; base < n; base += kRadix * h)
    for (int64_t j = base; j < base + h; j += kWidth) {
      Float v[kRadix];
      for (int r = 0; r < kRadix; ++r) v[r] = kInside ? inside(load(j + r * h)) : load(j + r * h);
      butterflies<kRadix>(v);
      for (int r = 0; r < kRadix; ++r) store(j + r * h, v[r]);
    }
}

// The widest radix that fits; gives it back.
template <bool kInside, typename Load, typename Store>
inline int64_t widest_pass(int64_t n, int64_t h, const Load& load, const Store& store) {
  switch (least<int64_t>(8, n / h)) {
    case 8: return pass<8, kInside>(n, h, load, store), 8;
    case 4: return pass<4, kInside>(n, h, load, store), 4;
    case 2: return pass<2, kInside>(n, h, load, store), 2;
    default: return pass<1, kInside>(n, h, load, store), 1;
  }
}

// A block of n >= kWidth elements times Hadamard's matrix: first what lies in a vector, then vectors far apart.
template <typename Load, typename Store>
inline void turn(int64_t n, const Load& load, const Store& store) {
  alignas(64) float room[kMaxTurned];
  const auto from_room = [&](int64_t i) { return *reinterpret_cast<const Float*>(room + i); };
  const auto to_room = [&](int64_t i, Float v) { *reinterpret_cast<Float*>(room + i) = v; };
  if (n <= 8 * kWidth) {
    widest_pass<true>(n, kWidth, load, store);
    return;
  }
  int64_t h = 8 * kWidth;
  widest_pass<true>(n, kWidth, load, to_room);
  while (h * 8 < n) h *= widest_pass<false>(n, h, from_room, to_room);
  widest_pass<false>(n, h, from_room, store);
}

// The same for n < kWidth.
inline void turn_few(int64_t n, float* v) {
  for (int64_t h = 1; h < n; h *= 2)
    for (int64_t i = 0; i < n; ++i)
      if ((i & h) == 0) {
        const float a = v[i], b = v[i + h];
        v[i] = a + b;
        v[i + h] = a - b;
      }
}

// Calls f(first, n, factor) for every block of a run: whole ones, then the powers of two that make up the rest.
template <typename F>
inline void for_blocks(const Run& run, const float* factors, int64_t size, F f) {
  int64_t n = size;
  float root = static_cast<float>(1 / __builtin_sqrt(static_cast<double>(n)));
  for (int64_t first = 0; first < run.numel; first += n) {
    while (first + n > run.numel) {
      n /= 2;
      root = static_cast<float>(1 / __builtin_sqrt(static_cast<double>(n)));
    }
    f(first, n, factors[run.scale + (run.block == 0 ? 0 : (run.start + first) / run.block)] * root);
  }
}

// Whether results go past the caches, which would first read what is overwritten: those of long runs.
inline bool past_caches(const Run& run, const float* target) { return run.numel >= kLong && can_stream(target); }

// Blocks of one element: nothing is turned, and no sign is drawn.
inline void multiply(const float* from, const Run& run, const float* factors, float* to) {
  for (int64_t first = 0; first < run.numel;) {
    const int64_t at = run.start + first;
    const int64_t left = run.numel - first;
    const int64_t count = run.block == 0 ? left : least(left, run.block - at % run.block);
    const float factor = factors[run.scale + (run.block == 0 ? 0 : at / run.block)];
    for (int64_t i = first; i < first + count; ++i) to[i] = one_nan(from[i] * factor);
    first += count;
  }
}

void forward_run(const float* x, const Run& run, const uint32_t* key, const float* factors, int64_t size, float* y) {
  Signs signs(key[0], key[1]);
  for_blocks(run, factors, size, [&](int64_t first, int64_t n, float factor) {
    if (first % kMaxTurned == 0) signs.seek(run.start + first);
    const float* source = x + first;
    float* target = y + first;
    const int64_t shift = first % kMaxTurned;
    if (n < kWidth) {
      float few[kWidth];
      for (int64_t i = 0; i < n; ++i) few[i] = signs.on(source[i] * factor, shift + i);
      turn_few(n, few);
      for (int64_t i = 0; i < n; ++i) target[i] = one_nan(few[i]);
      return;
    }
    const auto taken = [&](int64_t i) {
      __builtin_prefetch(source + i + kAhead);
      return signs.on(load(source + i) * factor, shift + i);
    };
    if (past_caches(run, target))
      turn(n, taken, [&](int64_t i, Float v) { stream(target + i, one_nan(v)); });
    else
      turn(n, taken, [&](int64_t i, Float v) { *reinterpret_cast<FloatAt*>(target + i) = one_nan(v); });
  });
}

void inverse_run(const float* y, const Run& run, const uint32_t* key, const float* factors, int64_t size, float* x) {
  Signs signs(key[0], key[1]);
  for_blocks(run, factors, size, [&](int64_t first, int64_t n, float factor) {
    if (first % kMaxTurned == 0) signs.seek(run.start + first);
    const float* source = y + first;
    float* target = x + first;
    const int64_t shift = first % kMaxTurned;
    if (n < kWidth) {
      float few[kWidth];
      for (int64_t i = 0; i < n; ++i) few[i] = source[i];
      turn_few(n, few);
      for (int64_t i = 0; i < n; ++i) target[i] = one_nan(signs.on(few[i] * factor, shift + i));
      return;
    }
    const auto taken = [&](int64_t i) {
      __builtin_prefetch(source + i + kAhead);
      return load(source + i);
    };
    const auto given = [&](int64_t i, Float v) { return one_nan(signs.on(v * factor, shift + i)); };
    if (past_caches(run, target))
      turn(n, taken, [&](int64_t i, Float v) { stream(target + i, given(i, v)); });
    else
      turn(n, taken, [&](int64_t i, Float v) { *reinterpret_cast<FloatAt*>(target + i) = given(i, v); });
  });
}

void forward(const float* x, const Run* runs, int64_t num_runs, const uint32_t* keys, const float* factors,
             int64_t size, float* y) {
  for (int64_t i = 0; i < num_runs; ++i)
    if (size == 1)
      multiply(x + runs[i].source, runs[i], factors, y + runs[i].target);
    else
      forward_run(x + runs[i].source, runs[i], keys + 2 * i, factors, size, y + runs[i].target);
  end_of_stream();
}

void inverse(const float* y, const Run* runs, int64_t num_runs, const uint32_t* keys, const float* factors,
             int64_t size, float* x) {
  for (int64_t i = 0; i < num_runs; ++i)
    if (size == 1)
      multiply(y + runs[i].target, runs[i], factors, x + runs[i].source);
    else
      inverse_run(y + runs[i].target, runs[i], keys + 2 * i, factors, size, x + runs[i].source);
  end_of_stream();
}

}  // namespace

extern const HadamardKernels hadamard{forward, inverse};

}  // namespace tw::TW_ISA
