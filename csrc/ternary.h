// Ternary kernels (TernGrad): layer-wise statistics, stochastic ternarizing with packing, integer sums, decoding.
//
// A lane is a sequence of rows of 32 elements; every tensor of the lane starts on a granule, that is on a multiple of
// `digits` rows. Byte j of granule g holds `digits` digits; digit k is element 32*k + j of the granule. Padding is 0.
// The bytes are defined in wire.md, the arithmetic in src/thinwire/kernels/reference/ternary.py; both must match.
#pragma once
#include <cstdint>

#include "lane.h"

namespace tw {

struct TernaryKernels {
  void (*scales)(const float* x, const Segment* segments, int64_t num_segments, double clip, bool scaler_is_bound,
                 int32_t* scale_bits, float* bounds);
  void (*encode)(const float* x, const Segment* segments, int64_t num_segments, const uint32_t* keys,
                 const float* scales, const float* bounds, int digits, uint8_t* payload);
  void (*add)(const uint8_t* payloads, int64_t num_payloads, int64_t granules, int digits, int sum_digits,
              uint32_t* words);
  void (*decode_sum)(const uint32_t* words, int64_t num_shards, int64_t rows_per_shard, int num_summands,
                     int sum_digits, const Segment* segments, int64_t num_segments, const float* steps, float* x);
  void (*decode_own)(const uint8_t* payload, int digits, const Segment* segments, int64_t num_segments,
                     const float* scales, float* x);
};

namespace portable { extern const TernaryKernels ternary; }
namespace avx2 { extern const TernaryKernels ternary; }
namespace avx512 { extern const TernaryKernels ternary; }

}  // namespace tw
