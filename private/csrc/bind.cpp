// The extension module thinwire_private._native: checks sizes, releases the GIL, calls the core. Only this file and
// bind_rlwe.cpp know Python.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <string>

#include "extension.h"
#include "hash.h"
#include "kernels.h"

namespace nb = nanobind;
void bind_rlwe(nb::module_& m);
using namespace tw::crypt;

namespace tw::crypt {

const Kernels& kernels() {
#ifdef TW_HAVE_avx2
  static const bool wide = __builtin_cpu_supports("avx2");
  if (wide) return avx2::kernels;
#endif
  return portable::kernels;
}

}  // namespace tw::crypt

namespace {

template <typename T>
using In = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <typename T>
using Out = nb::ndarray<T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Bytes = In<uint8_t>;

void require(bool fits, const char* rule) {
  if (!fits) throw std::invalid_argument(rule);
}

void check_width(int width, int most) { require(width >= 1 && width <= most, "the width is out of range"); }

const uint8_t* delta_of(const Bytes& delta) {
  require(delta.size() == 16, "delta must be 16 bytes");
  return delta.data();
}

template <typename Word>
struct Product {
  // The shape and tweaks of one frame, checked.
  static Frame<Word> frame(const Hash& hash, const Bytes& rows, uint64_t first_index, uint64_t first_block,
                           const Out<Word>& out, size_t depth, size_t length, int width, int shift, bool negative) {
    check_width(width, 8 * sizeof(Word));
    require(depth > 0 && length > 0 && out.size() % length == 0, "the output must hold whole rows");
    const size_t num_rows = out.size() / length;
    require(rows.size() == 16 * num_rows * depth, "one OT row of 16 bytes per element of the choice matrix");
    require(shift >= 0 && shift < static_cast<int>(8 * sizeof(Word)), "the shift is out of range");
    Frame<Word> made{};
    made.pi = &hash.pi();
    made.rows = rows.data();
    made.first_index = first_index;
    made.first_block = first_block;
    made.out = out.data();
    made.num_rows = num_rows;
    made.depth = depth;
    made.length = length;
    made.width = width;
    made.shift = shift;
    made.negative = negative;
    return made;
  }

  static void cot_send(const Hash& hash, Bytes rows, Bytes delta, uint64_t first_index, uint64_t first_block,
                       In<Word> matrix, size_t length, int width, int shift, bool negative, Out<Word> out,
                       Out<uint8_t> wire) {
    require(length > 0 && matrix.size() % length == 0, "the matrix must hold whole rows");
    auto f = frame(hash, rows, first_index, first_block, out, matrix.size() / length, length, width, shift, negative);
    f.delta = delta_of(delta);
    f.matrix = matrix.data();
    require(wire.size() == packed_bytes(f.num_rows * f.depth * length, width), "the message has another size");
    f.wire = wire.data();
    nb::gil_scoped_release release;
    if constexpr (sizeof(Word) == 4)
      kernels().cot_send_32(f);
    else
      kernels().cot_send_64(f);
  }

  static void cot_receive(const Hash& hash, Bytes rows, Bytes bits, uint64_t first_index, uint64_t first_block,
                          size_t depth, size_t length, int width, int shift, bool negative, Out<Word> out, Bytes wire) {
    auto f = frame(hash, rows, first_index, first_block, out, depth, length, width, shift, negative);
    require(bits.size() == f.num_rows * depth, "one choice bit per OT");
    require(wire.size() == packed_bytes(f.num_rows * depth * length, width), "the message has another size");
    f.bits = bits.data();
    f.wire = const_cast<uint8_t*>(wire.data());
    nb::gil_scoped_release release;
    if constexpr (sizeof(Word) == 4)
      kernels().cot_receive_32(f);
    else
      kernels().cot_receive_64(f);
  }
};

void ot_send(const Hash& hash, Bytes rows, Bytes delta, Bytes flags, uint64_t first_index, In<uint64_t> matrix,
             In<uint64_t> noise, size_t length, int width, int shift, bool negative, Out<uint64_t> out,
             Out<uint8_t> wire) {
  require(length > 0 && matrix.size() % length == 0, "the matrix must hold whole rows");
  auto f =
      Product<uint64_t>::frame(hash, rows, first_index, 0, out, matrix.size() / length, length, width, shift, negative);
  const size_t num_ots = f.num_rows * f.depth;
  require(flags.size() == num_ots && noise.size() == num_ots * length, "one flag and one noise row per OT");
  require(wire.size() == 2 * packed_bytes(num_ots * length, width), "the message has another size");
  f.delta = delta_of(delta);
  f.bits = flags.data();
  f.matrix = matrix.data();
  f.noise = noise.data();
  f.wire = wire.data();
  nb::gil_scoped_release release;
  kernels().ot_send_64(f);
}

void ot_receive(const Hash& hash, Bytes rows, Bytes bits, uint64_t first_index, size_t depth, size_t length, int width,
                int shift, bool negative, Out<uint64_t> out, Bytes wire) {
  auto f = Product<uint64_t>::frame(hash, rows, first_index, 0, out, depth, length, width, shift, negative);
  const size_t num_ots = f.num_rows * depth;
  require(bits.size() == num_ots, "one choice bit per OT");
  require(wire.size() == 2 * packed_bytes(num_ots * length, width), "the message has another size");
  f.bits = bits.data();
  f.wire = const_cast<uint8_t*>(wire.data());
  nb::gil_scoped_release release;
  kernels().ot_receive_64(f);
}

struct ProductShape {
  size_t rows, length;
};

// (rows x depth) times (depth x length), checked.
ProductShape product_shape(size_t w, size_t x, size_t depth, size_t out) {
  require(depth > 0 && w % depth == 0 && x % depth == 0, "both factors must have the same depth");
  require(out == w / depth * (x / depth), "the output must be rows x length");
  return {w / depth, x / depth};
}

void check_k(int k) { require(k == 1 || k == 2 || k == 4 || k == 8, "k must be 1, 2, 4 or 8"); }
size_t leaf_bytes(int k) { return (size_t{128} / static_cast<size_t>(k) << k) * 16; }

// AES-CTR key stream under one key.
struct Prg {
  Prg(const Prg&) = delete;
  explicit Prg(const Bytes& key) {
    require(key.size() == 16, "the key must be 16 bytes");
    cipher = Cipher(Cipher::Mode::kCtr, key.data());
  }
  void fill(Out<uint8_t> out) {
    nb::gil_scoped_release release;
    std::fill(out.data(), out.data() + out.size(), uint8_t{0});
    cipher.apply(out.data(), out.data(), out.size());
  }
  Cipher cipher;
};

// AES-ECB under one key: the permutation itself, for the trees of the set-up and for the published vectors.
struct Permutation {
  Permutation(const Permutation&) = delete;
  explicit Permutation(const Bytes& key) {
    require(key.size() == 16, "the key must be 16 bytes");
    cipher = Cipher(Cipher::Mode::kEcb, key.data());
  }
  void apply(Bytes in, Out<uint8_t> out) {
    require(in.size() == out.size() && in.size() % 16 == 0, "whole blocks of 16 bytes, in and out alike");
    nb::gil_scoped_release release;
    cipher.apply(in.data(), out.data(), in.size());
  }
  Cipher cipher;
};

}  // namespace

NB_MODULE(_native, m) {
  nb::set_leak_warnings(false);
  m.doc() = "thinwire's cryptographic core: OT extension, hash, batched COT, packing";
  nb::module_ rlwe = m.def_submodule("rlwe", "ring-LWE: products, encryption, answers, decryption");
  bind_rlwe(rlwe);
  m.def("open_libcrypto", &open_libcrypto, nb::arg("path") = "");

  m.def("pack", [](In<uint64_t> values, int width, Out<uint8_t> wire) {
    check_width(width, 64);
    require(wire.size() == packed_bytes(values.size(), width), "the message has another size");
    nb::gil_scoped_release release;
    kernels().pack(values.data(), values.size(), width, wire.data());
  });
  m.def("unpack", [](Bytes wire, int width, Out<uint64_t> values) {
    check_width(width, 64);
    require(wire.size() == packed_bytes(values.size(), width), "the message has another size");
    nb::gil_scoped_release release;
    kernels().unpack(wire.data(), values.size(), width, values.data());
  });

  m.def("multiply", [](In<uint32_t> w, In<uint32_t> x, size_t depth, Out<uint32_t> out) {
    const auto shape = product_shape(w.size(), x.size(), depth, out.size());
    nb::gil_scoped_release release;
    kernels().multiply_32(w.data(), x.data(), shape.rows, depth, shape.length, out.data());
  });
  m.def("multiply", [](In<uint64_t> w, In<uint64_t> x, size_t depth, Out<uint64_t> out) {
    const auto shape = product_shape(w.size(), x.size(), depth, out.size());
    nb::gil_scoped_release release;
    kernels().multiply_64(w.data(), x.data(), shape.rows, depth, shape.length, out.data());
  });

  nb::class_<Prg>(m, "Prg").def(nb::init<const Bytes&>()).def("fill", &Prg::fill);
  nb::class_<Permutation>(m, "Permutation").def(nb::init<const Bytes&>()).def("apply", &Permutation::apply);

  nb::class_<SoftSpokenReceiver>(m, "SoftSpokenReceiver")
      .def("__init__",
           [](SoftSpokenReceiver* self, int k, Bytes leaves) {
             check_k(k);
             require(leaves.size() == leaf_bytes(k), "16 bytes per leaf");
             new (self) SoftSpokenReceiver(k, leaves.data());
           })
      .def("extend",
           [](SoftSpokenReceiver& self, Bytes choices, size_t n, Out<uint8_t> message, Out<uint8_t> rows) {
             require(choices.size() == (n + 7) / 8 && rows.size() == 16 * n,
                     "choices and rows must fit the number of OTs");
             require(message.size() == 128 / static_cast<size_t>(self.k) * ((n + 7) / 8),
                     "the message has another size");
             nb::gil_scoped_release release;
             self.extend(choices.data(), n, message.data(), rows.data());
           })
      .def("prepare", [](SoftSpokenReceiver& self, size_t num_blocks) {
        nb::gil_scoped_release release;
        self.prepare(num_blocks);
      });
  nb::class_<SoftSpokenSender>(m, "SoftSpokenSender")
      .def("__init__",
           [](SoftSpokenSender* self, int k, Bytes leaves, Bytes delta) {
             check_k(k);
             require(leaves.size() == leaf_bytes(k), "16 bytes per leaf");
             new (self) SoftSpokenSender(k, leaves.data(), delta_of(delta));
           })
      .def("extend",
           [](SoftSpokenSender& self, Bytes message, size_t n, Out<uint8_t> rows) {
             require(rows.size() == 16 * n, "rows must fit the number of OTs");
             require(message.size() == 128 / static_cast<size_t>(self.k) * ((n + 7) / 8),
                     "the message has another size");
             nb::gil_scoped_release release;
             self.extend(message.data(), n, rows.data());
           })
      .def("prepare", [](SoftSpokenSender& self, size_t num_blocks) {
        nb::gil_scoped_release release;
        self.prepare(num_blocks);
      });
  nb::class_<Kk13Receiver>(m, "Kk13Receiver")
      .def("__init__",
           [](Kk13Receiver* self, Bytes seeds) {
             require(seeds.size() == 512 * 16, "256 pairs of 16 bytes");
             new (self) Kk13Receiver(seeds.data());
           })
      .def("extend", [](Kk13Receiver& self, Bytes choices, Out<uint8_t> message, Out<uint8_t> rows) {
        const size_t n = choices.size();
        require(message.size() == 256 * ((n + 7) / 8) && rows.size() == 32 * n, "sizes must fit the number of OTs");
        nb::gil_scoped_release release;
        self.extend(choices.data(), n, message.data(), rows.data());
      });
  nb::class_<Kk13Sender>(m, "Kk13Sender")
      .def("__init__",
           [](Kk13Sender* self, Bytes seeds, Bytes secret) {
             require(seeds.size() == 256 * 16 && secret.size() == 32, "256 seeds of 16 bytes, a secret of 32 bytes");
             new (self) Kk13Sender(seeds.data(), secret.data());
           })
      .def("extend", [](Kk13Sender& self, Bytes message, size_t n, Out<uint8_t> rows) {
        require(message.size() == 256 * ((n + 7) / 8) && rows.size() == 32 * n, "sizes must fit the number of OTs");
        nb::gil_scoped_release release;
        self.extend(message.data(), n, rows.data());
      });

  nb::class_<Hash>(m, "Hash")
      .def("__init__",
           [](Hash* self, Bytes key) {
             require(key.size() == 32, "the key must be 32 bytes");
             new (self) Hash(key.data());
           })
      .def(
          "pads",
          [](const Hash& self, Bytes rows, std::optional<Bytes> delta, uint64_t first_index, Out<uint64_t> out) {
            require(rows.size() == 16 * out.size(), "one row of 16 bytes per pad");
            const uint8_t* d = delta ? delta_of(*delta) : nullptr;
            nb::gil_scoped_release release;
            self.pads(rows.data(), d, out.size(), first_index, out.data());
          },
          nb::arg(), nb::arg().none(), nb::arg(), nb::arg())
      .def("tables",
           [](const Hash& self, Bytes rows, Bytes delta, int log, uint64_t first_index, Out<uint8_t> out) {
             check_width(log, 8);
             const size_t count = out.size() >> log;
             require(out.size() == count << log && rows.size() == 16 * count * static_cast<size_t>(log),
                     "`log` rows of 16 bytes per table");
             const uint8_t* d = delta_of(delta);
             nb::gil_scoped_release release;
             self.tables(rows.data(), d, count, log, first_index, out.data());
           })
      .def("entries",
           [](const Hash& self, Bytes rows, Bytes choices, int log, uint64_t first_index, Out<uint8_t> out) {
             check_width(log, 8);
             require(choices.size() == out.size() && rows.size() == 16 * out.size() * static_cast<size_t>(log),
                     "`log` rows of 16 bytes per choice");
             nb::gil_scoped_release release;
             self.entries(rows.data(), choices.data(), out.size(), log, first_index, out.data());
           })
      .def("kk13_tables",
           [](const Hash& self, Bytes rows, Bytes secret, int log, uint64_t first_index, Out<uint8_t> out) {
             check_width(log, 8);
             const size_t count = out.size() >> log;
             require(out.size() == count << log && rows.size() == 32 * count && secret.size() == 32,
                     "one row of 32 bytes per table");
             nb::gil_scoped_release release;
             self.kk13_tables(rows.data(), secret.data(), count, log, first_index, out.data());
           })
      .def("kk13_entries",
           [](const Hash& self, Bytes rows, uint64_t first_index, Out<uint8_t> out) {
             require(rows.size() == 32 * out.size(), "one row of 32 bytes per choice");
             nb::gil_scoped_release release;
             self.kk13_entries(rows.data(), out.size(), first_index, out.data());
           })
      .def("cot_send", &Product<uint32_t>::cot_send)
      .def("cot_send", &Product<uint64_t>::cot_send)
      .def("cot_receive", &Product<uint32_t>::cot_receive)
      .def("cot_receive", &Product<uint64_t>::cot_receive)
      .def("ot_send", &ot_send)
      .def("ot_receive", &ot_receive);
}
