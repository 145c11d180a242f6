// What the binding files share: array types, checks, and the choice of kernels.
#pragma once
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "cpu.h"

namespace nb = nanobind;

template <typename T>
using Flat = nb::ndarray<T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

inline void require(bool fits, const char* what) {
  if (!fits) throw std::invalid_argument(what);
}

// Products of sizes: what does not fit 63 bits, or is negative, cannot be the size of anything.
inline int64_t product(int64_t a, int64_t b, const char* what) {
  int64_t result = 0;
  require(a >= 0 && b >= 0 && !__builtin_mul_overflow(a, b, &result), what);
  return result;
}

// How many payloads lie end to end; they must be equally long.
constexpr int64_t kMostPayloads = 65535;
inline size_t check_payloads(int64_t num_payloads, size_t bytes) {
  require(num_payloads >= 1 && num_payloads <= kMostPayloads && bytes % static_cast<size_t>(num_payloads) == 0,
          "payloads: uneven sizes");
  return bytes / static_cast<size_t>(num_payloads);
}

// Picks one family's kernels by name, for example TW_PICK(ternary, "avx2"); only sets that run here can be had.
template <typename Kernels>
const Kernels* pick(const std::string& name, const Kernels* avx512, const Kernels* avx2, const Kernels* portable) {
  for (const std::string& usable : instruction_sets())
    if (name == usable) return name == "avx512" ? avx512 : name == "avx2" ? avx2 : portable;
  throw std::invalid_argument("this machine cannot run that instruction set");
}
#ifdef TW_HAVE_avx512
#define TW_PICK(family, name) pick(name, &tw::avx512::family, &tw::avx2::family, &tw::portable::family)
#else
#define TW_PICK(family, name) pick(name, &tw::portable::family, &tw::portable::family, &tw::portable::family)
#endif
