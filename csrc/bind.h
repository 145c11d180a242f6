// What the binding files share: array types, checks, and the list of instruction sets.
#pragma once
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <stdexcept>
#include <string>
#include <vector>

namespace nb = nanobind;

template <typename T>
using Flat = nb::ndarray<T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

inline void require(bool fits, const char* what) {
  if (!fits) throw std::invalid_argument(what);
}

// The instruction sets this machine can run, the best one first.
inline std::vector<std::string> instruction_sets() {
  std::vector<std::string> names;
#ifdef TW_HAVE_avx512
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vbmi"))
    names.emplace_back("avx512");
#endif
#ifdef TW_HAVE_avx2
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2")) names.emplace_back("avx2");
#endif
  names.emplace_back("portable");
  return names;
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
