// A rotation and its coder in one call for Python: tile by tile, so that values stay in a core's cache between the two.
#include <algorithm>
#include <memory>

#include "bind_runs.h"
#include "bind_segments.h"
#include "bind_words.h"
#include "qsgd.h"
#include "ternary.h"

namespace {

constexpr int64_t kTile = 20480;  // elements, at most: whole granules of all coders, whole blocks of all rotations
constexpr size_t kAnySize = size_t{1} << 60;  // of a buffer that is never made

// As few as are whole granules and blocks: what lies between the two calls then stays in the nearest cache.
int64_t tile_of(int64_t size) { return size <= 1024 ? kTile / 4 : kTile; }

// Room for a tile, aligned to a cache line.
class Room {
 public:
  Room() : floats_(new float[kTile + 16]) {}
  float* data() const {
    return floats_.get() + (64 - reinterpret_cast<uintptr_t>(floats_.get()) % 64) % 64 / sizeof(float);
  }

 private:
  std::unique_ptr<float[]> floats_;
};

// Runs of a rotation, and the segments of a coder that are the same elements. `y`, which would lie between them, is
// never made as a whole: only a tile of it.
class Tiles {
 public:
  Tiles(const Runs& runs, const Segments& segments, int64_t size)
      : runs_(runs), segments_(segments), tile_(tile_of(size)) {
    require(runs.count() == segments.count(), "runs and segments: not the same elements");
    for (int64_t i = 0; i < runs.count(); ++i) {
      const tw::Run& run = runs.data()[i];
      const tw::Segment& s = segments.data()[i];
      require(run.numel == s.numel && run.target == s.offset && run.start == s.start,
              "runs and segments: not the same elements");
    }
  }

  // Calls f(i, run, segment) for every tile of run i: both lie at the start of the room.
  template <typename F>
  void each(F f) const {
    for (int64_t i = 0; i < runs_.count(); ++i) {
      const tw::Run& whole = runs_.data()[i];
      for (int64_t first = 0; first < whole.numel; first += tile_) {
        tw::Run run = whole;
        tw::Segment s = segments_.data()[i];
        run.source += first, run.start += first, run.target = 0;
        s.row += first / tw::kRow, s.start += first, s.offset = 0;
        run.numel = s.numel = std::min(tile_, whole.numel - first);
        f(i, run, s);
      }
    }
  }

 private:
  const Runs& runs_;
  const Segments& segments_;
  const int64_t tile_;
};

class Turned {
 public:
  explicit Turned(const std::string& name)
      : hadamard_(TW_PICK(hadamard, name)), ternary_(TW_PICK(ternary, name)), qsgd_(TW_PICK(qsgd, name)) {}

  void encode_ternary(Flat<const float> x, Flat<const int64_t> runs, Flat<const int32_t> keys,
                      Flat<const float> factors, int64_t size, Flat<const int64_t> table, Flat<const float> scales,
                      Flat<const float> bounds, int digits, Flat<uint8_t> payload) const {
    require(digits == 4 || digits == 5, "digits: 4 or 5 wanted");
    const Segments segments(table, kAnySize, std::min(scales.size(), bounds.size()),
                            static_cast<int64_t>(payload.size()) / tw::kRow * digits);
    encode(x, runs, keys, factors, size, segments, [&](const float* y, const tw::Segment& s) {
      ternary_->encode(y, &s, 1, nullptr, scales.data(), bounds.data(), digits, payload.data());
    });
  }

  void encode_qsgd(Flat<const float> x, Flat<const int64_t> runs, Flat<const int32_t> keys, Flat<const float> factors,
                   int64_t size, Flat<const int64_t> table, Flat<const float> steps, int bits,
                   Flat<uint8_t> payload) const {
    require(bits >= 2 && bits <= 8, "bits: 2 to 8 wanted");
    const int64_t granules = static_cast<int64_t>(payload.size()) / tw::field_granule_bytes(bits);
    const Segments segments(table, kAnySize, steps.size(), granules * tw::field_rows(bits));
    encode(x, runs, keys, factors, size, segments, [&](const float* y, const tw::Segment& s) {
      qsgd_->encode(y, &s, 1, nullptr, steps.data(), bits, payload.data());
    });
  }

  void decode_sum(Flat<const int32_t> words, int64_t num_shards, int64_t rows_per_shard, int zero, int sum_digits,
                  Flat<const int64_t> table, Flat<const float> steps, Flat<const int64_t> runs,
                  Flat<const int32_t> keys, Flat<const float> factors, int64_t size, Flat<float> x) const {
    check_sum(zero, sum_digits);
    const int64_t rows = check_shards(words.size(), num_shards, rows_per_shard, sum_digits);
    const int64_t shard_words = words_of(rows_per_shard, sum_digits);
    const Segments segments(table, kAnySize, steps.size(), rows);
    const Runs all(runs, x.size(), kAnySize, keys.size(), factors.size(), size);
    const Tiles tiles(all, segments, size);
    nb::gil_scoped_release release;
    const Room room;
    tiles.each([&](int64_t i, const tw::Run& run, const tw::Segment& s) {
      const int64_t end = s.row + (s.numel + tw::kRow - 1) / tw::kRow;
      for (int64_t row = s.row; row < end;) {  // what of it lies in one shard, from the word it begins in
        const int64_t shard = row / rows_per_shard, first = row % rows_per_shard;
        const int64_t count = std::min(end - row, rows_per_shard - first), pack = first / sum_digits;
        const int64_t before = (row - s.row) * tw::kRow;
        tw::Segment part = s;
        part.offset = before, part.start += before, part.row = first - pack * sum_digits;
        part.numel = std::min(s.numel - before, count * tw::kRow);
        const auto* from = reinterpret_cast<const uint32_t*>(words.data()) + shard * shard_words + pack * tw::kRow;
        ternary_->decode_sum(from, 1, part.row + count, zero, sum_digits, &part, 1, steps.data(), room.data());
        row += count;
      }
      hadamard_->inverse(room.data(), &run, 1, words_of_key(keys, i), factors.data(), size, x.data(),
                         static_cast<int64_t>(x.size()));
    });
  }

 private:
  static const uint32_t* words_of_key(const Flat<const int32_t>& keys, int64_t i) {
    return reinterpret_cast<const uint32_t*>(keys.data()) + 2 * i;
  }

  template <typename Encode>
  void encode(const Flat<const float>& x, const Flat<const int64_t>& runs, const Flat<const int32_t>& keys,
              const Flat<const float>& factors, int64_t size, const Segments& segments, Encode code) const {
    const Runs all(runs, x.size(), kAnySize, keys.size(), factors.size(), size);
    const Tiles tiles(all, segments, size);
    nb::gil_scoped_release release;
    const Room room;
    tiles.each([&](int64_t i, const tw::Run& run, const tw::Segment& s) {
      hadamard_->forward(x.data(), &run, 1, words_of_key(keys, i), factors.data(), size, room.data(), kTile);
      code(room.data(), s);
    });
  }

  const tw::HadamardKernels* hadamard_;
  const tw::TernaryKernels* ternary_;
  const tw::QsgdKernels* qsgd_;
};

}  // namespace

void bind_turned(nb::module_& m) {
  const auto in = [](const char* name) { return nb::arg(name).noconvert(); };  // a converted copy would lose results
  nb::class_<Turned>(m, "Turned")
      .def(nb::init<const std::string&>())
      .def("encode_ternary", &Turned::encode_ternary, in("x"), in("runs"), in("keys"), in("factors"), nb::arg("size"),
           in("table"), in("scales"), in("bounds"), nb::arg("digits"), in("payload"))
      .def("encode_qsgd", &Turned::encode_qsgd, in("x"), in("runs"), in("keys"), in("factors"), nb::arg("size"),
           in("table"), in("steps"), nb::arg("bits"), in("payload"))
      .def("decode_sum", &Turned::decode_sum, in("words"), nb::arg("num_shards"), nb::arg("rows_per_shard"),
           nb::arg("zero"), nb::arg("sum_digits"), in("table"), in("steps"), in("runs"), in("keys"), in("factors"),
           nb::arg("size"), in("x"));
}
