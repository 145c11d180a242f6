// The products kernels for Python: checks every shape, then releases the GIL.
#include <memory>

#include "bind.h"
#include "products.h"

namespace {

template <typename T>
using Dense = nb::ndarray<T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
template <typename T>
using Rows = nb::ndarray<T, nb::ndim<2>, nb::device::cpu>;

tw::Matrix matrix_of(const Rows<const float>& m) { return {m.data(), m.stride(0), m.stride(1)}; }

class Products {
 public:
  explicit Products(const std::string& name) : kernels_(TW_PICK(products, name)) {}

  void product(Rows<const float> a, Rows<const float> b, Flat<const float> start, Rows<float> c) const {
    require(a.shape(1) == b.shape(0) && c.shape(0) == a.shape(0) && c.shape(1) == b.shape(1), "product: shapes differ");
    if (c.stride(1) != 1 && c.shape(1) > 1) throw nb::type_error("product: rows of the result must be contiguous");
    require(start.size() == 0 || start.size() == b.shape(1), "product: start must be empty or a row of the result");
    const auto rows = static_cast<int64_t>(a.shape(0)), depth = static_cast<int64_t>(a.shape(1)),
               columns = static_cast<int64_t>(b.shape(1));
    const tw::Matrix left = matrix_of(a), right = matrix_of(b);
    nb::gil_scoped_release release;
    const std::unique_ptr<float[]> room(new float[static_cast<size_t>(tw::product_room(depth, columns))]);
    kernels_->product(left, right, start.size() ? start.data() : nullptr, rows, depth, columns, c.data(), c.stride(0),
                      room.get());
  }

  void orthonormal(Dense<float> p) const {
    require(p.shape(1) <= p.shape(0), "orthonormal: more columns than rows");
    nb::gil_scoped_release release;
    const std::unique_ptr<double[]> room(new double[(p.shape(1) + 1) * p.shape(0)]);
    kernels_->orthonormal(p.data(), static_cast<int64_t>(p.shape(0)), static_cast<int64_t>(p.shape(1)), room.get());
  }

  void eigen(Dense<double> a, Flat<double> values) const {
    require(a.shape(0) == a.shape(1) && values.size() == a.shape(0), "eigen: shapes differ");
    nb::gil_scoped_release release;
    const std::unique_ptr<double[]> room(new double[5 * a.shape(0)]);
    kernels_->eigen(a.data(), static_cast<int64_t>(a.shape(0)), values.data(), room.get());
  }

 private:
  const tw::ProductsKernels* kernels_;
};

}  // namespace

void bind_products(nb::module_& m) {
  const auto in = [](const char* name) { return nb::arg(name).noconvert(); };  // a converted copy would lose results
  nb::class_<Products>(m, "Products")
      .def(nb::init<const std::string&>())
      .def("product", &Products::product, in("a"), in("b"), in("start"), in("c"))
      .def("orthonormal", &Products::orthonormal, in("p"))
      .def("eigen", &Products::eigen, in("a"), in("values"));
}
