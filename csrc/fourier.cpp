// Fourier and cosine transforms, compiled once per instruction set (TW_ISA names the namespace).
#include "fourier.h"

#include "butterflies.h"

namespace tw::TW_ISA {
namespace {

// 0, 1, ... as many as a vector has lanes.
template <int...>
struct Counting {};
template <int kCount, int... kRest>
struct Count : Count<kCount - 1, kCount - 1, kRest...> {};
template <int... kRest>
struct Count<0, kRest...> {
  using Type = Counting<kRest...>;
};
using Lanes = Count<kWidth>::Type;

template <typename T>
struct Buffers {
  T *now, *spare;

  void swap() {
    T* const old = now;
    now = spare;
    spare = old;
  }
};

// The place of number j of a row: its own, or that of the cosine transform: x_0, x_2, ..., x_3, x_1.
inline int64_t place_of(int64_t j, const Turning& t) {
  if (t.cosines == nullptr) return j;
  return j % 2 == 0 ? j / 2 : t.length - 1 - j / 2;
}

// What is no number becomes one NaN: its bits would depend on the order of the operands.
inline float one_nan(float x) { return x == x ? x : float_of(0x7fc00000u); }
inline Float one_nan(Float x) { return x == x ? x : splat(float_of(0x7fc00000u)); }

// Exchanges blocks of kHalfway lanes between vectors that lie as far apart. The masks must be constants: a shuffle by
// a mask that is known only at run time is several instructions.
template <int kHalfway, int... kLane>
inline void exchange(Float (&v)[kWidth], Counting<kLane...>) {
  constexpr Int low{((kLane & kHalfway) ? kWidth + kLane - kHalfway : kLane)...};
  constexpr Int high{((kLane & kHalfway) ? kWidth + kLane : kLane + kHalfway)...};
  for (int i = 0; i < kWidth; ++i)
    if (!(i & kHalfway)) {
      const Float a = v[i], b = v[i + kHalfway];
      v[i] = __builtin_shuffle(a, b, low);
      v[i + kHalfway] = __builtin_shuffle(a, b, high);
    }
}

// Vector i lane j and vector j lane i change places.
inline void transpose(Float (&v)[kWidth]) {
  exchange<1>(v, Lanes{});
  exchange<2>(v, Lanes{});
  if constexpr (kWidth > 4) exchange<4>(v, Lanes{});
  if constexpr (kWidth > 8) exchange<8>(v, Lanes{});
}

// Rows of `width` numbers to slots: number j goes to slot to(j). Rows beyond `count` are the last one again.
template <typename To>
inline void spread(const float* rows, int64_t width, int count, Float* slots, To to) {
  const auto row = [&](int i) { return rows + (i < count ? i : count - 1) * width; };
  int64_t j = 0;
  for (; j + kWidth <= width; j += kWidth) {
    Float v[kWidth];
    for (int i = 0; i < kWidth; ++i) v[i] = *reinterpret_cast<const FloatAt*>(row(i) + j);
    transpose(v);
    for (int i = 0; i < kWidth; ++i) slots[to(j + i)] = v[i];
  }
  for (; j < width; ++j)
    for (int i = 0; i < kWidth; ++i) slots[to(j)][i] = row(i)[j];
}

template <typename To>
inline void spread(const float* row, int64_t width, int, float* slots, To to) {
  for (int64_t j = 0; j < width; ++j) slots[to(j)] = row[j];
}

// Back: slot from(j) to number j.
template <typename From>
inline void collect(const Float* slots, From from, int64_t width, int count, float* rows) {
  int64_t j = 0;
  for (; j + kWidth <= width; j += kWidth) {
    Float v[kWidth];
    for (int i = 0; i < kWidth; ++i) v[i] = one_nan(slots[from(j + i)]);
    transpose(v);
    for (int i = 0; i < count; ++i) *reinterpret_cast<FloatAt*>(rows + i * width + j) = v[i];
  }
  for (; j < width; ++j)
    for (int i = 0; i < count; ++i) rows[i * width + j] = one_nan(slots[from(j)][i]);
}

template <typename From>
inline void collect(const float* slots, From from, int64_t width, int, float* row) {
  for (int64_t j = 0; j < width; ++j) row[j] = one_nan(slots[from(j)]);
}

// The complex transform of N points; Bluestein's way if `inner` is longer: a convolution with a chirp.
template <typename T>
void transform(Buffers<T>& b, const Turning& t) {
  if (t.inner != t.points) {
    for (int64_t k = 0; k < t.points; ++k) put(b.now, k, times(point(b.now, k), t.chirp[2 * k], t.chirp[2 * k + 1]));
    for (int64_t k = 2 * t.points; k < 2 * t.inner; ++k) b.now[k] = T{};
  }
  const auto run = [&] {
    T* const done = run_passes(b.now, b.spare, t.inner, t.radices, t.num_radices, t.passes);
    if (done != b.now) b.swap();
  };
  run();
  if (t.inner == t.points) return;
  for (int64_t k = 0; k < t.inner; ++k) {  // parts change places: the transform after it is then the inverse one
    const Point<T> z = times(point(b.now, k), t.filter[2 * k], t.filter[2 * k + 1]);
    put(b.now, k, {z.im, z.re});
  }
  run();
  for (int64_t k = 0; k < t.points; ++k) {
    const Point<T> z{b.now[2 * k + 1], b.now[2 * k]};
    put(b.now, k, times(z, t.chirp[2 * k], t.chirp[2 * k + 1]));
  }
}

// Points of the complex transform of (x_0 + i x_1, x_2 + i x_3, ...) to the spectrum of x, in pairs; and back, which
// is the same with the factors mirrored.
template <typename T>
void untangle(T* slots, const Turning& t, bool back) {
  const float whole = t.ends[0], part = t.ends[1], sign = back ? -1.0f : 1.0f;
  const Point<T> first = point(slots, 0);
  put(slots, 0, {(first.re + first.im) * whole, (first.re - first.im) * whole});
  for (int64_t k = 1; k <= t.points - k; ++k) {
    const Point<T> low = point(slots, k), high = mirrored(point(slots, t.points - k));
    const Point<T> even = scaled(low + high, part);
    const Point<T> odd = times(low - high, t.ends[4 + 2 * k], sign * t.ends[5 + 2 * k]);
    put(slots, k, even + odd);
    put(slots, t.points - k, mirrored(even - odd));
  }
}

// The same for odd n, where the complex transform is as long as x: the second half mirrors the first.
template <typename T>
void halve(T* slots, const Turning& t) {
  put(slots, 0, {slots[0] * t.ends[0], T{}});
  for (int64_t k = 1; k < t.pairs(); ++k) put(slots, k, scaled(point(slots, k), t.ends[2]));
}

template <typename T>
void unhalve(T* slots, const Turning& t) {
  put(slots, 0, {slots[0] * t.ends[0], T{}});
  for (int64_t k = 1; k < t.pairs(); ++k) {
    const Point<T> z = scaled(point(slots, k), t.ends[1]);
    put(slots, k, z);
    put(slots, t.length - k, mirrored(z));
  }
}

// Pairs to cosines: y_k and -y_(n-k) are the parts of pair k, turned.
template <typename T>
void to_cosines(Buffers<T>& b, const Turning& t) {
  b.spare[0] = b.now[0];
  if (!t.odd()) b.spare[t.length / 2] = b.now[1];
  for (int64_t k = 1; k < t.pairs(); ++k) {
    const Point<T> z = times(point(b.now, k), t.cosines[2 * k], t.cosines[2 * k + 1]);
    b.spare[k] = z.re;
    b.spare[t.length - k] = -z.im;
  }
  b.swap();
}

template <typename T>
void from_cosines(Buffers<T>& b, const Turning& t) {
  put(b.spare, 0, {b.now[0], t.odd() ? T{} : b.now[t.length / 2]});
  for (int64_t k = 1; k < t.pairs(); ++k)
    put(b.spare, k, times(Point<T>{b.now[k], -b.now[t.length - k]}, t.cosines[2 * k], -t.cosines[2 * k + 1]));
  b.swap();
}

template <typename T>
void forward_rows(const float* x, int count, const Turning& t, float* y, Buffers<T> b) {
  if (t.odd()) {
    spread(x, t.length, count, b.now, [&](int64_t j) { return 2 * place_of(j, t); });
    for (int64_t k = 0; k < t.length; ++k) b.now[2 * k + 1] = T{};
  } else {
    spread(x, t.length, count, b.now, [&](int64_t j) { return place_of(j, t); });
  }
  transform(b, t);
  if (t.odd())
    halve(b.now, t);
  else
    untangle(b.now, t, false);
  if (t.cosines != nullptr) to_cosines(b, t);
  collect(b.now, [](int64_t j) { return j; }, t.width(), count, y);
}

template <typename T>
void inverse_rows(const float* y, int count, const Turning& t, float* x, Buffers<T> b) {
  spread(y, t.width(), count, b.now, [](int64_t j) { return j; });
  if (t.cosines != nullptr) from_cosines(b, t);
  if (t.odd())
    unhalve(b.now, t);
  else
    untangle(b.now, t, true);
  for (int64_t k = 0; k < t.points; ++k) {  // parts change places: the transform is then the inverse one
    const Point<T> z = point(b.now, k);
    put(b.now, k, {z.im, z.re});
  }
  transform(b, t);
  if (t.odd())
    collect(b.now, [&](int64_t j) { return 2 * place_of(j, t) + 1; }, t.length, count, x);
  else
    collect(b.now, [&](int64_t j) { return place_of(j, t) ^ 1; }, t.length, count, x);
}

// Rows side by side while there are several, then one by one.
template <typename Many, typename One>
void each(int64_t count, const Turning& t, float* room, Many many, One one) {
  while (reinterpret_cast<uintptr_t>(room) % (4 * kMostLanes) != 0) ++room;
  int64_t row = 0;
  if (t.inner <= kSideBySide) {
    Float* const slots = reinterpret_cast<Float*>(room);
    for (; row + 1 < count; row += kWidth)
      many(row, static_cast<int>(count - row < kWidth ? count - row : kWidth), Buffers<Float>{slots, slots + t.room()});
  }
  for (; row < count; ++row) one(row, Buffers<float>{room, room + t.room()});
}

void forward(const float* x, int64_t count, const Turning& t, float* y, float* room) {
  const auto work = [&](int64_t row, int rows, auto buffers) {
    forward_rows(x + row * t.length, rows, t, y + row * t.width(), buffers);
  };
  each(count, t, room, work, [&](int64_t row, auto buffers) { work(row, 1, buffers); });
}

void inverse(const float* y, int64_t count, const Turning& t, float* x, float* room) {
  const auto work = [&](int64_t row, int rows, auto buffers) {
    inverse_rows(y + row * t.width(), rows, t, x + row * t.length, buffers);
  };
  each(count, t, room, work, [&](int64_t row, auto buffers) { work(row, 1, buffers); });
}

}  // namespace

extern const FourierKernels fourier{forward, inverse};

}  // namespace tw::TW_ISA
