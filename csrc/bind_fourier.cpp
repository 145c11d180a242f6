// The fourier kernels for Python: checks every table and size, then releases the GIL.
#include <memory>

#include "bind.h"
#include "fourier.h"

namespace {

template <typename T>
using Dense = nb::ndarray<T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Table = Flat<const float>;

// Checks that the tables are as long as the sizes say: kernels read them without asking.
tw::Turning turning_of(const Flat<const int64_t>& sizes, const Table& passes, const Table& ends, const Table& chirp,
                       const Table& filter, const Table& cosines) {
  require(sizes.size() >= 3, "sizes: too few");
  tw::Turning t{};
  t.length = sizes.data()[0];
  t.points = sizes.data()[1];
  t.inner = sizes.data()[2];
  t.radices = sizes.data() + 3;
  t.num_radices = static_cast<int64_t>(sizes.size()) - 3;
  require(t.length >= 1 && t.length <= int64_t{1} << 40, "sizes: length out of range");
  require(t.points == (t.length % 2 ? t.length : t.length / 2), "sizes: points do not follow from the length");
  require(t.inner == t.points || (t.inner >= 2 * t.points - 1 && t.inner <= 4 * t.points), "sizes: inner out of range");
  int64_t n = t.inner, num_factors = 0;
  for (int64_t i = 0; i < t.num_radices; ++i) {
    const int64_t radix = t.radices[i];
    require(radix >= 2 && radix <= 5 && n % radix == 0, "sizes: radices must be 2 to 5 and divide the length");
    n /= radix;
    num_factors += (radix - 1) * (n - 1);
  }
  require(n == 1, "sizes: radices do not make up the length");
  const auto holds = [](const Table& table, int64_t pairs) { return static_cast<int64_t>(table.size()) == 2 * pairs; };
  const bool bluestein = t.inner != t.points;
  require(holds(passes, num_factors), "passes: wrong size");
  require(holds(ends, t.odd() ? 2 : 3 + t.points / 2), "ends: wrong size");
  require(holds(chirp, bluestein ? t.points : 0) && holds(filter, bluestein ? t.inner : 0), "chirp: wrong size");
  require(cosines.size() == 0 || holds(cosines, t.pairs()), "cosines: wrong size");
  t.passes = passes.data();
  t.ends = ends.data();
  t.chirp = chirp.data();
  t.filter = filter.data();
  t.cosines = cosines.size() ? cosines.data() : nullptr;
  return t;
}

class Fourier {
 public:
  explicit Fourier(const std::string& name) : kernels_(TW_PICK(fourier, name)) {}

  void forward(Dense<const float> x, Flat<const int64_t> sizes, Table passes, Table ends, Table chirp, Table filter,
               Table cosines, Dense<float> y) const {
    const tw::Turning t = turning_of(sizes, passes, ends, chirp, filter, cosines);
    run(kernels_->forward, x, t.length, t, y, t.width());
  }

  void inverse(Dense<const float> y, Flat<const int64_t> sizes, Table passes, Table ends, Table chirp, Table filter,
               Table cosines, Dense<float> x) const {
    const tw::Turning t = turning_of(sizes, passes, ends, chirp, filter, cosines);
    run(kernels_->inverse, y, t.width(), t, x, t.length);
  }

 private:
  template <typename Kernel>
  void run(Kernel kernel, const Dense<const float>& from, int64_t from_width, const tw::Turning& t,
           const Dense<float>& to, int64_t to_width) const {
    require(static_cast<int64_t>(from.shape(1)) == from_width && static_cast<int64_t>(to.shape(1)) == to_width &&
                from.shape(0) == to.shape(0),
            "rows: wrong size");
    nb::gil_scoped_release release;
    const std::unique_ptr<float[]> room(new float[static_cast<size_t>(tw::fourier_room(t))]);
    kernel(from.data(), static_cast<int64_t>(from.shape(0)), t, to.data(), room.get());
  }

  const tw::FourierKernels* kernels_;
};

}  // namespace

void bind_fourier(nb::module_& m) {
  const auto in = [](const char* name) { return nb::arg(name).noconvert(); };  // a converted copy would lose results
  nb::class_<Fourier>(m, "Fourier")
      .def(nb::init<const std::string&>())
      .def("forward", &Fourier::forward, in("x"), in("sizes"), in("passes"), in("ends"), in("chirp"), in("spectrum"),
           in("cosines"), in("y"))
      .def("inverse", &Fourier::inverse, in("y"), in("sizes"), in("passes"), in("ends"), in("chirp"), in("spectrum"),
           in("cosines"), in("x"));
}
