// Ring-LWE over Z_q[X] / (X^N + 1) with N = 4096 and q = 2^k: exact products, encryption, answers, decryption.
//
// A product of integer polynomials is computed modulo two primes of 62 bits by number theoretic transforms and put
// together by the Chinese remainder theorem, so it is exact while its coefficients stay below p0 p1 / 2 (2^122.9).
// An "image" is a transformed polynomial: N residues modulo p0, then N modulo p1. "Words" are N low 64-bit words of
// coefficients modulo 2^k, then N high ones. All randomness comes in as bytes of the caller's AES-CTR stream. No branch
// and no address depends on a coefficient.
#pragma once
#include <cstddef>
#include <cstdint>

namespace tw::crypt::rlwe {

constexpr size_t kN = 4096;
constexpr size_t kImage = 2 * kN, kWords = 2 * kN;
constexpr int kLowBits = 5;  // of c0 below the server's share that an answer has
constexpr int kTopBits = 9;  // of c1 below the plaintext's l bits that an answer has

// s or u: each coefficient -1, 0 or 1, from a word of 64 random bits (bias below 2^-63).
void ternary(const uint64_t* random, int32_t* out);
// Errors: a centred binomial distribution of 2 x 21 bits of a word, deviation 3.24, at most 21.
void binomial(const uint64_t* random, int32_t* out);

void image_of_small(const int32_t* coefficients, uint64_t* image);
void image_of_words(const uint64_t* words, uint64_t* image);
// The integer polynomial modulo 2^k.
void words_of_image(const uint64_t* image, int k, uint64_t* words);

// accumulated (2 images) += sum over t of ciphertexts[t] (2 images) times factors[t] (1 image).
void multiply_add(const uint64_t* ciphertexts, const uint64_t* factors, size_t terms, uint64_t* accumulated);

// c0 = -a s + e + 2^(k-l) message mod 2^k; the error from one random word per coefficient.
void encrypt(const uint64_t* image_s, const uint64_t* image_a, const uint64_t* random, const uint64_t* message, int k,
             int l, uint64_t* c0);

// The answer of a server whose share is the top of c0:
//   t = c0 + flood at the places asked for, flood uniform in -2^(f-1) .. 2^(f-1) - 1, rounded to l + 5 bits:
//   share = its top l bits (the server's), low = the 5 bits below (sent);
//   top = c1 + e2 rounded to l + 9 bits (sent).
// random: a word per coefficient for e2; flood: two words per place.
void answer(const uint64_t* accumulated, const uint64_t* random, const uint64_t* flood, const uint32_t* places,
            size_t num_places, int k, int l, int f, uint64_t* top, uint64_t* share, uint64_t* low);

// The client's share round((top s + 2^4 low) / 2^9) mod 2^l, and how far each was from the nearest integer, in 2^-9.
// Asks l + 9 + 12 < 61: one prime is enough.
void decrypt(const uint64_t* image_s, const uint64_t* top, const uint64_t* low, const uint32_t* places,
             size_t num_places, int l, uint64_t* share, int32_t* distance);

}  // namespace tw::crypt::rlwe
