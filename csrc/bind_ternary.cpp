// The ternary kernels for Python: checks every table and size, then releases the GIL.
#include <algorithm>

#include "bind_segments.h"
#include "bind_words.h"
#include "ternary.h"

namespace {

void check_digits(int digits) { require(digits == 4 || digits == 5, "digits: 4 or 5 wanted"); }

class Ternary {
 public:
  explicit Ternary(const std::string& name) : kernels_(TW_PICK(ternary, name)) {}

  void scales(Flat<const float> x, Flat<const int64_t> table, double clip, bool scaler_is_bound,
              Flat<int32_t> scale_bits, Flat<float> bounds) const {
    const Segments segments(table, x.size(), std::min(scale_bits.size(), bounds.size()), -1);
    nb::gil_scoped_release release;
    kernels_->scales(x.data(), segments.data(), segments.count(), clip, scaler_is_bound, scale_bits.data(),
                     bounds.data());
  }

  void encode(Flat<const float> x, Flat<const int64_t> table, Flat<const int32_t> keys, Flat<const float> scales,
              Flat<const float> bounds, int digits, Flat<uint8_t> payload) const {
    check_digits(digits);
    const Segments segments(table, x.size(), std::min(scales.size(), bounds.size()),
                            static_cast<int64_t>(payload.size()) / tw::kRow * digits);
    const uint32_t* words = key_words(keys, segments.count());
    nb::gil_scoped_release release;
    kernels_->encode(x.data(), segments.data(), segments.count(), words, scales.data(), bounds.data(), digits,
                     payload.data());
  }

  void add(Flat<const uint8_t> payloads, int64_t num_payloads, int digits, int sum_digits, Flat<int32_t> words) const {
    check_digits(digits);
    check_sum(num_payloads, sum_digits);
    const size_t payload_bytes = check_payloads(num_payloads, payloads.size());
    require(payload_bytes % tw::kRow == 0, "payloads: uneven sizes");
    const int64_t granules = static_cast<int64_t>(payload_bytes) / tw::kRow;
    require(static_cast<int64_t>(words.size()) == words_of(granules * digits, sum_digits), "words: wrong size");
    nb::gil_scoped_release release;
    kernels_->add(payloads.data(), num_payloads, granules, digits, sum_digits,
                  reinterpret_cast<uint32_t*>(words.data()));
  }

  void decode_sum(Flat<const int32_t> words, int64_t num_shards, int64_t rows_per_shard, int num_summands,
                  int sum_digits, Flat<const int64_t> table, Flat<const float> steps, Flat<float> x) const {
    check_sum(num_summands, sum_digits);
    const int64_t rows = check_shards(words.size(), num_shards, rows_per_shard, sum_digits);
    const Segments segments(table, x.size(), steps.size(), rows);
    nb::gil_scoped_release release;
    kernels_->decode_sum(reinterpret_cast<const uint32_t*>(words.data()), num_shards, rows_per_shard, num_summands,
                         sum_digits, segments.data(), segments.count(), steps.data(), x.data());
  }

  void decode_own(Flat<const uint8_t> payload, int digits, Flat<const int64_t> table, Flat<const float> scales,
                  Flat<float> x) const {
    check_digits(digits);
    const Segments segments(table, x.size(), scales.size(), static_cast<int64_t>(payload.size()) / tw::kRow * digits);
    nb::gil_scoped_release release;
    kernels_->decode_own(payload.data(), digits, segments.data(), segments.count(), scales.data(), x.data());
  }

 private:
  const tw::TernaryKernels* kernels_;
};

}  // namespace

void bind_ternary(nb::module_& m) {
  const auto in = [](const char* name) { return nb::arg(name).noconvert(); };  // a converted copy would lose results
  nb::class_<Ternary>(m, "Ternary")
      .def(nb::init<const std::string&>())
      .def("scales", &Ternary::scales, in("x"), in("table"), nb::arg("clip"), nb::arg("scaler_is_bound"),
           in("scale_bits"), in("bounds"))
      .def("encode", &Ternary::encode, in("x"), in("table"), in("keys"), in("scale"), in("bounds"), nb::arg("digits"),
           in("payload"))
      .def("add", &Ternary::add, in("payloads"), nb::arg("num_payloads"), nb::arg("digits"), nb::arg("sum_digits"),
           in("words"))
      .def("decode_sum", &Ternary::decode_sum, in("words"), nb::arg("num_shards"), nb::arg("rows_per_shard"),
           nb::arg("num_summands"), nb::arg("sum_digits"), in("table"), in("steps"), in("x"))
      .def("decode_own", &Ternary::decode_own, in("payload"), nb::arg("digits"), in("table"), in("scale"), in("x"));
}
