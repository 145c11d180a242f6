// OT extension: SoftSpoken<k> (k = 1 is IKNP) and KK13's 1-of-N rows. Bytes in, bytes out, no sockets.
#pragma once
#include <cstdint>
#include <deque>
#include <vector>

#include "evp.h"

namespace tw::crypt {

// Bit rows of the next blocks of 128 OTs: what both halves can make before any choice is known. Made ahead or at the
// last moment, the bytes are the same, for blocks are used in the order in which they were made.
class Strips {
 public:
  explicit Strips(size_t num_rows) : num_rows_(num_rows) {}
  size_t num_blocks() const { return num_blocks_; }
  size_t block_bytes() const { return 16 * num_rows_; }

  struct Part {
    uint8_t* bytes;
    size_t num_blocks, stride;
    uint8_t* row(size_t r) const { return bytes + r * stride; }
  };
  Part add(size_t num_blocks);  // rows of zeros
  Part take(size_t most);       // at most so many blocks, at least one; valid until the next call

 private:
  struct Strip {
    std::vector<uint8_t> bytes;
    size_t num_blocks, taken;
  };
  size_t num_rows_, num_blocks_ = 0;
  std::deque<Strip> strips_;
};

// The receiver's half: owns all 2^k leaves of 128 / k trees.
// For n choices x: u_g = xor_j PRG(s_gj), v_gb = xor_j j_b PRG(s_gj), message d_g = u_g xor x.
class SoftSpokenReceiver {
 public:
  SoftSpokenReceiver(const SoftSpokenReceiver&) = delete;
  SoftSpokenReceiver(int k, const uint8_t* leaves);
  // choices: ceil(n / 8) bytes; message: 128 / k rows of ceil(n / 8) bytes; rows: n rows of 16 bytes, v_i.
  void extend(const uint8_t* choices, size_t n, uint8_t* message, uint8_t* rows);
  void prepare(size_t num_blocks);  // makes the next blocks of 128 OTs ahead, as many as there is room for
  const int k;

 private:
  void make(size_t num_blocks);
  std::vector<Cipher> leaves_;
  Strips ready_;  // u_g, then v_gb
};

// The sender's half: has all leaves but leaf Delta_g of tree g (its bytes are not looked at).
// w_gb = xor_{j != Delta_g} (j xor Delta_g)_b PRG(s_gj), q_gb = w_gb xor Delta_gb d_g, so q_i = v_i xor x_i Delta.
class SoftSpokenSender {
 public:
  SoftSpokenSender(const SoftSpokenSender&) = delete;
  SoftSpokenSender(int k, const uint8_t* leaves, const uint8_t* delta);
  void extend(const uint8_t* message, size_t n, uint8_t* rows);
  void prepare(size_t num_blocks);
  const int k;

 private:
  void make(size_t num_blocks);
  std::vector<Cipher> leaves_;
  std::vector<uint8_t> delta_;  // one bit per row
  Strips ready_;                // w_gb
};

// KK13: 256 rows, codeword C(j) = the Walsh-Hadamard word whose bit p is the parity of (j and p).
// Receiver: message u_p = PRG(k_p0) xor PRG(k_p1) xor C(j)_p, keeps t_i; sender: q_i = t_i xor (C(j_i) and s).
class Kk13Receiver {
 public:
  Kk13Receiver(const Kk13Receiver&) = delete;
  explicit Kk13Receiver(const uint8_t* seeds);  // 256 pairs of 16 bytes
  // choices: a byte each; rows: 32 bytes each
  void extend(const uint8_t* choices, size_t n, uint8_t* message, uint8_t* rows);

 private:
  std::vector<Cipher> seeds_;
};

class Kk13Sender {
 public:
  Kk13Sender(const Kk13Sender&) = delete;
  Kk13Sender(const uint8_t* seeds, const uint8_t* secret);  // 256 seeds k_p^{s_p}; s as 32 bytes
  void extend(const uint8_t* message, size_t n, uint8_t* rows);

 private:
  std::vector<Cipher> seeds_;
  std::vector<uint8_t> secret_;
};

}  // namespace tw::crypt
