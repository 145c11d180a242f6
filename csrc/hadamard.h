// Random rotations of blocks: signs, factors and Hadamard's matrix, orthonormal, in one order of operations: the same
// bits on every machine. The order is defined in src/thinwire/kernels/reference/hadamard.py; both must match.
#pragma once
#include <cstdint>

namespace tw {

// `numel` elements of a tensor, from its element `start` on: where they lie before (`source`) and behind (`target`) a
// rotation. `block` elements of the tensor share a factor (0: all of them); `scale` is the tensor's first.
struct Run {
  int64_t source, numel, target, scale, block, start;
};
constexpr int64_t kRunColumns = sizeof(Run) / sizeof(int64_t);
constexpr int64_t kMaxTurned = 4096;  // elements of a block, a power of two

struct HadamardKernels {
  // y = H (s o f x): two key words a run; `size` elements are turned together. y has `room` elements.
  void (*forward)(const float* x, const Run* runs, int64_t num_runs, const uint32_t* keys, const float* factors,
                  int64_t size, float* y, int64_t room);
  // x = f s o H y; x has `room` elements.
  void (*inverse)(const float* y, const Run* runs, int64_t num_runs, const uint32_t* keys, const float* factors,
                  int64_t size, float* x, int64_t room);
};

namespace portable { extern const HadamardKernels hadamard; }
namespace avx2 { extern const HadamardKernels hadamard; }
namespace avx512 { extern const HadamardKernels hadamard; }

}  // namespace tw
