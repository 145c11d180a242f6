// The range float kernels for Python: checks every table and size, then releases the GIL.
#include "bind.h"
#include "lane.h"
#include "rangefloat.h"

namespace {

constexpr int kMostMantissa = 22;

// The table of spans as it comes from Python: every entry is checked against the buffer it points into.
class Spans {
 public:
  Spans(const Flat<const int64_t>& table, size_t x_size)
      : spans_(reinterpret_cast<const tw::Span*>(table.data())), count_(static_cast<int64_t>(table.size()) / 2) {
    require(table.size() % 2 == 0, "span table: two columns wanted");
    const int64_t size = static_cast<int64_t>(x_size);
    for (int64_t i = 0; i < count_; ++i) {
      const tw::Span& s = spans_[i];
      require(s.offset >= 0 && s.numel >= 1 && s.offset <= size && s.numel <= size - s.offset,
              "span table: a tensor is empty or lies outside the buffer");
      require(numel_ <= kHuge, "span table: too many numbers");
      numel_ += s.numel;
    }
  }
  const tw::Span* data() const { return spans_; }
  int64_t count() const { return count_; }

  // Bytes of all codes: whole rows of 32, whole words of 32 columns.
  int64_t stream_bytes(int bits) const {
    const int64_t rows = (numel_ + tw::kRow - 1) / tw::kRow;
    return 4 * tw::kRow * ((rows * bits + 31) / 32);
  }

 private:
  static constexpr int64_t kHuge = int64_t{1} << 48;  // its bits are no overflow
  const tw::Span* spans_;
  int64_t count_, numel_ = 0;
};

void check_bits(int bits) { require(bits >= 4 && bits <= 16, "bits: 4 to 16 wanted"); }

const tw::Fit* check_fits(const Flat<const int32_t>& fits, int64_t count) {
  require(fits.size() % 2 == 0 && static_cast<int64_t>(fits.size() / 2) == count, "fits: two words a span wanted");
  const auto* found = reinterpret_cast<const tw::Fit*>(fits.data());
  for (int64_t i = 0; i < count; ++i)
    require(found[i].largest >= 0 && found[i].mantissa >= 0 && found[i].mantissa <= kMostMantissa,
            "fits: the bit pattern of max|x| and 0 to 22 mantissa bits wanted");
  return found;
}

class Rangefloat {
 public:
  explicit Rangefloat(const std::string& name) : kernels_(TW_PICK(rangefloat, name)) {}

  void measure(Flat<const float> x, Flat<const int64_t> table, int bits, int first, int count, int32_t largest,
               Flat<int32_t> words) const {
    check_bits(bits);
    const Spans spans(table, x.size());
    require(first >= 0 && count >= 0 && count <= kMostMantissa + 1 && first <= kMostMantissa + 1 - count,
            "mantissa bits: 0 to 22 wanted");
    require(largest >= 0, "largest: the bit pattern of max|x| wanted");
    require(words.size() == static_cast<size_t>(spans.count() * (count + (largest == 0))), "words: wrong size");
    nb::gil_scoped_release release;
    kernels_->measure(x.data(), spans.data(), spans.count(), bits, first, count, largest, words.data());
  }

  void encode(Flat<const float> x, Flat<const int64_t> table, Flat<const int32_t> fits, int bits, Flat<uint8_t> payload,
              Flat<int64_t> lost) const {
    check_bits(bits);
    const Spans spans(table, x.size());
    const tw::Fit* found = check_fits(fits, spans.count());
    require(static_cast<int64_t>(payload.size()) >= spans.stream_bytes(bits), "payload: too small");
    require(lost.size() == static_cast<size_t>(2 * spans.count()), "lost: two counts a span wanted");
    nb::gil_scoped_release release;
    kernels_->encode(x.data(), spans.data(), found, spans.count(), bits, payload.data(),
                     reinterpret_cast<tw::Lost*>(lost.data()));
  }

  void decode(Flat<const uint8_t> payloads, int64_t num_payloads, Flat<const int64_t> table, Flat<const int32_t> fits,
              int bits, float factor, Flat<float> x) const {
    check_bits(bits);
    const Spans spans(table, x.size());
    const auto payload_bytes = static_cast<int64_t>(check_payloads(num_payloads, payloads.size()));
    require(payload_bytes >= spans.stream_bytes(bits), "payloads: too small");
    const tw::Fit* found = check_fits(fits, product(num_payloads, spans.count(), "fits: two words a span wanted"));
    nb::gil_scoped_release release;
    kernels_->decode(payloads.data(), num_payloads, payload_bytes, spans.data(), found, spans.count(), bits, factor,
                     x.data());
  }

 private:
  const tw::RangefloatKernels* kernels_;
};

}  // namespace

void bind_rangefloat(nb::module_& m) {
  const auto in = [](const char* name) { return nb::arg(name).noconvert(); };  // a converted copy would lose results
  nb::class_<Rangefloat>(m, "Rangefloat")
      .def(nb::init<const std::string&>())
      .def("measure", &Rangefloat::measure, in("x"), in("table"), nb::arg("bits"), nb::arg("first"), nb::arg("count"),
           nb::arg("largest"), in("words"))
      .def("encode", &Rangefloat::encode, in("x"), in("table"), in("fits"), nb::arg("bits"), in("payload"), in("lost"))
      .def("decode", &Rangefloat::decode, in("payloads"), nb::arg("num_payloads"), in("table"), in("fits"),
           nb::arg("bits"), nb::arg("factor"), in("x"));
}
