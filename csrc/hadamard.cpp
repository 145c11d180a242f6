// Random rotations, compiled once per instruction set (TW_ISA names the namespace).
#include "hadamard.h"

#include "vectors.h"

namespace tw::TW_ISA {
namespace {

typedef uint16_t Shorts __attribute__((vector_size(2 * kWidth)));

constexpr int kSigns = 16;  // elements whose signs are the bits of one draw
constexpr uint32_t kMinus = 0x80000000u;
constexpr int64_t kLine = 16;       // elements of a cache line
constexpr int64_t kUsual = 512;     // elements of a block whose loops have a known length
constexpr int64_t kAhead = 1024;    // elements that are fetched before they are needed
constexpr int64_t kLong = 1 << 18;  // elements that leave the caches anyway

// What is no number becomes one NaN: its bits would depend on the order of operands.
inline float one_nan(float v) { return v == v ? v : float_of(0x7fc00000u); }
inline void one_nan(float* x, int64_t n) {
  for (int64_t i = 0; i < n; ++i) x[i] = one_nan(x[i]);
}

inline bool finite(float x) { return (bits_of(x) & 0x7f800000u) != 0x7f800000u; }
inline bool finite(Float v) {
  bool all = true;
  for (int j = 0; j < kWidth; ++j) all &= finite(v[j]);
  return all;
}

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
#if defined(__FMA__)
  Float ones;
  for (int j = 0; j < kWidth; ++j) ones[j] = j & kDistance ? -1.0f : 1.0f;
#endif
#if defined(__AVX512F__) && defined(__FMA__)
  return (Float)_mm512_fmadd_ps((__m512)v, (__m512)ones, (__m512)swapped<kDistance>(v));
#elif defined(__AVX2__) && defined(__FMA__)
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

#if defined(__AVX2__) && !defined(__AVX512F__)
// Eight bits to the sign bits of a vector.
struct SignsOfBytes {
  constexpr SignsOfBytes() : masks() {
    for (uint32_t byte = 0; byte < 256; ++byte)
      for (uint32_t j = 0; j < 8; ++j) masks[byte][j] = byte >> j << 31;
  }
  alignas(32) uint32_t masks[256][8];
};
constexpr SignsOfBytes kSignsOfBytes;
#endif

// The signs of the elements from a multiple of 16 on.
class SignsFrom {
 public:
  explicit SignsFrom(const uint16_t* bits) : bits_(bits) {}

  // The vector that begins at element i, with its signs.
  Float on(Float v, uint64_t i) const {
#if defined(__AVX512F__)
    return (Float)_mm512_mask_xor_epi32((__m512i)v, bits_[i / kSigns], (__m512i)v, (__m512i)(Word{} + kMinus));
#elif defined(__AVX2__)
    const uint8_t byte = reinterpret_cast<const uint8_t*>(bits_)[i / kWidth];
    return (Float)((Word)v ^ *reinterpret_cast<const Word*>(kSignsOfBytes.masks[byte]));
#else
    const Word own = Word{} + (static_cast<uint32_t>(bits_[i / kSigns]) >> i % kSigns);
    return (Float)((Word)v ^ ((Word)((own & (Word{1, 2, 4, 8})) != 0) & kMinus));
#endif
  }
  float on(float v, uint64_t i) const {
    return float_of(bits_of(v) ^ static_cast<uint32_t>(bits_[i / kSigns]) >> i % kSigns << 31);
  }

 private:
  const uint16_t* bits_;
};

// Draws signs.
class Signs {
 public:
  Signs(uint32_t k0, uint32_t k1) : k0_(k0), k1_(k1) {}

  // Draws the signs of kMaxTurned elements, far ahead of their use; `first` is a multiple of 16.
  void seek(int64_t first) {
    const auto start = static_cast<uint32_t>(first / kSigns);
    for (int i = 0; i < kMaxTurned / kSigns; i += kWidth) {
      const auto draws = __builtin_convertvector(drawn(ramp() + (start + static_cast<uint32_t>(i))), Shorts);
      std::memcpy(bits_ + i, &draws, sizeof draws);
    }
  }

  // From element `first` of them on, rounded down to a multiple of 16.
  SignsFrom from(int64_t first) const { return SignsFrom(bits_ + first / kSigns); }

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
  alignas(64) uint16_t bits_[kMaxTurned / kSigns];
};

// Vectors `h` elements apart through butterflies.
template <int kRadix, bool kInside, typename Load>
inline void turn_apart(int64_t j, int64_t h, const Load& load, Float* v) {
  for (int r = 0; r < kRadix; ++r) v[r] = kInside ? inside(load(j + r * h)) : load(j + r * h);
  butterflies<kRadix>(v);
}

// kRadix vectors `h` elements apart through butterflies, for all places of a block of n elements.
template <int kRadix, bool kInside, typename Load, typename Store>
inline void pass(int64_t n, int64_t h, const Load& load, const Store& store) {
  for (int64_t base = 0; base < n; base += kRadix * h)
    for (int64_t j = base; j < base + h; j += kWidth) {
      Float v[kRadix];
      turn_apart<kRadix, kInside>(j, h, load, v);
      for (int r = 0; r < kRadix; ++r) store(j + r * h, v[r]);
    }
}

// The same for the last pass: cache lines are stored whole, as streams want them. Gives back a sum that is finite only
// if there is no NaN: one comes of two infinite numbers, and of them the difference as well as the sum is infinite or
// NaN, so that half of the results tell.
template <int kRadix, bool kInside, typename Load, typename Store>
inline Float last_pass(int64_t n, int64_t h, const Load& load, const Store& store) {
  constexpr int kParts = kInside ? 1 : static_cast<int>(kLine) / kWidth;
  Float sum{};
  for (int64_t base = 0; base < n; base += kRadix * h)
    for (int64_t j = base; j < base + h; j += kParts * kWidth) {
      Float v[kParts][kRadix];
      for (int part = 0; part < kParts; ++part) {
        turn_apart<kRadix, kInside>(j + part * kWidth, h, load, v[part]);
        for (int r = 0; r < most(kRadix / 2, 1); ++r) sum += v[part][r];
      }
      for (int r = 0; r < kRadix; ++r)
        for (int part = 0; part < kParts; ++part) store(j + part * kWidth + r * h, v[part][r]);
    }
  return sum;
}

// Calls f with the widest radix that fits.
template <typename F>
inline void with_radix(int64_t most, const F& f) {
  switch (least<int64_t>(8, most)) {
    case 8: return f(Constant<8>{});
    case 4: return f(Constant<4>{});
    case 2: return f(Constant<2>{});
    default: return f(Constant<1>{});
  }
}

// A block of n >= 16 elements times Hadamard's matrix: first what lies in a vector, then vectors far apart. True
// if no result is NaN; it may be false without one.
template <typename Load, typename Store>
inline bool turned_by(int64_t n, const Load& load, const Store& store) {
  alignas(64) float room[kMaxTurned];
  const auto from_room = [&](int64_t i) { return *reinterpret_cast<const Float*>(room + i); };
  const auto to_room = [&](int64_t i, Float v) { *reinterpret_cast<Float*>(room + i) = v; };
  Float sum{};
  if (n <= 8 * kWidth) {
    with_radix(n / kWidth, [&](auto radix) { sum = last_pass<radix.value, true>(n, kWidth, load, store); });
    return finite(sum);
  }
  int64_t h = 8 * kWidth;
  pass<8, true>(n, kWidth, load, to_room);
  for (; h * 8 < n; h *= 8) pass<8, false>(n, h, from_room, to_room);
  with_radix(n / h, [&](auto radix) { sum = last_pass<radix.value, false>(n, h, from_room, store); });
  return finite(sum);
}

// Loops of known length for the usual block.
template <typename Load, typename Store>
inline bool turn(int64_t n, const Load& load, const Store& store) {
  return n == kUsual ? turned_by(kUsual, load, store) : turned_by(n, load, store);
}

// The same for a few elements: what is left at the end of a tensor.
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

// Whether results go past the caches, which would first read what is overwritten: those in large buffers.
inline bool past_caches(int64_t room, const float* target) { return room >= kLong && can_stream(target); }

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

// Flattened: what a block needs then stays in registers, and the loops of the usual block are unrolled.
[[gnu::flatten]] void forward_run(const float* x, const Run& run, const uint32_t* key, const float* factors,
                                  int64_t size, float* y, int64_t room) {
  Signs drawn(key[0], key[1]);
  for_blocks(run, factors, size, [&](int64_t first, int64_t n, float factor) {
    if (first % kMaxTurned == 0) drawn.seek(run.start + first);
    const float* source = x + first;
    float* target = y + first;
    const SignsFrom signs = drawn.from(first % kMaxTurned);
    if (n < kSigns) {  // these alone may begin between two draws
      float few[kSigns];
      for (int64_t i = 0; i < n; ++i) few[i] = signs.on(source[i] * factor, first % kSigns + i);
      turn_few(n, few);
      for (int64_t i = 0; i < n; ++i) target[i] = one_nan(few[i]);
      return;
    }
    const auto taken = [&](int64_t i) {
      if (i % kLine == 0) __builtin_prefetch(source + i + kAhead);
      return signs.on(load(source + i) * factor, i);
    };
    const bool clean = past_caches(room, target)
                           ? turn(n, taken, [&](int64_t i, Float v) { stream(target + i, v); })
                           : turn(n, taken, [&](int64_t i, Float v) { *reinterpret_cast<FloatAt*>(target + i) = v; });
    if (!clean) one_nan(target, n);
  });
}

[[gnu::flatten]] void inverse_run(const float* y, const Run& run, const uint32_t* key, const float* factors,
                                  int64_t size, float* x, int64_t room) {
  Signs drawn(key[0], key[1]);
  for_blocks(run, factors, size, [&](int64_t first, int64_t n, float factor) {
    if (first % kMaxTurned == 0) drawn.seek(run.start + first);
    const float* source = y + first;
    float* target = x + first;
    const SignsFrom signs = drawn.from(first % kMaxTurned);
    if (n < kSigns) {
      float few[kSigns];
      for (int64_t i = 0; i < n; ++i) few[i] = source[i];
      turn_few(n, few);
      for (int64_t i = 0; i < n; ++i) target[i] = one_nan(signs.on(few[i] * factor, first % kSigns + i));
      return;
    }
    const auto taken = [&](int64_t i) {
      if (i % kLine == 0) __builtin_prefetch(source + i + kAhead);
      return load(source + i);
    };
    const auto given = [&](int64_t i, Float v) { return signs.on(v * factor, i); };
    const bool clean =
        past_caches(room, target)
            ? turn(n, taken, [&](int64_t i, Float v) { stream(target + i, given(i, v)); })
            : turn(n, taken, [&](int64_t i, Float v) { *reinterpret_cast<FloatAt*>(target + i) = given(i, v); });
    if (!clean || !finite(factor)) one_nan(target, n);
  });
}

void forward(const float* x, const Run* runs, int64_t num_runs, const uint32_t* keys, const float* factors,
             int64_t size, float* y, int64_t room) {
  for (int64_t i = 0; i < num_runs; ++i)
    if (size == 1)
      multiply(x + runs[i].source, runs[i], factors, y + runs[i].target);
    else
      forward_run(x + runs[i].source, runs[i], keys + 2 * i, factors, size, y + runs[i].target, room);
  end_of_stream();
}

void inverse(const float* y, const Run* runs, int64_t num_runs, const uint32_t* keys, const float* factors,
             int64_t size, float* x, int64_t room) {
  for (int64_t i = 0; i < num_runs; ++i)
    if (size == 1)
      multiply(y + runs[i].target, runs[i], factors, x + runs[i].source);
    else
      inverse_run(y + runs[i].target, runs[i], keys + 2 * i, factors, size, x + runs[i].source, room);
  end_of_stream();
}

}  // namespace

extern const HadamardKernels hadamard{forward, inverse};

}  // namespace tw::TW_ISA
