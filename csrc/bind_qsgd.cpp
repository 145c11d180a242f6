// The QSGD kernels for Python: checks every table and size, then releases the GIL.
#include "bind_segments.h"
#include "bind_words.h"
#include "qsgd.h"

namespace {

void check_bits(int bits) { require(bits >= 2 && bits <= 8, "bits: 2 to 8 wanted"); }

int64_t rows_of(size_t payload_bytes, int bits) {
  return static_cast<int64_t>(payload_bytes) / tw::field_granule_bytes(bits) * tw::field_rows(bits);
}

class Qsgd {
 public:
  explicit Qsgd(const std::string& name) : kernels_(TW_PICK(qsgd, name)) {}

  void scales(Flat<const float> x, Flat<const int64_t> table, bool l2, Flat<int32_t> scale_bits) const {
    const Segments segments(table, x.size(), scale_bits.size(), -1);
    nb::gil_scoped_release release;
    kernels_->scales(x.data(), segments.data(), segments.count(), l2, scale_bits.data());
  }

  void encode(Flat<const float> x, Flat<const int64_t> table, Flat<const int32_t> keys, Flat<const float> steps,
              int bits, Flat<uint8_t> payload) const {
    check_bits(bits);
    const Segments segments(table, x.size(), steps.size(), rows_of(payload.size(), bits));
    const uint32_t* words = key_words(keys, segments.count());
    nb::gil_scoped_release release;
    kernels_->encode(x.data(), segments.data(), segments.count(), words, steps.data(), bits, payload.data());
  }

  void add(Flat<const uint8_t> payloads, int64_t num_payloads, int bits, int sum_digits, Flat<int32_t> words) const {
    check_bits(bits);
    require(num_payloads >= 1 && num_payloads <= 32767, "sum width");
    check_sum(num_payloads * ((1 << (bits - 1)) - 1), sum_digits);
    const auto payload_bytes = static_cast<int64_t>(check_payloads(num_payloads, payloads.size()));
    require(payload_bytes % tw::field_granule_bytes(bits) == 0, "payloads: uneven sizes");
    const int64_t granules = payload_bytes / tw::field_granule_bytes(bits);
    const int64_t rows = granules * tw::field_rows(bits);
    require(static_cast<int64_t>(words.size()) == words_of(rows, sum_digits), "words: wrong size");
    nb::gil_scoped_release release;
    kernels_->add(payloads.data(), num_payloads, granules, bits, sum_digits, reinterpret_cast<uint32_t*>(words.data()));
  }

  void decode_sum(Flat<const int32_t> words, int64_t num_shards, int64_t rows_per_shard, int zero, int sum_digits,
                  Flat<const int64_t> table, Flat<const float> steps, Flat<float> x) const {
    check_sum(zero, sum_digits);
    const int64_t rows = check_shards(words.size(), num_shards, rows_per_shard, sum_digits);
    const Segments segments(table, x.size(), steps.size(), rows);
    nb::gil_scoped_release release;
    kernels_->decode_sum(reinterpret_cast<const uint32_t*>(words.data()), num_shards, rows_per_shard, zero, sum_digits,
                         segments.data(), segments.count(), steps.data(), x.data());
  }

  void decode_own(Flat<const uint8_t> payloads, int64_t num_payloads, int bits, Flat<const int64_t> table,
                  Flat<const float> steps, Flat<float> x) const {
    check_bits(bits);
    const size_t payload_bytes = check_payloads(num_payloads, payloads.size());
    require(steps.size() % static_cast<size_t>(num_payloads) == 0, "steps: uneven sizes");
    const size_t num_steps = steps.size() / static_cast<size_t>(num_payloads);
    const Segments segments(table, x.size(), num_steps, rows_of(payload_bytes, bits));
    nb::gil_scoped_release release;
    kernels_->decode_own(payloads.data(), num_payloads, static_cast<int64_t>(payload_bytes), bits, segments.data(),
                         segments.count(), steps.data(), static_cast<int64_t>(num_steps), x.data());
  }

 private:
  const tw::QsgdKernels* kernels_;
};

}  // namespace

void bind_qsgd(nb::module_& m) {
  const auto in = [](const char* name) { return nb::arg(name).noconvert(); };  // a converted copy would lose results
  nb::class_<Qsgd>(m, "Qsgd")
      .def(nb::init<const std::string&>())
      .def("scales", &Qsgd::scales, in("x"), in("table"), nb::arg("l2"), in("scale_bits"))
      .def("encode", &Qsgd::encode, in("x"), in("table"), in("keys"), in("steps"), nb::arg("bits"), in("payload"))
      .def("add", &Qsgd::add, in("payloads"), nb::arg("num_payloads"), nb::arg("bits"), nb::arg("sum_digits"),
           in("words"))
      .def("decode_sum", &Qsgd::decode_sum, in("words"), nb::arg("num_shards"), nb::arg("rows_per_shard"),
           nb::arg("zero"), nb::arg("sum_digits"), in("table"), in("steps"), in("x"))
      .def("decode_own", &Qsgd::decode_own, in("payloads"), nb::arg("num_payloads"), nb::arg("bits"), in("table"),
           in("steps"), in("x"));
}
