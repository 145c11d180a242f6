// AES-128 from OpenSSL's libcrypto, found at run time by its few stable EVP functions. No AES is written here.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

namespace tw::crypt {

// Opens libcrypto once. Returns "" or one sentence that says what is missing.
std::string open_libcrypto(const std::string& path);

// One AES-128 key in one mode. Not for use by two threads at once.
class Cipher {
 public:
  enum class Mode { kEcb, kCtr };
  Cipher() = default;
  Cipher(Mode mode, const uint8_t* key);  // CTR starts at counter 0
  Cipher(Cipher&& other) noexcept : context_(other.context_) { other.context_ = nullptr; }
  Cipher& operator=(Cipher&& other) noexcept;
  ~Cipher();

  // ECB: encrypts `num_bytes` (a multiple of 16). CTR: xors the next `num_bytes` of the key stream. In place allowed.
  void apply(const uint8_t* in, uint8_t* out, size_t num_bytes) const;

 private:
  void* context_ = nullptr;
};

}  // namespace tw::crypt
