// The sign kernels for Python: checks every table and size, then releases the GIL.
#include <algorithm>

#include "bind_segments.h"
#include "sign.h"

namespace {

int64_t rows_of(size_t payload_bytes) {
  return static_cast<int64_t>(payload_bytes) / tw::field_granule_bytes(1) * tw::field_rows(1);
}

class Sign {
 public:
  explicit Sign(const std::string& name) : kernels_(TW_PICK(sign, name)) {}

  void encode(Flat<const float> x, Flat<const int64_t> table, bool scaled, Flat<uint8_t> payload, Flat<float> low,
              Flat<float> high) const {
    const Segments segments(table, x.size(), std::min(low.size(), high.size()), rows_of(payload.size()));
    nb::gil_scoped_release release;
    kernels_->encode(x.data(), segments.data(), segments.count(), scaled, payload.data(), low.data(), high.data());
  }

  void decode(Flat<const uint8_t> payloads, int64_t num_payloads, Flat<const int64_t> table, Flat<const float> low,
              Flat<const float> high, Flat<float> x) const {
    const size_t payload_bytes = check_payloads(num_payloads, payloads.size());
    require(low.size() == high.size() && low.size() % static_cast<size_t>(num_payloads) == 0, "values: uneven sizes");
    const size_t num_values = low.size() / static_cast<size_t>(num_payloads);
    const Segments segments(table, x.size(), num_values, rows_of(payload_bytes));
    nb::gil_scoped_release release;
    kernels_->decode(payloads.data(), num_payloads, static_cast<int64_t>(payload_bytes), segments.data(),
                     segments.count(), low.data(), high.data(), static_cast<int64_t>(num_values), x.data());
  }

 private:
  const tw::SignKernels* kernels_;
};

}  // namespace

void bind_sign(nb::module_& m) {
  const auto in = [](const char* name) { return nb::arg(name).noconvert(); };  // a converted copy would lose results
  nb::class_<Sign>(m, "Sign")
      .def(nb::init<const std::string&>())
      .def("encode", &Sign::encode, in("x"), in("table"), nb::arg("scaled"), in("payload"), in("low"), in("high"))
      .def("decode", &Sign::decode, in("payloads"), nb::arg("num_payloads"), in("table"), in("low"), in("high"),
           in("x"));
}
