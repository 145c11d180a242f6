// Walks the OTs in chunks whose bit rows stay in the cache, then turns 128 bit rows into one 16-byte row per OT.
#include "extension.h"

#include <algorithm>
#include <cstring>

#include "kernels.h"

namespace tw::crypt {
namespace {

constexpr size_t kChunk = 16384;            // OTs
constexpr size_t kChunkBytes = kChunk / 8;  // of one bit row
constexpr size_t kChunkBlocks = kChunk / 128;
constexpr size_t kMaxReadyBytes = size_t{128} << 20;  // made ahead in one direction

// Bit rows of one chunk, and their transpose into rows of `groups` * 16 bytes.
class BitRows {
 public:
  explicit BitRows(size_t groups) : groups_(groups), bytes_(groups * 128 * kChunkBytes) {
    for (size_t r = 0; r < groups * 128; ++r) pointers_.push_back(bytes_.data() + r * kChunkBytes);
  }
  uint8_t* row(size_t r) { return bytes_.data() + r * kChunkBytes; }

  void transpose_into(uint8_t* rows, size_t count) {
    const size_t stride = 16 * groups_;
    std::vector<uint8_t> last(128 * stride);
    for (size_t first = 0; first < count; first += 128) {
      const bool whole = count - first >= 128;
      uint8_t* out = whole ? rows + first * stride : last.data();
      for (size_t g = 0; g < groups_; ++g)
        kernels().transpose(pointers_.data() + 128 * g, first / 8, out + 16 * g, stride);
      if (!whole) std::memcpy(rows + first * stride, last.data(), (count - first) * stride);
    }
  }

 private:
  size_t groups_;
  std::vector<uint8_t> bytes_;
  std::vector<const uint8_t*> pointers_;
};

// The next part of a key stream: whole blocks, so that streams stay aligned whatever n was.
void stream(const Cipher& cipher, uint8_t* out, size_t num_bytes) {
  std::memset(out, 0, num_bytes);
  cipher.apply(out, out, num_bytes);
}

size_t stream_bytes(size_t count) { return (count + 127) / 128 * 16; }

std::vector<Cipher> ciphers(const uint8_t* keys, size_t count) {
  std::vector<Cipher> made;
  made.reserve(count);
  for (size_t i = 0; i < count; ++i) made.emplace_back(Cipher::Mode::kCtr, keys + 16 * i);
  return made;
}

// All 2^k leaves of a tree, folded: v_b = xor of the leaves whose number has bit b, u = xor of all.
// Neighbours are added level by level, as in a binary counter, so that a leaf costs two xors whatever k is.
// `leaf(j, out)` gives stream j.
template <typename Leaf>
void fold(int k, size_t num_bytes, Leaf leaf, uint8_t* const* v, uint8_t* u) {
  uint8_t left[8][kChunkBytes], now[kChunkBytes];
  for (size_t j = 0; j < size_t{1} << k; ++j) {
    uint8_t* stream_of_leaf = j & 1 ? now : left[0];
    leaf(j, stream_of_leaf);
    if (!(j & 1)) continue;
    int level = 0;
    for (; level < k && (j >> level & 1); ++level) {
      kernels().xor_into(v[level], now, num_bytes);
      kernels().xor_into(now, left[level], num_bytes);
    }
    std::memcpy(level < k ? left[level] : u, now, num_bytes);
  }
}

bool bit(const uint8_t* bits, size_t i) { return bits[i / 8] >> (i % 8) & 1; }

size_t room_for(size_t num_blocks, const Strips& ready) {
  const size_t most = kMaxReadyBytes / ready.block_bytes();
  return std::min(num_blocks, most - std::min(most, ready.num_blocks()));
}

template <typename Make>
void in_chunks(size_t num_blocks, Make make) {
  for (size_t done = 0; done < num_blocks; done += kChunkBlocks) make(std::min(kChunkBlocks, num_blocks - done));
}

// use(part, first OT, number of OTs) until n OTs are done; what is not ready is made now.
template <typename Make, typename Use>
void each_part(size_t n, Strips& ready, Make make, Use use) {
  for (size_t first = 0; first < n;) {
    const size_t due = (n - first + 127) / 128;
    if (ready.num_blocks() == 0) make(std::min(due, kChunkBlocks));
    const Strips::Part part = ready.take(due);
    const size_t count = std::min(128 * part.num_blocks, n - first);
    use(part, first, count);
    first += count;
  }
}

// Bit rows first_row .. first_row + 127 of a part into one row of 16 bytes per OT.
void transpose_part(const Strips::Part& part, size_t first_row, size_t count, uint8_t* rows) {
  const uint8_t* pointers[128];
  uint8_t last[128 * 16];
  for (size_t r = 0; r < 128; ++r) pointers[r] = part.row(first_row + r);
  for (size_t first = 0; first < count; first += 128) {
    const bool whole = count - first >= 128;
    kernels().transpose(pointers, first / 8, whole ? rows + 16 * first : last, 16);
    if (!whole) std::memcpy(rows + 16 * first, last, 16 * (count - first));
  }
}

}  // namespace

Strips::Part Strips::add(size_t num_blocks) {
  num_blocks_ += num_blocks;
  strips_.push_back({std::vector<uint8_t>(num_rows_ * 16 * num_blocks), num_blocks, 0});
  return {strips_.back().bytes.data(), num_blocks, 16 * num_blocks};
}

Strips::Part Strips::take(size_t most) {
  while (strips_.front().taken == strips_.front().num_blocks) strips_.pop_front();
  Strip& strip = strips_.front();
  const size_t count = std::min(most, strip.num_blocks - strip.taken);
  uint8_t* first = strip.bytes.data() + 16 * strip.taken;
  strip.taken += count;
  num_blocks_ -= count;
  return {first, count, 16 * strip.num_blocks};
}

SoftSpokenReceiver::SoftSpokenReceiver(int k_, const uint8_t* leaves)
    : k(k_), leaves_(ciphers(leaves, (size_t{128} / static_cast<size_t>(k_)) << k_)),
      ready_(size_t{128} / static_cast<size_t>(k_) + 128) {}

void SoftSpokenReceiver::make(size_t num_blocks) {
  const size_t num_trees = 128 / static_cast<size_t>(k), num_leaves = size_t{1} << k, wide = 16 * num_blocks;
  const Strips::Part made = ready_.add(num_blocks);
  for (size_t g = 0; g < num_trees; ++g) {
    uint8_t* v[8];
    for (size_t b = 0; b < static_cast<size_t>(k); ++b) v[b] = made.row(num_trees + g * static_cast<size_t>(k) + b);
    fold(k, wide, [&](size_t j, uint8_t* out) { stream(leaves_[g * num_leaves + j], out, wide); }, v, made.row(g));
  }
}

void SoftSpokenReceiver::prepare(size_t num_blocks) {
  in_chunks(room_for(num_blocks, ready_), [&](size_t count) { make(count); });
}

void SoftSpokenReceiver::extend(const uint8_t* choices, size_t n, uint8_t* message, uint8_t* rows) {
  const size_t num_trees = 128 / static_cast<size_t>(k), row_bytes = (n + 7) / 8;
  const auto use = [&](const Strips::Part& part, size_t first, size_t count) {
    const size_t exact = (count + 7) / 8;
    for (size_t g = 0; g < num_trees; ++g) {
      uint8_t* d = message + g * row_bytes + first / 8;
      std::memcpy(d, part.row(g), exact);
      kernels().xor_into(d, choices + first / 8, exact);
    }
    transpose_part(part, num_trees, count, rows + 16 * first);
  };
  each_part(n, ready_, [&](size_t count) { make(count); }, use);
}

SoftSpokenSender::SoftSpokenSender(int k_, const uint8_t* leaves, const uint8_t* delta)
    : k(k_), leaves_(ciphers(leaves, (size_t{128} / static_cast<size_t>(k_)) << k_)), ready_(128) {
  for (size_t i = 0; i < 128; ++i) delta_.push_back(bit(delta, i));
}

void SoftSpokenSender::make(size_t num_blocks) {
  const size_t num_trees = 128 / static_cast<size_t>(k), num_leaves = size_t{1} << k, wide = 16 * num_blocks;
  const Strips::Part made = ready_.add(num_blocks);
  uint8_t unused[kChunkBytes];
  for (size_t g = 0; g < num_trees; ++g) {
    uint8_t* w[8];
    size_t hidden = 0;
    for (size_t b = 0; b < static_cast<size_t>(k); ++b) {
      w[b] = made.row(g * static_cast<size_t>(k) + b);
      hidden |= static_cast<size_t>(delta_[g * static_cast<size_t>(k) + b]) << b;
    }
    // Numbered from the hidden leaf: leaf j of the fold is leaf j ^ hidden of the tree, and leaf 0 counts nowhere.
    const auto leaf = [&](size_t j, uint8_t* out) {
      if (j == 0)
        std::memset(out, 0, wide);
      else
        stream(leaves_[g * num_leaves + (j ^ hidden)], out, wide);
    };
    fold(k, wide, leaf, w, unused);
  }
}

void SoftSpokenSender::prepare(size_t num_blocks) {
  in_chunks(room_for(num_blocks, ready_), [&](size_t count) { make(count); });
}

void SoftSpokenSender::extend(const uint8_t* message, size_t n, uint8_t* rows) {
  const size_t row_bytes = (n + 7) / 8;
  const auto use = [&](const Strips::Part& part, size_t first, size_t count) {
    for (size_t r = 0; r < 128; ++r)
      if (delta_[r])
        kernels().xor_into(part.row(r), message + r / static_cast<size_t>(k) * row_bytes + first / 8, (count + 7) / 8);
    transpose_part(part, 0, count, rows + 16 * first);
  };
  each_part(n, ready_, [&](size_t count) { make(count); }, use);
}

Kk13Receiver::Kk13Receiver(const uint8_t* seeds) : seeds_(ciphers(seeds, 512)) {}

void Kk13Receiver::extend(const uint8_t* choices, size_t n, uint8_t* message, uint8_t* rows) {
  const size_t row_bytes = (n + 7) / 8;
  std::vector<uint8_t> planes(8 * row_bytes);  // plane b holds bit b of every choice
  for (size_t i = 0; i < n; ++i)
    for (size_t b = 0; b < 8; ++b)
      planes[b * row_bytes + i / 8] |= static_cast<uint8_t>((choices[i] >> b & 1) << (i % 8));
  BitRows t(2);
  uint8_t other[kChunkBytes];
  for (size_t first = 0; first < n; first += kChunk) {
    const size_t count = std::min(kChunk, n - first), wide = stream_bytes(count), exact = (count + 7) / 8;
    for (size_t p = 0; p < 256; ++p) {
      stream(seeds_[2 * p], t.row(p), wide);
      stream(seeds_[2 * p + 1], other, wide);
      uint8_t* u = message + p * row_bytes + first / 8;
      std::memcpy(u, t.row(p), exact);
      kernels().xor_into(u, other, exact);
      for (size_t b = 0; b < 8; ++b)
        if (p >> b & 1) kernels().xor_into(u, planes.data() + b * row_bytes + first / 8, exact);
    }
    t.transpose_into(rows + 32 * first, count);
  }
}

Kk13Sender::Kk13Sender(const uint8_t* seeds, const uint8_t* secret) : seeds_(ciphers(seeds, 256)) {
  for (size_t i = 0; i < 256; ++i) secret_.push_back(bit(secret, i));
}

void Kk13Sender::extend(const uint8_t* message, size_t n, uint8_t* rows) {
  const size_t row_bytes = (n + 7) / 8;
  BitRows q(2);
  for (size_t first = 0; first < n; first += kChunk) {
    const size_t count = std::min(kChunk, n - first), wide = stream_bytes(count), exact = (count + 7) / 8;
    for (size_t p = 0; p < 256; ++p) {
      stream(seeds_[p], q.row(p), wide);
      if (secret_[p]) kernels().xor_into(q.row(p), message + p * row_bytes + first / 8, exact);
    }
    q.transpose_into(rows + 32 * first, count);
  }
}

}  // namespace tw::crypt
