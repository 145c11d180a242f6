// The top-k kernels for Python: checks every table and size, then releases the GIL.
#include "bind.h"
#include "topk.h"

namespace {

// A table of runs (int64) whose every entry is checked against the buffers it points into.
class Runs {
 public:
  Runs(const Flat<const int64_t>& table, size_t x_size, size_t index_bytes, size_t num_values)
      : runs_(reinterpret_cast<const tw::Run*>(table.data())),
        count_(static_cast<int64_t>(table.size()) / tw::kRunColumns) {
    require(static_cast<int64_t>(table.size()) % tw::kRunColumns == 0, "run table: nine columns wanted");
    for (int64_t i = 0; i < count_; ++i) {
      const tw::Run& r = runs_[i];
      const auto size = static_cast<int64_t>(x_size);
      require(r.group == 1 || r.group == 2, "run table: a group is 1 or 2 numbers");
      require(r.chunk >= 1 && r.chunk < (int64_t{1} << 31), "run table: a chunk has 1 to 2^31 - 1 groups");
      require(r.offset >= 0 && r.offset <= size && r.count >= 0 && r.count <= (size - r.offset) / (r.chunk * r.group),
              "run table: a chunk lies outside the buffer");
      require(r.k >= 1 && r.k <= r.chunk, "run table: k lies outside 1 .. chunk");
      require(r.low_bits >= 0 && r.low_bits <= (tw::whole(r) ? 0 : 31), "run table: low_bits lies outside 0 .. 31");
      require(inside(r.low_byte, tw::low_bytes(r), index_bytes) && inside(r.high_byte, tw::high_bytes(r), index_bytes),
              "run table: indices lie outside the payload");
      require(inside(r.value, r.count * r.k * r.group, num_values), "run table: values lie outside their buffer");
    }
  }
  const tw::Run* data() const { return runs_; }
  int64_t count() const { return count_; }

 private:
  static bool inside(int64_t first, int64_t count, size_t size) {
    return first >= 0 && first <= static_cast<int64_t>(size) && count <= static_cast<int64_t>(size) - first;
  }
  const tw::Run* runs_;
  int64_t count_;
};

class Topk {
 public:
  explicit Topk(const std::string& name) : kernels_(TW_PICK(topk, name)) {}

  void select(Flat<const float> x, Flat<const int64_t> table, Flat<uint8_t> indices, Flat<float> values) const {
    const Runs runs(table, x.size(), indices.size(), values.size());
    nb::gil_scoped_release release;
    kernels_->select(x.data(), runs.data(), runs.count(), indices.data(), values.data());
  }

  void scatter(Flat<const uint8_t> payloads, int64_t num_payloads, Flat<const int64_t> table, Flat<const float> values,
               float factor, Flat<float> x) const {
    const size_t payload_bytes = check_payloads(num_payloads, payloads.size());
    const size_t num_values = check_payloads(num_payloads, values.size());
    const Runs runs(table, x.size(), payload_bytes, num_values);
    bool fine;
    {
      nb::gil_scoped_release release;
      fine = kernels_->scatter(payloads.data(), num_payloads, static_cast<int64_t>(payload_bytes), runs.data(),
                               runs.count(), values.data(), static_cast<int64_t>(num_values), factor, x.data());
    }
    require(fine, "topk payload: its indices are damaged, they name places outside their chunk");
  }

 private:
  const tw::TopkKernels* kernels_;
};

}  // namespace

void bind_topk(nb::module_& m) {
  const auto in = [](const char* name) { return nb::arg(name).noconvert(); };  // a converted copy would lose results
  nb::class_<Topk>(m, "Topk")
      .def(nb::init<const std::string&>())
      .def("select", &Topk::select, in("x"), in("table"), in("indices"), in("values"))
      .def("scatter", &Topk::scatter, in("payloads"), nb::arg("num_payloads"), in("table"), in("values"),
           nb::arg("factor"), in("x"));
}
