// Trits in bytes: five digits of base 3, kept as a fraction, or four of base 4. Digit k of byte j of a granule is
// element j of its row k. Compiled once per instruction set (TW_ISA names the namespace).
#pragma once
#include "vectors.h"

namespace tw::TW_ISA {
namespace {

constexpr int kByteWidth = kWidth == 4 ? 16 : 32;
constexpr int kByteVectors = kRow / kByteWidth;  // in a row
typedef uint8_t Bytes __attribute__((vector_size(kByteWidth)));
typedef int8_t Small __attribute__((vector_size(kByteWidth)));
typedef uint8_t BytesFrom __attribute__((vector_size(kByteWidth), aligned(1)));

// Collects the rows of a granule and writes its 32 bytes. Base 3 is stored as the fraction floor(v * 256 / 243) + 1.
template <int kRadix, int kDigits>
class TritWriter {
 public:
#if defined(__AVX2__) && !defined(__AVX512F__)
  // Trits with their signs changed, -t. Bytes lie in the order of _mm256_packs until they are written.
  void push(const Int* negated) {
    const __m256i low = _mm256_packs_epi32((__m256i)negated[0], (__m256i)negated[1]);
    const __m256i high = _mm256_packs_epi32((__m256i)negated[2], (__m256i)negated[3]);
    const Bytes row = (Bytes)_mm256_packs_epi16(low, high);
    v_ = (kRadix == 3 ? v_ + v_ + v_ : (v_ + v_) + (v_ + v_)) - row;
  }

  void write(uint8_t* out) {
    const Bytes v = v_ + static_cast<uint8_t>(ones());
    const __m256i zero = _mm256_setzero_si256(), factor = _mm256_set1_epi16(3507);
    const __m256i low = _mm256_mulhi_epu16(_mm256_unpacklo_epi8((__m256i)v, zero), factor);
    const __m256i high = _mm256_mulhi_epu16(_mm256_unpackhi_epi8((__m256i)v, zero), factor);
    const Bytes stored = kRadix == 3 ? v + 1 + (Bytes)_mm256_packus_epi16(low, high) : v;
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), _mm256_permutevar8x32_epi32((__m256i)stored, order));
    v_ = Bytes{};
  }

 private:
  Bytes v_ = {};
#else
  void push(const Int* negated) {
    for (int i = 0; i < kVectors; ++i) v_[i] = v_[i] * kRadix - (Word)negated[i];
  }

  void write(uint8_t* out) {
    for (int i = 0; i < kVectors; ++i) {
      const Word v = v_[i] + static_cast<uint32_t>(ones());
      const Word stored = kRadix == 3 ? v + 1 + ((v * 3507u) >> 16) : v;
      *reinterpret_cast<BytesAt*>(out + kWidth * i) = __builtin_convertvector(stored, BytesAt);
      v_[i] = Word{};
    }
  }

 private:
  Word v_[kVectors] = {};
#endif
  // Digits are trit + 1: what all these ones add up to.
  static constexpr int ones() {
    int v = 0;
    for (int k = 0; k < kDigits; ++k) v = v * kRadix + 1;
    return v;
  }
};

// Takes the digits out of kByteWidth bytes, the leading one first.
template <int kRadix>
class TritReader {
 public:
  explicit TritReader(const uint8_t* bytes) : rest_(*reinterpret_cast<const BytesFrom*>(bytes)) {
    if (kRadix == 3) rest_ ^= 0x80;
  }

  // The next digits, negated. The leading digit of the fraction f / 256 is 1 from f = 86 on, 2 from 171 on; f - 128,
  // kept instead of f because bytes are compared as signed ones, is multiplied by 3 modulo 256 like f.
  Small pop() {
    if constexpr (kRadix == 3) {
      constexpr int8_t kOne = 85 - 128, kTwo = 170 - 128;
      const Small digits = ((Small)rest_ > kOne) + ((Small)rest_ > kTwo);
      rest_ = rest_ + rest_ + rest_;
      return digits;
    } else {
      const Small digits = -(Small)(rest_ >> 6);
      rest_ <<= 2;
      return digits;
    }
  }

 private:
  Bytes rest_;
};

}  // namespace
}  // namespace tw::TW_ISA
