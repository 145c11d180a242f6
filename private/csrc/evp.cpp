// Finds libcrypto's EVP functions with dlopen, so that neither headers nor a link-time dependency are needed.
#include "evp.h"

#include <dlfcn.h>

#include <algorithm>
#include <stdexcept>

namespace tw::crypt {
namespace {

struct Evp {
  void* (*ctx_new)() = nullptr;
  void (*ctx_free)(void*) = nullptr;
  int (*init)(void*, const void*, void*, const uint8_t*, const uint8_t*) = nullptr;
  int (*update)(void*, uint8_t*, int*, const uint8_t*, int) = nullptr;
  int (*set_padding)(void*, int) = nullptr;
  const void* (*aes_128_ecb)() = nullptr;
  const void* (*aes_128_ctr)() = nullptr;
  bool ready = false;
};

Evp evp;  // written once, by open_libcrypto, before anything encrypts

template <typename Function>
bool find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

}  // namespace

std::string open_libcrypto(const std::string& path) {
  if (evp.ready) return "";
  void* library = nullptr;
  if (!path.empty()) {
    library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  } else {
    for (const char* name : {"libcrypto.so.3", "libcrypto.so.1.1", "libcrypto.so", "libcrypto.3.dylib"})
      if ((library = dlopen(name, RTLD_NOW | RTLD_LOCAL)) != nullptr) break;
  }
  if (library == nullptr) return "OpenSSL's libcrypto was not found: install OpenSSL 1.1 or 3 (Debian: libssl3)";
  Evp found;
  if (!find(library, "EVP_CIPHER_CTX_new", found.ctx_new) || !find(library, "EVP_CIPHER_CTX_free", found.ctx_free) ||
      !find(library, "EVP_EncryptInit_ex", found.init) || !find(library, "EVP_EncryptUpdate", found.update) ||
      !find(library, "EVP_CIPHER_CTX_set_padding", found.set_padding) ||
      !find(library, "EVP_aes_128_ecb", found.aes_128_ecb) || !find(library, "EVP_aes_128_ctr", found.aes_128_ctr))
    return "the libcrypto that was found lacks EVP functions: install OpenSSL 1.1 or 3 (Debian: libssl3)";
  found.ready = true;
  evp = found;
  return "";
}

Cipher::Cipher(Mode mode, const uint8_t* key) {
  if (!evp.ready) throw std::runtime_error("libcrypto is not open");
  static const uint8_t zero[16] = {};
  context_ = evp.ctx_new();
  const void* type = mode == Mode::kEcb ? evp.aes_128_ecb() : evp.aes_128_ctr();
  if (context_ == nullptr || evp.init(context_, type, nullptr, key, mode == Mode::kEcb ? nullptr : zero) != 1)
    throw std::runtime_error("libcrypto refused an AES-128 key");
  evp.set_padding(context_, 0);
}

Cipher& Cipher::operator=(Cipher&& other) noexcept {
  std::swap(context_, other.context_);
  return *this;
}

Cipher::~Cipher() {
  if (context_ != nullptr) evp.ctx_free(context_);
}

void Cipher::apply(const uint8_t* in, uint8_t* out, size_t num_bytes) const {
  constexpr size_t kStep = size_t{1} << 30;  // EVP counts in int
  for (size_t done = 0; done < num_bytes; done += kStep) {
    const int step = static_cast<int>(std::min(kStep, num_bytes - done));
    int written = 0;
    if (evp.update(context_, out + done, &written, in + done, step) != 1 || written != step)
      throw std::runtime_error("libcrypto failed to encrypt");
  }
}

}  // namespace tw::crypt
