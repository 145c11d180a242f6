// The table of segments as it comes from Python: every entry is checked against the buffers it points into.
#pragma once
#include <algorithm>

#include "bind.h"
#include "lane.h"

class Segments {
 public:
  // `rows`: how many the payload has, or -1 if there is none.
  Segments(const Flat<const int64_t>& table, size_t x_size, size_t scales_size, int64_t rows)
      : segments_(reinterpret_cast<const tw::Segment*>(table.data())),
        count_(static_cast<int64_t>(table.size()) / tw::kColumns) {
    require(static_cast<int64_t>(table.size()) % tw::kColumns == 0, "segment table: six columns wanted");
    int64_t last_row = 0;
    for (int64_t i = 0; i < count_; ++i) {
      const tw::Segment& s = segments_[i];
      const int64_t size = static_cast<int64_t>(x_size);
      require(s.offset >= 0 && s.numel >= 0 && s.offset <= size && s.numel <= size - s.offset,
              "segment table: a tensor lies outside the buffer");
      require(s.block >= 0 && s.block < kHuge && s.block % tw::kRow == 0,
              "segment table: block is not a multiple of 32");
      require(s.start >= 0 && s.start < kHuge && s.start % tw::kRow == 0,
              "segment table: start is not a multiple of 32");
      require(s.scale >= 0 && s.scale < kHuge &&
                  tw::scale_index(s, std::max<int64_t>(s.numel, 1) - 1) < static_cast<int64_t>(scales_size),
              "segment table: a scale lies outside the table of scales");
      require(s.row >= last_row && s.row < kHuge, "segment table: rows overlap");
      last_row = s.row + (s.numel + tw::kRow - 1) / tw::kRow;
    }
    require(rows < 0 || last_row <= rows, "segment table: rows lie outside the payload");
  }
  const tw::Segment* data() const { return segments_; }
  int64_t count() const { return count_; }

 private:
  static constexpr int64_t kHuge = int64_t{1} << 60;  // no sum of two such numbers overflows
  const tw::Segment* segments_;
  int64_t count_;
};

// Two words for every segment, or null for none: then nothing is drawn, and values go to the nearest level.
inline const uint32_t* key_words(const Flat<const int32_t>& keys, int64_t num_segments) {
  require(keys.size() == 0 || keys.size() == static_cast<size_t>(2 * num_segments), "keys: two words a segment wanted");
  return keys.size() == 0 ? nullptr : reinterpret_cast<const uint32_t*>(keys.data());
}
