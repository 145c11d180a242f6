// A lane as kernels see it: rows of 32 elements, and a table of the tensors (or of runs of them) in it.
#pragma once
#include <cstdint>

namespace tw {

constexpr int64_t kRow = 32;

// One tensor of a lane, or a run of its elements that begins at element `start` (a multiple of kRow). `block`
// elements of the tensor share a scale (a multiple of kRow, or 0: all of them); `scale` is the tensor's first.
struct Segment {
  int64_t offset, numel, row, scale, block, start;
};
constexpr int64_t kColumns = sizeof(Segment) / sizeof(int64_t);

namespace {  // functions with internal linkage: see basics.h

inline int64_t scale_index(const Segment& s, int64_t element) {
  return s.scale + (s.block == 0 ? 0 : (s.start + element) / s.block);
}

inline int64_t num_blocks(const Segment& s) { return s.block == 0 ? 1 : (s.numel + s.block - 1) / s.block; }

// A granule of fields of `bits` bits (fields.h): as few rows as fill whole 32-bit words.
constexpr int field_rows(int bits) {
  int rows = 32;
  for (; bits % 2 == 0 && rows > 1; bits /= 2) rows /= 2;
  return rows;
}
constexpr int64_t field_granule_bytes(int bits) { return kRow * bits * field_rows(bits) / 8; }

// The scale of an element, walking forwards: divides once a block, not once a row.
class ScaleCursor {
 public:
  int64_t at(const Segment& s, int64_t element) {
    if (&s != segment_ || element >= end_) {
      segment_ = &s;
      index_ = scale_index(s, element);
      end_ = s.block == 0 ? INT64_MAX : (index_ - s.scale + 1) * s.block - s.start;
    }
    return index_;
  }
  // The first element of the segment that may have another scale than the one asked for last.
  int64_t end() const { return end_; }

 private:
  const Segment* segment_ = nullptr;
  int64_t index_ = 0, end_ = 0;
};

}  // namespace
}  // namespace tw
