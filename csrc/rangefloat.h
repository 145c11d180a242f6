// Range float kernels: fitting, rounding to N-bit floats whose grid ends at max|x|, packing, decoding.
//
// Codes are fields of `bits` bits in 32-bit words (fields.h), the tensors' codes end to end. A fit is (bit pattern of
// max|x|, mantissa bits). The bytes are defined in docs/reference/wire.md, the arithmetic in
// src/thinwire/kernels/reference/rangefloat.py; both must match.
#pragma once
#include <cstdint>

namespace tw {

// Numbers that share a fit: a tensor of the lane, or a block of it.
struct Span {
  int64_t offset, numel;
};

struct Fit {
  int32_t largest, mantissa;
};

// How many numbers did not fit: too large, and so small that they became 0.
struct Lost {
  int64_t saturated, underflown;
};

struct RangefloatKernels {
  // Writes max|x| (if `largest` is 0) and then the errors of `count` mantissas from `first` on, for every span.
  void (*measure)(const float* x, const Span* spans, int64_t num_spans, int bits, int first, int count, int32_t largest,
                  int32_t* words);
  void (*encode)(const float* x, const Span* spans, const Fit* fits, int64_t num_spans, int bits, uint8_t* payload,
                 Lost* lost);
  // `fits`: those of the first payload, then those of the second, and so on.
  void (*decode)(const uint8_t* payloads, int64_t num_payloads, int64_t payload_bytes, const Span* spans,
                 const Fit* fits, int64_t num_spans, int bits, float factor, float* x);
};

namespace portable { extern const RangefloatKernels rangefloat; }
namespace avx2 { extern const RangefloatKernels rangefloat; }
namespace avx512 { extern const RangefloatKernels rangefloat; }

}  // namespace tw
