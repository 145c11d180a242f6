// Groups of OTs are hashed together, so that libcrypto sees long runs of blocks.
#include "hash.h"

#include <algorithm>
#include <cstring>
#include <vector>

namespace tw::crypt {
namespace {

constexpr size_t kGroup = 256;  // blocks of one run, at least

struct Block {
  uint64_t low, high;
};

Block operator^(Block a, Block b) { return {a.low ^ b.low, a.high ^ b.high}; }

void permute(const Cipher& pi, Block* blocks, size_t count) {
  auto* bytes = reinterpret_cast<uint8_t*>(blocks);
  pi.apply(bytes, bytes, 16 * count);
}

Block load(const uint8_t* bytes) {
  Block block;
  std::memcpy(&block, bytes, 16);
  return block;
}

// Word p of 64 bits of the codeword C(j): bit p is the parity of (j and p).
uint64_t codeword(uint64_t j, int word) {
  uint64_t bits = 0;
  for (uint64_t p = 0; p < 64; ++p)
    bits |= static_cast<uint64_t>(__builtin_parityll(j & (64 * static_cast<uint64_t>(word) + p))) << p;
  return bits;
}

}  // namespace

Hash::Hash(const uint8_t* key) : pi_(Cipher::Mode::kEcb, key), rho_(Cipher::Mode::kEcb, key + 16) {}

void Hash::pads(const uint8_t* rows, const uint8_t* delta, size_t count, uint64_t first_index, uint64_t* out) const {
  const Block d = delta ? load(delta) : Block{0, 0};
  std::vector<Block> keys(kGroup), blocks(kGroup);
  for (size_t first = 0; first < count; first += kGroup) {
    const size_t step = std::min(kGroup, count - first);
    for (size_t t = 0; t < step; ++t) keys[t] = load(rows + 16 * (first + t)) ^ d;
    permute(pi_, keys.data(), step);
    for (size_t t = 0; t < step; ++t) blocks[t] = Block{first_index + first + t, 0} ^ keys[t];
    permute(pi_, blocks.data(), step);
    for (size_t t = 0; t < step; ++t) out[first + t] = blocks[t].low ^ keys[t].low;
  }
}

void Hash::tables(const uint8_t* rows, const uint8_t* delta, size_t count, int log, uint64_t first_index,
                  uint8_t* out) const {
  const Block d = load(delta);
  const size_t bits = static_cast<size_t>(log), size = size_t{1} << log, group = std::max<size_t>(1, kGroup / size);
  std::vector<Block> keys(group * bits * 2), blocks(group * bits * size);
  for (size_t first = 0; first < count; first += group) {
    const size_t step = std::min(group, count - first);
    for (size_t r = 0; r < step * bits; ++r) {
      keys[2 * r] = load(rows + 16 * (first * bits + r));
      keys[2 * r + 1] = keys[2 * r] ^ d;
    }
    permute(pi_, keys.data(), 2 * step * bits);
    for (size_t r = 0; r < step * bits; ++r)
      for (size_t j = 0; j < size; ++j)
        blocks[r * size + j] = Block{first_index + first * bits + r, j} ^ keys[2 * r + (j >> (r % bits) & 1)];
    permute(pi_, blocks.data(), step * bits * size);
    for (size_t t = 0; t < step; ++t)
      for (size_t j = 0; j < size; ++j) {
        uint64_t pad = 0;
        for (size_t b = 0; b < bits; ++b) {
          const size_t r = t * bits + b;
          pad ^= blocks[r * size + j].low ^ keys[2 * r + (j >> b & 1)].low;
        }
        out[(first + t) * size + j] = static_cast<uint8_t>(pad);
      }
  }
}

void Hash::entries(const uint8_t* rows, const uint8_t* choices, size_t count, int log, uint64_t first_index,
                   uint8_t* out) const {
  const size_t bits = static_cast<size_t>(log);
  std::vector<Block> keys(kGroup * bits), blocks(kGroup * bits);
  for (size_t first = 0; first < count; first += kGroup) {
    const size_t step = std::min(kGroup, count - first);
    std::memcpy(keys.data(), rows + 16 * first * bits, 16 * step * bits);
    permute(pi_, keys.data(), step * bits);
    for (size_t r = 0; r < step * bits; ++r)
      blocks[r] = Block{first_index + first * bits + r, choices[first + r / bits]} ^ keys[r];
    permute(pi_, blocks.data(), step * bits);
    for (size_t t = 0; t < step; ++t) {
      uint64_t pad = 0;
      for (size_t b = 0; b < bits; ++b) pad ^= blocks[t * bits + b].low ^ keys[t * bits + b].low;
      out[first + t] = static_cast<uint8_t>(pad);
    }
  }
}

void Hash::kk13_tables(const uint8_t* rows, const uint8_t* secret, size_t count, int log, uint64_t first_index,
                       uint8_t* out) const {
  const size_t size = size_t{1} << log, group = std::max<size_t>(1, kGroup / size);
  const Block s_low = load(secret), s_high = load(secret + 16);
  std::vector<Block> code_low(size), code_high(size), low(group * size), blocks(group * size);
  for (size_t j = 0; j < size; ++j) {
    code_low[j] = {codeword(j, 0) & s_low.low, codeword(j, 1) & s_low.high};
    code_high[j] = {codeword(j, 2) & s_high.low, codeword(j, 3) & s_high.high};
  }
  for (size_t first = 0; first < count; first += group) {
    const size_t step = std::min(group, count - first);
    for (size_t t = 0; t < step; ++t)
      for (size_t j = 0; j < size; ++j) low[t * size + j] = load(rows + 32 * (first + t)) ^ code_low[j];
    permute(rho_, low.data(), step * size);
    for (size_t t = 0; t < step; ++t)
      for (size_t j = 0; j < size; ++j)
        low[t * size + j] = low[t * size + j] ^ load(rows + 32 * (first + t) + 16) ^ code_high[j];
    permute(pi_, low.data(), step * size);
    for (size_t t = 0; t < step; ++t)
      for (size_t j = 0; j < size; ++j) blocks[t * size + j] = Block{first_index + first + t, 0} ^ low[t * size + j];
    permute(pi_, blocks.data(), step * size);
    for (size_t e = 0; e < step * size; ++e) out[first * size + e] = static_cast<uint8_t>(blocks[e].low ^ low[e].low);
  }
}

void Hash::kk13_entries(const uint8_t* rows, size_t count, uint64_t first_index, uint8_t* out) const {
  std::vector<Block> low(kGroup), blocks(kGroup);
  for (size_t first = 0; first < count; first += kGroup) {
    const size_t step = std::min(kGroup, count - first);
    for (size_t t = 0; t < step; ++t) low[t] = load(rows + 32 * (first + t));
    permute(rho_, low.data(), step);
    for (size_t t = 0; t < step; ++t) low[t] = low[t] ^ load(rows + 32 * (first + t) + 16);
    permute(pi_, low.data(), step);
    for (size_t t = 0; t < step; ++t) blocks[t] = Block{first_index + first + t, 0} ^ low[t];
    permute(pi_, blocks.data(), step);
    for (size_t t = 0; t < step; ++t) out[first + t] = static_cast<uint8_t>(blocks[t].low ^ low[t].low);
  }
}

}  // namespace tw::crypt
