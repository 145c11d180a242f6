// QSGD kernels: block-wise norms, stochastic rounding to levels -s .. s with packing, integer sums, decoding.
//
// Codes (level + s) are fields of `bits` bits in 32-bit words, see fields.h; field k of column j is element 32*k + j.
// The bytes are defined in wire.md, the arithmetic in src/thinwire/kernels/reference/qsgd.py; both must match.
#pragma once
#include <cstdint>

#include "lane.h"

namespace tw {

struct QsgdKernels {
  void (*scales)(const float* x, const Segment* segments, int64_t num_segments, bool l2, int32_t* scale_bits);
  void (*encode)(const float* x, const Segment* segments, int64_t num_segments, const uint32_t* keys,
                 const float* steps, int bits, uint8_t* payload);
  void (*add)(const uint8_t* payloads, int64_t num_payloads, int64_t granules, int bits, int sum_digits,
              uint32_t* words);
  void (*decode_sum)(const uint32_t* words, int64_t num_shards, int64_t rows_per_shard, int zero, int sum_digits,
                     const Segment* segments, int64_t num_segments, const float* steps, float* x);
  void (*decode_own)(const uint8_t* payloads, int64_t num_payloads, int64_t payload_bytes, int bits,
                     const Segment* segments, int64_t num_segments, const float* steps, int64_t num_steps, float* x);
};

namespace portable { extern const QsgdKernels qsgd; }
namespace avx2 { extern const QsgdKernels qsgd; }
namespace avx512 { extern const QsgdKernels qsgd; }

}  // namespace tw
