#include "popsr/bindings/bindings.h"
#include "popsr/bindings/records.h"
#include "popsr/kernels/float_env.h"
#include "popsr/transform/autodiff.h"
#include "popsr/transform/merge.h"

namespace popsr::bindings {
namespace {

using Connections = std::vector<std::pair<bool, TensorId>>;
/// A GradGraph record as it comes back: (forward graph, gradient graph, inputs, outputs).
using GradGraphFields = std::tuple<GraphId, GraphId, Connections, Connections>;

std::vector<Record<"Connection">> to_records(const std::vector<ExpectedConnection>& connections) {
  std::vector<Record<"Connection">> records;
  for (const ExpectedConnection& each : connections) {
    records.push_back(Record<"Connection">::of(each.is_gradient, each.fwd_tensor));
  }
  return records;
}

std::vector<ExpectedConnection> from_pairs(const Ir& ir, const Connections& pairs) {
  std::vector<ExpectedConnection> connections;
  for (const auto& [is_gradient, tensor] : pairs)
    connections.push_back({is_gradient, checked_tensor(ir, tensor)});
  return connections;
}

std::map<GraphId, Record<"GradGraph">> differentiate(Ir& ir, GraphId forward,
                                                     std::optional<std::vector<TensorId>> provided,
                                                     std::optional<std::vector<TensorId>> required,
                                                     const std::vector<GradGraphFields>& called,
                                                     bool sums_replicas) {
  const kernels::FloatEnvironment environment;
  AutodiffOptions options{.grads_provided = std::move(provided), .grads_required = std::move(required)};
  options.sums_replicas = sums_replicas;
  for (const auto& [fwd, graph, inputs, outputs] : called) {
    options.called[fwd] = {checked_graph(ir, fwd), checked_graph(ir, graph), from_pairs(ir, inputs),
                           from_pairs(ir, outputs)};
  }
  std::map<GraphId, Record<"GradGraph">> result;
  for (const auto& [fwd, grad] : autodiff(ir, checked_graph(ir, forward), options)) {
    result.emplace(
        fwd, Record<"GradGraph">::of(fwd, grad.graph, to_records(grad.inputs), to_records(grad.outputs)));
  }
  return result;
}

}  // namespace

void bind_transform(py::module_& m) {
  m.def("autodiff", &differentiate, py::arg("ir"), py::arg("forward"), py::arg("provided"),
        py::arg("required"), py::arg("called"), py::arg("sums_replicas") = false);
  m.def("merge_collectives", &merge_collectives);
  m.def("merge_exchange", &merge_exchange);
  m.def(
      "merge_exchange_since",
      [](Ir& ir, GraphId graph, std::uint32_t first) {
        return merge_exchange_since(ir, checked_graph(ir, graph), first);
      },
      py::arg("ir"), py::arg("graph"), py::arg("first"));
}

}  // namespace popsr::bindings
