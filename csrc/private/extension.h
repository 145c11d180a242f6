// OT extension: SoftSpoken<k> (k = 1 is IKNP) and KK13's 1-of-N rows. Bytes in, bytes out, no sockets.
#pragma once
#include <cstdint>
#include <vector>

#include "evp.h"

namespace tw::crypt {

// The receiver's half: owns all 2^k leaves of 128 / k trees.
// For n choices x: u_g = xor_j PRG(s_gj), v_gb = xor_j j_b PRG(s_gj), message d_g = u_g xor x.
class SoftSpokenReceiver {
 public:
  SoftSpokenReceiver(const SoftSpokenReceiver&) = delete;
  SoftSpokenReceiver(int k, const uint8_t* leaves);
  // choices: ceil(n / 8) bytes; message: 128 / k rows of ceil(n / 8) bytes; rows: n rows of 16 bytes, v_i.
  void extend(const uint8_t* choices, size_t n, uint8_t* message, uint8_t* rows);
  const int k;

 private:
  std::vector<Cipher> leaves_;
};

// The sender's half: has all leaves but leaf Delta_g of tree g (its bytes are not looked at).
// w_gb = xor_{j != Delta_g} (j xor Delta_g)_b PRG(s_gj), q_gb = w_gb xor Delta_gb d_g, so q_i = v_i xor x_i Delta.
class SoftSpokenSender {
 public:
  SoftSpokenSender(const SoftSpokenSender&) = delete;
  SoftSpokenSender(int k, const uint8_t* leaves, const uint8_t* delta);
  void extend(const uint8_t* message, size_t n, uint8_t* rows);
  const int k;

 private:
  std::vector<Cipher> leaves_;
  std::vector<uint8_t> delta_;  // one bit per row
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
