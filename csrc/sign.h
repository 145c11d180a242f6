// Sign kernels (1-bit SGD): one bit an element and the values that stand for both signs, block by block.
//
// Bits are fields of one bit in 32-bit words, see fields.h: bit k of word j of a granule is element 32*k + j, 1 for
// x >= 0. Padding is 1.
// The bytes are defined in wire.md, the arithmetic in src/thinwire/kernels/reference/sign.py; both must match.
#pragma once
#include <cstdint>

#include "lane.h"

namespace tw {

struct SignKernels {
  void (*encode)(const float* x, const Segment* segments, int64_t num_segments, bool scaled, uint8_t* payload,
                 float* low, float* high);
  void (*decode)(const uint8_t* payloads, int64_t num_payloads, int64_t payload_bytes, const Segment* segments,
                 int64_t num_segments, const float* low, const float* high, int64_t num_values, float* x);
};

namespace portable { extern const SignKernels sign; }
namespace avx2 { extern const SignKernels sign; }
namespace avx512 { extern const SignKernels sign; }

}  // namespace tw
