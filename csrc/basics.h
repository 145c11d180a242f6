// What kernels would otherwise take from <algorithm>, <vector> and <memory>. Templates of std:: that are not inlined
// become weak symbols, of which the linker keeps one for the whole library, whichever instruction set it was compiled
// for. Everything that kernels share has internal linkage instead (tests/kernels/test_isolation.py).
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

namespace tw {
namespace {

template <typename T>
constexpr T least(T a, T b) {
  return b < a ? b : a;
}

template <typename T>
constexpr T most(T a, T b) {
  return a < b ? b : a;
}

template <typename T>
inline void fill(T* first, int64_t count, T value) {
  for (int64_t i = 0; i < count; ++i) first[i] = value;
}

// A number as a type, so that it is a constant in all loops of what it is given to.
template <int kValue>
struct Constant {
  static constexpr int value = kValue;
  constexpr operator int() const { return kValue; }
};

// Room for plain numbers that grows; what was in it is lost then.
template <typename T>
class Buffer {
 public:
  Buffer() = default;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() { std::free(data_); }

  void reserve(int64_t count) {
    if (count <= room_) return;
    std::free(data_);
    data_ = static_cast<T*>(std::malloc(sizeof(T) * static_cast<size_t>(count)));
    room_ = data_ == nullptr ? 0 : count;
    if (data_ == nullptr) throw std::bad_alloc();
  }
  T* reserved(int64_t count) {
    reserve(count);
    return data_;
  }
  T* data() const { return data_; }
  T& operator[](int64_t i) const { return data_[i]; }

 private:
  T* data_ = nullptr;
  int64_t room_ = 0;
};

}  // namespace
}  // namespace tw
