// popsr._core: private; the public Python package is written on top of it.
#include "popsr/bindings/bindings.h"

PYBIND11_MODULE(_core, m, pybind11::multiple_interpreters::not_supported()) {
  using namespace popsr::bindings;
  m.doc() = "Compiled core of popsr (private)";
  m.attr("__version__") = POPSR_VERSION;
  bind_errors(m);
  bind_process(m);
  bind_replica(m);
  bind_groups(m);
  bind_variable_settings(m);
  bind_ir(m);
  bind_transaction(m);
  bind_iteration(m);
  bind_schemas(m);
  bind_analysis(m);
  bind_popart(m);
  bind_explain(m);
  bind_transform(m);
  bind_ranks(m);
  bind_session(m);
  bind_sr(m);
  bind_fields(m);
  bind_dlpack(m);
}
