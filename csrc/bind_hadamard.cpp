// The rotations for Python: checks every table and size, then releases the GIL.
#include "bind_runs.h"

namespace {

class Hadamard {
 public:
  explicit Hadamard(const std::string& name) : kernels_(TW_PICK(hadamard, name)) {}

  void forward(Flat<const float> x, Flat<const int64_t> table, Flat<const int32_t> keys, Flat<const float> factors,
               int64_t size, Flat<float> y) const {
    const Runs runs(table, x.size(), y.size(), keys.size(), factors.size(), size);
    nb::gil_scoped_release release;
    kernels_->forward(x.data(), runs.data(), runs.count(), reinterpret_cast<const uint32_t*>(keys.data()),
                      factors.data(), size, y.data(), static_cast<int64_t>(y.size()));
  }

  void inverse(Flat<const float> y, Flat<const int64_t> table, Flat<const int32_t> keys, Flat<const float> factors,
               int64_t size, Flat<float> x) const {
    const Runs runs(table, x.size(), y.size(), keys.size(), factors.size(), size);
    nb::gil_scoped_release release;
    kernels_->inverse(y.data(), runs.data(), runs.count(), reinterpret_cast<const uint32_t*>(keys.data()),
                      factors.data(), size, x.data(), static_cast<int64_t>(x.size()));
  }

 private:
  const tw::HadamardKernels* kernels_;
};

}  // namespace

void bind_hadamard(nb::module_& m) {
  const auto in = [](const char* name) { return nb::arg(name).noconvert(); };  // a converted copy would lose results
  nb::class_<Hadamard>(m, "Hadamard")
      .def(nb::init<const std::string&>())
      .def("forward", &Hadamard::forward, in("x"), in("table"), in("keys"), in("factors"), nb::arg("size"), in("y"))
      .def("inverse", &Hadamard::inverse, in("y"), in("table"), in("keys"), in("factors"), nb::arg("size"), in("x"));
}
