// Binds rlwe.h: checks sizes and ranges, releases the GIL.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <stdexcept>

#include "rlwe.h"

namespace nb = nanobind;
using namespace tw::crypt::rlwe;

namespace {

template <typename T>
using In = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <typename T>
using Out = nb::ndarray<T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Words = In<uint64_t>;
using OutWords = Out<uint64_t>;

void require(bool fits, const char* rule) {
  if (!fits) throw std::invalid_argument(rule);
}

void check_widths(int k, int l) {
  require(l >= 1 && l <= 39 && k - l > kTopBits && k <= 109, "the widths are out of range: l <= 39, l + 9 < k <= 109");
}

void check_places(const In<uint32_t>& places) {
  for (size_t i = 0; i < places.size(); ++i) require(places.data()[i] < kN, "a place is outside of the polynomial");
}

// One call for many polynomials: function(in, out) for each.
template <typename T, typename Function>
void each(const In<T>& in, size_t in_size, const OutWords& out, size_t out_size, Function function) {
  const size_t count = in.size() / in_size;
  require(in.size() == count * in_size && out.size() == count * out_size, "whole polynomials, as many out as in");
  nb::gil_scoped_release release;
  for (size_t i = 0; i < count; ++i) function(in.data() + i * in_size, out.data() + i * out_size);
}

void small(const Words& random, const Out<int32_t>& out, void (*function)(const uint64_t*, int32_t*)) {
  require(random.size() == kN && out.size() == kN, "one random word per coefficient");
  nb::gil_scoped_release release;
  function(random.data(), out.data());
}

}  // namespace

void bind_rlwe(nb::module_& m) {
  m.def("ternary", [](Words random, Out<int32_t> out) { small(random, out, ternary); });
  m.def("binomial", [](Words random, Out<int32_t> out) { small(random, out, binomial); });
  m.def("image_of_small", [](In<int32_t> in, OutWords out) { each(in, kN, out, kImage, image_of_small); });
  m.def("image_of_words", [](Words in, OutWords out) { each(in, kWords, out, kImage, image_of_words); });
  m.def("words_of_image", [](Words in, int k, OutWords out) {
    require(k >= 1 && k <= 127, "the width is out of range");
    each(in, kImage, out, kWords, [k](const uint64_t* image, uint64_t* words) { words_of_image(image, k, words); });
  });
  m.def("multiply_add", [](Words ciphertexts, Words factors, OutWords accumulated) {
    const size_t terms = factors.size() / kImage;
    require(factors.size() == terms * kImage && ciphertexts.size() == 2 * factors.size() &&
                accumulated.size() == 2 * kImage,
            "two images for each factor, and two to add to");
    nb::gil_scoped_release release;
    multiply_add(ciphertexts.data(), factors.data(), terms, accumulated.data());
  });
  m.def("encrypt", [](Words image_s, Words image_a, Words random, Words message, int k, int l, OutWords c0) {
    check_widths(k, l);
    require(image_s.size() == kImage && image_a.size() == kImage && random.size() == kN && message.size() == kN &&
                c0.size() == kWords,
            "polynomials of 4096 coefficients");
    nb::gil_scoped_release release;
    encrypt(image_s.data(), image_a.data(), random.data(), message.data(), k, l, c0.data());
  });
  m.def("answer", [](Words accumulated, Words random, Words flood, In<uint32_t> places, int k, int l, int f,
                     OutWords top, OutWords share, OutWords low) {
    check_widths(k, l);
    check_places(places);
    const size_t count = places.size();
    require(f >= 1 && f < k - l, "flooding must leave the plaintext alone");
    require(accumulated.size() == 2 * kImage && random.size() == kN && top.size() == kN && flood.size() == 2 * count &&
                share.size() == count && low.size() == count,
            "sizes must fit the number of places");
    nb::gil_scoped_release release;
    answer(accumulated.data(), random.data(), flood.data(), places.data(), count, k, l, f, top.data(), share.data(),
           low.data());
  });
  m.def("decrypt",
        [](Words image_s, Words top, Words low, In<uint32_t> places, int l, OutWords share, Out<int32_t> distance) {
          require(l >= 1 && l <= 39, "the width is out of range");
          check_places(places);
          const size_t count = places.size();
          require(image_s.size() == kImage && top.size() == kN && low.size() == count && share.size() == count &&
                      distance.size() == count,
                  "sizes must fit the number of places");
          nb::gil_scoped_release release;
          decrypt(image_s.data(), top.data(), low.data(), places.data(), count, l, share.data(), distance.data());
        });
}
