// What this machine can run. CMakeLists.txt has the one list of what each build needs: the compiler's flags are made of
// it, and the names that are asked for here.
#pragma once
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <sstream>
#include <string>
#include <vector>

// True if CPU and operating system offer a feature; false for a name that is not known here.
inline bool cpu_has([[maybe_unused]] const std::string& feature) {
#if defined(__x86_64__)
  if (feature == "avx2") return __builtin_cpu_supports("avx2");
  if (feature == "bmi2") return __builtin_cpu_supports("bmi2");
  if (feature == "fma") return __builtin_cpu_supports("fma");
  if (feature == "avx512f") return __builtin_cpu_supports("avx512f");
  if (feature == "avx512bw") return __builtin_cpu_supports("avx512bw");
  if (feature == "avx512dq") return __builtin_cpu_supports("avx512dq");
  if (feature == "avx512vl") return __builtin_cpu_supports("avx512vl");
  unsigned eax, ebx, ecx, edx;
  if (feature == "f16c")  // older compilers do not know this name; it needs what avx needs of the system
    return __builtin_cpu_supports("avx") && __get_cpuid(1, &eax, &ebx, &ecx, &edx) && (ecx & bit_F16C);
#endif
  return false;
}

inline bool cpu_has_all(const char* features) {
  std::istringstream names(features);
  for (std::string name; names >> name;)
    if (!cpu_has(name)) return false;
  return true;
}

// The instruction sets this machine can run, the best one first.
inline std::vector<std::string> instruction_sets() {
  std::vector<std::string> names;
#ifdef TW_HAVE_avx512
  if (cpu_has_all(TW_NEEDS_avx512)) names.emplace_back("avx512");
#endif
#ifdef TW_HAVE_avx2
  if (cpu_has_all(TW_NEEDS_avx2)) names.emplace_back("avx2");
#endif
  names.emplace_back("portable");
  return names;
}
