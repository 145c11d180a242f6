// Real Fourier and cosine transforms of rows, orthonormal, in one order of operations: the same bits on every
// machine. The order is defined in src/thinwire/kernels/reference/fourier.py; both must match.
#pragma once
#include <cstdint>

namespace tw {

// A transform of one length and its tables, as thinwire/codecs/fft.py makes them.
struct Turning {
  int64_t length;  // n, numbers of a row
  int64_t points;  // N, of the complex transform inside: n / 2, or n if n is odd
  int64_t inner;   // length of the complex transforms that are run: N, or a power of two (Bluestein)
  const int64_t* radices;
  int64_t num_radices;
  const float* passes;   // factors of every pass but those of its first group: (radix - 1) pairs for p = 1, 2, ...
  const float* ends;     // 1 / sqrt(n), 1 / sqrt(2n), sqrt(2 / n), 0; then pairs for k = 0 ... N / 2 if n is even
  const float* chirp;    // N pairs, and
  const float* filter;   // `inner` pairs, if inner != N
  const float* cosines;  // pairs for k = 0 ... (n - 1) / 2, or null: no cosine transform

  bool odd() const { return length % 2 != 0; }
  int64_t pairs() const { return (length + 1) / 2; }
  int64_t width() const { return cosines != nullptr ? length : 2 * pairs(); }  // numbers of a transformed row
  int64_t room() const { return 2 * (inner + 1); }                             // slots of each of two buffers
};

constexpr int64_t kMostLanes = 16;        // rows that are transformed side by side, at most
constexpr int64_t kSideBySide = 1 << 16;  // longer rows are transformed one by one: they would leave the cache

// Floats that transforms need to work.
inline int64_t fourier_room(const Turning& t) {
  return 2 * t.room() * (t.inner <= kSideBySide ? kMostLanes : 1) + kMostLanes;
}

struct FourierKernels {
  void (*forward)(const float* x, int64_t count, const Turning& turning, float* y, float* room);
  void (*inverse)(const float* y, int64_t count, const Turning& turning, float* x, float* room);
};

namespace portable { extern const FourierKernels fourier; }
namespace avx2 { extern const FourierKernels fourier; }
namespace avx512 { extern const FourierKernels fourier; }

}  // namespace tw
