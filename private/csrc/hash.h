// The tweakable hash of Guo et al. (eprint 2019/074): H(x, i) = pi(pi(x) ^ i) ^ pi(x), and what the OTs make of it.
#pragma once
#include <cstddef>
#include <cstdint>

#include "evp.h"

namespace tw::crypt {

class Hash {
 public:
  Hash(const Hash&) = delete;
  explicit Hash(const uint8_t* key);  // 32 bytes: the key of pi, then that of the permutation that folds KK13's rows

  // Low 64 bits of H(rows[t] ^ delta, (first_index + t, 0)); delta may be null.
  void pads(const uint8_t* rows, const uint8_t* delta, size_t count, uint64_t first_index, uint64_t* out) const;

  // 1-of-2^log OT from `log` 1-of-2 OTs each (Naor-Pinkas): the low 8 bits of
  // pad_j = xor_b H(row_b ^ j_b delta, (index_b, j)).
  void tables(const uint8_t* rows, const uint8_t* delta, size_t count, int log, uint64_t first_index,
              uint8_t* out) const;
  void entries(const uint8_t* rows, const uint8_t* choices, size_t count, int log, uint64_t first_index,
               uint8_t* out) const;

  // KK13: pad_j = H(rho(x_low) ^ x_high, (index, 0)) with x = row ^ (C(j) and s), low 8 bits.
  void kk13_tables(const uint8_t* rows, const uint8_t* secret, size_t count, int log, uint64_t first_index,
                   uint8_t* out) const;
  void kk13_entries(const uint8_t* rows, size_t count, uint64_t first_index, uint8_t* out) const;

  const Cipher& pi() const { return pi_; }

 private:
  Cipher pi_, rho_;
};

}  // namespace tw::crypt
