#include "popsr/base/error.h"
#include "popsr/bindings/bindings.h"
#include "popsr/kernels/float_env.h"
#include "popsr/transform/autodiff.h"
#include "popsr/transform/merge.h"
#include "popsr/transform/stochastic_rounding.h"

namespace popsr::bindings {
namespace {

using Connections = std::vector<std::pair<bool, TensorId>>;
/// (forward graph, gradient graph, inputs, outputs); a connection is (is it a gradient?, forward tensor).
using GradTuple = std::tuple<GraphId, GraphId, Connections, Connections>;

Connections to_pairs(const std::vector<ExpectedConnection>& connections) {
  Connections pairs;
  for (const ExpectedConnection& each : connections) pairs.emplace_back(each.is_gradient, each.fwd_tensor);
  return pairs;
}

std::vector<ExpectedConnection> from_pairs(const Ir& ir, const Connections& pairs) {
  std::vector<ExpectedConnection> connections;
  for (const auto& [is_gradient, tensor] : pairs)
    connections.push_back({is_gradient, checked_tensor(ir, tensor)});
  return connections;
}

std::map<GraphId, GradTuple> differentiate(Ir& ir, GraphId forward,
                                           std::optional<std::vector<TensorId>> provided,
                                           std::optional<std::vector<TensorId>> required,
                                           const std::vector<GradTuple>& called) {
  const kernels::FloatEnvironment environment;
  AutodiffOptions options{.grads_provided = std::move(provided), .grads_required = std::move(required)};
  for (const auto& [fwd, graph, inputs, outputs] : called) {
    options.called[fwd] = {checked_graph(ir, fwd), checked_graph(ir, graph), from_pairs(ir, inputs),
                           from_pairs(ir, outputs)};
  }
  std::map<GraphId, GradTuple> result;
  for (const auto& [fwd, grad] : autodiff(ir, checked_graph(ir, forward), options)) {
    result.emplace(fwd, GradTuple(fwd, grad.graph, to_pairs(grad.inputs), to_pairs(grad.outputs)));
  }
  return result;
}

}  // namespace

void bind_transform(py::module_& m) {
  m.def("autodiff", &differentiate);
  m.def("assign_seeds", [](Ir& ir, const std::string& mode) {
    if (mode != "partition" && mode != "popart" && mode != "identical") {
      raise<AttributeValueError>(
          "stochastic_rounding: unknown mode, got '{}', expected 'partition', 'popart' or 'identical'", mode);
    }
    if (mode == "popart") return assign_popart_seeds(ir);
    assign_seeds(ir, mode == "identical" ? SeedRule::kIdentical : SeedRule::kPartition);
  });
  m.def("clear_seeds", &clear_seeds);
  m.def("merge_collectives", &merge_collectives);
  m.def("merge_exchange", &merge_exchange);
  m.def("merge_exchange_since", [](Ir& ir, GraphId graph, std::uint32_t first) {
    return merge_exchange_since(ir, checked_graph(ir, graph), first);
  });
  m.def("verify_seeds", &verify_seeds);
}

}  // namespace popsr::bindings
