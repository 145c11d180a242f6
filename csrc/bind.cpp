// The extension module; every family of kernels binds itself in a file of its own.
#include "bind.h"

void bind_fourier(nb::module_& m);
void bind_hadamard(nb::module_& m);
void bind_products(nb::module_& m);
void bind_qsgd(nb::module_& m);
void bind_rangefloat(nb::module_& m);
void bind_sign(nb::module_& m);
void bind_ternary(nb::module_& m);
void bind_topk(nb::module_& m);
void bind_turned(nb::module_& m);

NB_MODULE(_native, m) {
  nb::set_leak_warnings(false);  // a daemon thread may still hold kernels when the interpreter ends
  m.doc() = "thinwire's native kernels";
  m.def("instruction_sets", &instruction_sets);
  bind_fourier(m);
  bind_hadamard(m);
  bind_products(m);
  bind_qsgd(m);
  bind_rangefloat(m);
  bind_sign(m);
  bind_ternary(m);
  bind_topk(m);
  bind_turned(m);
}
