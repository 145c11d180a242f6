// Places of chosen groups as bits (wire.md): written chunk after chunk, and read back with every index checked.
// Compiled once per instruction set (TW_ISA names the namespace).
#pragma once
#include <cstdint>
#include <cstring>

#include "basics.h"
#include "topk.h"

namespace tw::TW_ISA {
namespace {

// Writes numbers of a few bits each, the lowest bits first.
class BitWriter {
 public:
  BitWriter(uint8_t* bytes, int64_t width) : bytes_(bytes), width_(static_cast<int>(width)) {}

  void put(uint32_t value) {
    word_ |= static_cast<uint64_t>(value) << filled_;
    filled_ += width_;
    if (filled_ >= 32) {
      std::memcpy(bytes_, &word_, 4);
      bytes_ += 4, word_ >>= 32, filled_ -= 32;
    }
  }
  void finish() { std::memcpy(bytes_, &word_, static_cast<size_t>(filled_ + 7) / 8); }

 private:
  uint8_t* bytes_;
  uint64_t word_ = 0;
  int width_, filled_ = 0;
};

// Sets ascending bits of `size` bytes, and clears the others.
class BitMarker {
 public:
  BitMarker(uint8_t* bytes, int64_t size) : bytes_(bytes), size_(size) {}

  void mark(int64_t bit) {
    while (bit >= base_ + 64) flush();
    word_ |= uint64_t{1} << (bit - base_);
  }
  void finish() {
    while (base_ < 8 * size_) flush();
  }

 private:
  void flush() {
    const int64_t first = base_ / 8;
    std::memcpy(bytes_ + first, &word_, static_cast<size_t>(least<int64_t>(8, size_ - first)));
    word_ = 0, base_ += 64;
  }
  uint8_t* bytes_;
  int64_t size_, base_ = 0;
  uint64_t word_ = 0;
};

// Reads what a BitWriter wrote; never beyond `size` bytes.
class BitReader {
 public:
  BitReader(const uint8_t* bytes, int64_t size, int64_t width)
      : bytes_(bytes), end_(bytes + size), width_(static_cast<int>(width)) {}

  uint32_t get() {
    if (filled_ < width_) {
      const auto count = static_cast<size_t>(least<int64_t>(4, end_ - bytes_));
      uint32_t next = 0;
      std::memcpy(&next, bytes_, count);
      bytes_ += count;
      word_ |= static_cast<uint64_t>(next) << filled_;
      filled_ += 32;
    }
    const auto value = static_cast<uint32_t>(word_ & ((uint64_t{1} << width_) - 1));
    word_ >>= width_, filled_ -= width_;
    return value;
  }

 private:
  const uint8_t *bytes_, *end_;
  uint64_t word_ = 0;
  int width_, filled_ = 0;
};

// Finds the set bits of some bytes one after the other.
class BitScanner {
 public:
  static constexpr int64_t kNone = INT64_MAX;

  BitScanner(const uint8_t* bytes, int64_t size) : bytes_(bytes), size_(size) {}

  int64_t next() {
    while (word_ == 0) {
      if (read_ >= size_) return kNone;
      base_ = 8 * read_;
      std::memcpy(&word_, bytes_ + read_, static_cast<size_t>(least<int64_t>(8, size_ - read_)));
      read_ += 8;
    }
    const int64_t bit = base_ + __builtin_ctzll(word_);
    word_ &= word_ - 1;
    return bit;
  }

 private:
  const uint8_t* bytes_;
  int64_t size_, read_ = 0, base_ = 0;
  uint64_t word_ = 0;
};

// Writes the indices of a run, chunk after chunk; they ascend within a chunk.
class PlaceWriter {
 public:
  PlaceWriter(uint8_t* indices, const Run& r)
      : run_(r), high_bits_(high_bits(r)), mask_((1u << r.low_bits) - 1), low_(indices + r.low_byte, r.low_bits),
        high_(indices + r.high_byte, high_bytes(r)) {}

  void put(int64_t index) {
    low_.put(static_cast<uint32_t>(index) & mask_);
    if (high_bits_ != 0) high_.mark(base_ + (index >> run_.low_bits) + (run_.low_bits == 0 ? 0 : rank_));
    if (++rank_ == run_.k) rank_ = 0, base_ += high_bits_;
  }
  void finish() {
    low_.finish();
    high_.finish();
  }

 private:
  const Run& run_;
  int64_t high_bits_, rank_ = 0, base_ = 0;
  uint32_t mask_;
  BitWriter low_;
  BitMarker high_;
};

// Reads what a PlaceWriter wrote.
class PlaceReader {
 public:
  PlaceReader(const uint8_t* indices, const Run& r)
      : run_(r), high_bits_(high_bits(r)), low_(indices + r.low_byte, low_bytes(r), r.low_bits),
        high_(indices + r.high_byte, high_bytes(r)) {}

  // The next index in its chunk, or -1 if the bytes are damaged.
  int64_t next() {
    int64_t index = whole(run_) ? rank_ : low_.get();
    if (high_bits_ != 0) {
      const int64_t bit = high_.next() - base_;
      const int64_t part = bit - (run_.low_bits == 0 ? 0 : rank_);
      if (bit < 0 || bit >= high_bits_ || part < 0) return -1;
      index |= part << run_.low_bits;
    }
    if (++rank_ == run_.k) rank_ = 0, base_ += high_bits_;
    return index < run_.chunk ? index : -1;
  }
  // No bits beyond the last place.
  bool at_end() { return high_.next() >= base_; }

 private:
  const Run& run_;
  int64_t high_bits_, rank_ = 0, base_ = 0;
  BitReader low_;
  BitScanner high_;
};

}  // namespace
}  // namespace tw::TW_ISA
