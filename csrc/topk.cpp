// Top-k kernels, compiled once per instruction set (TW_ISA names the namespace): chunks selected from, and added back.
#include "topk.h"

#include <cstring>

#include "places.h"
#include "selection.h"

namespace tw::TW_ISA {
namespace {

constexpr int64_t kWindow = 16384;  // numbers that are added to while they lie in the cache

template <int G>
void select_run(const float* x, const Run& r, Selector& selector, uint8_t* indices, float* values) {
  PlaceWriter places(indices, r);
  float* out = values + r.value;
  for (int64_t c = 0; c < r.count; ++c) {
    const float* chunk = x + r.offset + c * r.chunk * G;
    selector.select<G>(chunk, r.chunk, r.k, [&](int64_t index) {
      std::memcpy(out, chunk + G * index, sizeof(float) * G);
      out += G;
      places.put(index);
    });
  }
  places.finish();
}

void select(const float* x, const Run* runs, int64_t num_runs, uint8_t* indices, float* values) {
  Selector selector;
  for (int64_t i = 0; i < num_runs; ++i)
    (runs[i].group == 1 ? select_run<1> : select_run<2>)(x, runs[i], selector, indices, values);
}

// One payload on its way through a chunk: the group that comes next and its place.
struct Cursor {
  PlaceReader places;
  const float* value;
  int64_t index = 0, left = 0;

  bool start(int64_t k) {
    left = k;
    return (index = places.next()) >= 0;
  }
  template <int G>
  bool add_until(int64_t end, float factor, float* chunk) {
    while (index < end) {
      for (int j = 0; j < G; ++j) chunk[G * index + j] += *value++ * factor;
      if (--left == 0)
        index = INT64_MAX;
      else if ((index = places.next()) < 0)
        return false;
    }
    return true;
  }
};

// Window by window, so that numbers are added where they still lie in the cache.
template <int G>
bool scatter_chunk(Cursor* cursors, int64_t num_payloads, const Run& r, float factor, float* chunk) {
  for (int64_t p = 0; p < num_payloads; ++p)
    if (!cursors[p].start(r.k)) return false;
  for (int64_t first = 0; first < r.chunk; first += kWindow / G) {
    const int64_t end = least(first + kWindow / G, r.chunk);
    fill(chunk + G * first, G * (end - first), 0.0f);
    for (int64_t p = 0; p < num_payloads; ++p)
      if (!cursors[p].add_until<G>(end, factor, chunk)) return false;
  }
  return true;
}

bool scatter(const uint8_t* indices, int64_t num_payloads, int64_t payload_bytes, const Run* runs, int64_t num_runs,
             const float* values, int64_t num_values, float factor, float* x) {
  Buffer<Cursor> cursors;
  cursors.reserve(num_payloads);
  for (int64_t i = 0; i < num_runs; ++i) {
    const Run& r = runs[i];
    const auto scatter_one = r.group == 1 ? scatter_chunk<1> : scatter_chunk<2>;
    for (int64_t p = 0; p < num_payloads; ++p)
      new (&cursors[p]) Cursor{PlaceReader(indices + p * payload_bytes, r), values + p * num_values + r.value};
    for (int64_t c = 0; c < r.count; ++c)
      if (!scatter_one(cursors.data(), num_payloads, r, factor, x + r.offset + c * r.chunk * r.group)) return false;
    for (int64_t p = 0; p < num_payloads; ++p)
      if (!cursors[p].places.at_end()) return false;
  }
  return true;
}

}  // namespace

extern const TopkKernels topk{select, scatter};

}  // namespace tw::TW_ISA
