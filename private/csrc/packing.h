// Exact-width packing: `count` values of `width` bits become ceil(count * width / 8) bytes.
// Full blocks of 256 values lie in lanes, so that one vector holds the same bit position of several values: of a block
// of words of B bits, value r * (256 / B) + lane is the r-th of its lane's bit stream. The rest is one plain
// little-endian bit stream. Compiled once per instruction set.
#pragma once
#include <cstdint>
#include <cstring>

namespace tw::crypt::TW_ISA {
namespace {

constexpr size_t kBlock = 256;

typedef uint32_t Lanes32 __attribute__((vector_size(32)));
typedef uint64_t Lanes64 __attribute__((vector_size(32)));

template <typename Word>
struct LaneOf;
template <>
struct LaneOf<uint32_t> {
  using Lanes = Lanes32;
};
template <>
struct LaneOf<uint64_t> {
  using Lanes = Lanes64;
};

template <typename Lanes>
inline void load(Lanes& lanes, const void* from) {
  std::memcpy(&lanes, from, sizeof(Lanes));
}
template <typename Lanes>
inline void store(void* to, const Lanes& lanes) {
  std::memcpy(to, &lanes, sizeof(Lanes));
}

// One block of 256 values (already below 2^width) into 32 * width bytes.
template <typename Word>
inline void pack_block(const Word* __restrict values, int width, uint8_t* __restrict wire) {
  using Lanes = typename LaneOf<Word>::Lanes;
  constexpr int kBits = 8 * sizeof(Word), kLanes = 256 / kBits;
  Lanes word = {};
  int used = 0;
  for (int r = 0; r < kBits; ++r) {
    Lanes value;
    load(value, values + r * kLanes);
    word |= value << used;
    used += width;
    if (used >= kBits) {
      store(wire, word);
      wire += sizeof(Lanes);
      used -= kBits;
      word = used ? value >> (width - used) : Lanes{};
    }
  }
}

template <typename Word>
inline void unpack_block(const uint8_t* __restrict wire, int width, Word* __restrict values) {
  using Lanes = typename LaneOf<Word>::Lanes;
  constexpr int kBits = 8 * sizeof(Word), kLanes = 256 / kBits;
  const Word mask = width == kBits ? ~Word{0} : static_cast<Word>((Word{1} << width) - 1);
  Lanes word = {};
  int left = 0;  // unread bits of `word`, at its low end
  for (int r = 0; r < kBits; ++r) {
    Lanes value = word;
    if (left < width) {
      Lanes next;
      load(next, wire);
      wire += sizeof(Lanes);
      value |= left ? next << left : next;
      const int taken = width - left;
      word = taken == kBits ? Lanes{} : next >> taken;
      left = kBits - taken;
    } else {
      word = word >> width;
      left -= width;
    }
    store(values + r * kLanes, value & mask);
  }
}

template <typename Word>
inline void pack_tail(const Word* values, size_t count, int width, uint8_t* wire) {
  unsigned __int128 word = 0;
  int used = 0;
  for (size_t i = 0; i < count; ++i) {
    word |= static_cast<unsigned __int128>(values[i]) << used;
    for (used += width; used >= 8; used -= 8, word >>= 8) *wire++ = static_cast<uint8_t>(word);
  }
  if (used > 0) *wire = static_cast<uint8_t>(word);
}

template <typename Word>
inline void unpack_tail(const uint8_t* wire, size_t count, int width, Word* values) {
  const uint64_t mask = width == 64 ? ~uint64_t{0} : (uint64_t{1} << width) - 1;
  unsigned __int128 word = 0;
  int left = 0;
  for (size_t i = 0; i < count; ++i) {
    for (; left < width; left += 8) word |= static_cast<unsigned __int128>(*wire++) << left;
    values[i] = static_cast<Word>(static_cast<uint64_t>(word) & mask);
    word >>= width;
    left -= width;
  }
}

// A stream of values packed block by block as they come. Widths up to 32 use 32-bit lanes, wider ones 64-bit lanes.
template <typename Word>
class Packer {
 public:
  Packer(Word* stage, int width, uint8_t* wire) : stage_(stage), width_(width), wire_(wire) {}
  Word* next() { return stage_ + filled_; }  // room for the next values, already masked
  void advance(size_t count) {
    filled_ += count;
    size_t done = 0;
    for (; filled_ - done >= kBlock; done += kBlock, wire_ += 32 * static_cast<size_t>(width_)) block(stage_ + done);
    if (done > 0) std::memmove(stage_, stage_ + done, (filled_ -= done) * sizeof(Word));
  }
  void finish() { pack_tail(stage_, filled_, width_, wire_); }

 private:
  void block(const Word* values) {
    if (sizeof(Word) == 8 && width_ <= 32) {
      uint32_t narrow[kBlock];
      for (size_t i = 0; i < kBlock; ++i) narrow[i] = static_cast<uint32_t>(values[i]);
      pack_block(narrow, width_, wire_);
    } else {
      pack_block(values, width_, wire_);
    }
  }
  Word* stage_;
  size_t filled_ = 0;
  int width_;
  uint8_t* wire_;
};

// The other way: hands out `count` values at a time from a packed stream of `total` values.
template <typename Word>
class Unpacker {
 public:
  Unpacker(Word* stage, int width, const uint8_t* wire, size_t total)
      : stage_(stage), width_(width), wire_(wire), left_(total) {}
  const Word* take(size_t count) {
    if (filled_ - taken_ < count) {
      std::memmove(stage_, stage_ + taken_, (filled_ -= taken_) * sizeof(Word));
      taken_ = 0;
      while (filled_ < count) fill();
    }
    const Word* values = stage_ + taken_;
    taken_ += count;
    return values;
  }

 private:
  void fill() {
    if (left_ < kBlock) {
      unpack_tail(wire_, left_, width_, stage_ + filled_);
      filled_ += left_;
      left_ = 0;
      return;
    }
    if (sizeof(Word) == 8 && width_ <= 32) {
      uint32_t narrow[kBlock];
      unpack_block(wire_, width_, narrow);
      for (size_t i = 0; i < kBlock; ++i) stage_[filled_ + i] = narrow[i];
    } else {
      unpack_block(wire_, width_, stage_ + filled_);
    }
    wire_ += 32 * static_cast<size_t>(width_);
    filled_ += kBlock;
    left_ -= kBlock;
  }
  Word* stage_;
  size_t filled_ = 0, taken_ = 0;
  int width_;
  const uint8_t* wire_;
  size_t left_;
};

}  // namespace
}  // namespace tw::crypt::TW_ISA
