// Decoded rows of 32 levels on their way to the tensors of a lane. Compiled once per instruction set (TW_ISA names the
// namespace).
#pragma once
#include "vectors.h"

namespace tw::TW_ISA {
namespace {

constexpr int64_t kManyNumbers = 1 << 18;  // they leave the caches anyway

// Takes the rows of a lane in order, x = level * step; what belongs to no tensor is dropped. Whole rows of many go past
// the caches where they can: nothing reads them soon, and a cached store would first read what it overwrites, which is
// half of the memory traffic of decoding.
class RowWriter {
 public:
  RowWriter(const Segment* segments, int64_t num_segments, const float* steps, float* x)
      : segment_(segments), end_(segments + num_segments), steps_(steps), x_(x) {
    int64_t numel = 0;
    for (int64_t i = 0; i < num_segments; ++i) numel += segments[i].numel;
    many_ = numel >= kManyNumbers;
  }

  void put(int64_t row, const Int* levels) {
    if (row >= until_) seek(row);
    if (present_ == kRow) {
      float* out = out_ + (row - from_) * kRow;
      if (streamed_)
        for (int i = 0; i < kVectors; ++i) stream(out + kWidth * i, value(levels[i]));
      else
        for (int i = 0; i < kVectors; ++i) *reinterpret_cast<FloatAt*>(out + kWidth * i) = value(levels[i]);
    } else if (present_ > 0) {
      Float values[kVectors];
      for (int i = 0; i < kVectors; ++i) values[i] = value(levels[i]);
      std::memcpy(out_, values, static_cast<size_t>(present_) * 4);
    }
  }

 private:
  Float value(Int level) const { return __builtin_convertvector(level, Float) * step_; }

  // Finds where a row goes, and how many rows behind it go on there under the same scale.
  void seek(int64_t row) {
    while (segment_ + 1 < end_ && row >= segment_[1].row) ++segment_;
    const Segment& s = *segment_;
    const int64_t element = (row - s.row) * kRow, left = s.numel - element;
    from_ = row;
    if (row < s.row || left <= 0) {
      present_ = 0;
      until_ = row < s.row ? s.row : segment_ + 1 < end_ ? segment_[1].row : INT64_MAX;
      return;
    }
    out_ = x_ + s.offset + element;
    step_ = steps_[scale_.at(s, element)];
    streamed_ = many_ && can_stream(out_);
    present_ = least(left, kRow);
    until_ = row + most<int64_t>(least(left, scale_.end() - element) / kRow, 1);
  }

  const Segment *segment_, *end_;
  const float* steps_;
  float *x_, *out_ = nullptr;
  ScaleCursor scale_;
  float step_ = 0;
  bool many_, streamed_ = false;
  int64_t from_ = 0, until_ = INT64_MIN, present_ = 0;
};

}  // namespace
}  // namespace tw::TW_ISA
