#include "popsr/ir/origin/place.h"

#include <algorithm>
#include <set>

#include "popsr/base/error.h"
#include "popsr/ir/calls/called_graphs.h"
#include "popsr/ir/op_def.h"

namespace popsr {
namespace {

/// Search for the place of one tensor. A graph may be called with a result of an earlier call of it, so
/// tensors under search are not visited again.
class Finder {
 public:
  explicit Finder(const Ir& ir) : ir_(ir) {}

  std::optional<Place> of(TensorId id) {
    if (id == kNone) return std::nullopt;
    const Tensor& tensor = ir_.tensor(id);
    const Op* const producer = tensor.uses.producer == kNone ? nullptr : &ir_.op(tensor.uses.producer);
    const bool at_once = producer && producer->def->program.control == Control::kNone;
    if (!at_once && !asked_.insert(id).second) return std::nullopt;
    if (producer) return of_output(*producer, id);
    if (tensor.kind == TensorKind::kInput) {
      if (const auto place = of_argument(tensor)) return place;
    }
    return of_use(tensor);
  }

 private:
  std::optional<Place> of_output(const Op& op, TensorId id) {
    const auto index = static_cast<std::size_t>(std::ranges::find(op.outputs, id) - op.outputs.begin());
    for (const CalledGraph& called : called_graphs(ir_, op)) {
      const std::vector<TensorId>& outputs = ir_.graph(called.graph).outputs;
      if (index >= outputs.size()) continue;
      if (const auto place = of(outputs[index])) return place;
    }
    return op.def->program.output_place ? op.def->program.output_place(op, index) : op.origin.place;
  }

  /// The operand of the first call whose placement is known.
  std::optional<Place> of_argument(const Tensor& input) {
    const Graph& graph = ir_.graph(input.graph);
    if (!graph.called()) return std::nullopt;
    const auto index =
        static_cast<std::uint32_t>(std::ranges::find(graph.inputs, input.id) - graph.inputs.begin());
    for (const OpId id : ir_.ops_with_graphs()) {
      if (id < graph.calls.first) continue;
      const Op& op = ir_.op(id);
      for (const CalledGraph& called : called_graphs(ir_, op)) {
        if (called.graph != input.graph || called.first + index >= called.end) continue;
        if (const auto place = of(op.inputs[called.first + index])) return place;
      }
    }
    return std::nullopt;
  }

  /// The placement of the first op that uses the tensor.
  std::optional<Place> of_use(const Tensor& tensor) {
    if (tensor.uses.first_use == kNone) return std::nullopt;
    if (const auto place = of_use_by(ir_.op(tensor.uses.first_use), tensor.id)) return place;
    for (std::size_t next = tensor.uses.first_use.index() + 1; next < ir_.num_ops(); ++next) {
      const Op& op = ir_.op(OpId(next));
      if (op.graph != tensor.graph || !op.schedule.parts.empty()) continue;
      if (const auto place = of_use_by(op, tensor.id)) return place;
    }
    return std::nullopt;
  }

  std::optional<Place> of_use_by(const Op& op, TensorId tensor) {
    for (std::uint32_t i = 0; i < op.inputs.size(); ++i) {
      if (op.inputs[i] != tensor) continue;
      if (const auto place = of_input(op, i)) return place;
    }
    return std::nullopt;
  }

  std::optional<Place> of_input(const Op& op, std::uint32_t index) {
    for (const CalledGraph& called : called_graphs(ir_, op)) {
      if (index < called.first || index >= called.end) continue;
      return of(ir_.graph(called.graph).inputs[index - called.first]);
    }
    return op.def->program.input_place ? op.def->program.input_place(op, index) : op.origin.place;
  }

  const Ir& ir_;
  std::set<TensorId> asked_;
};

}  // namespace

std::string_view to_string(TileSet tiles) { return tiles == TileSet::kIo ? "io" : "compute"; }

std::optional<Place> place_of(const Ir& ir, TensorId tensor) { return Finder(ir).of(tensor); }

bool needs_one_place(const OpDef& def) {
  return def.program.control == Control::kNone && def.program.input_place == nullptr;
}

void check_places(const Ir& ir, std::string_view where, const std::vector<TensorId>& tensors) {
  if (tensors.size() < 2) return;
  std::optional<Place> first;
  TensorId placed = kNone;
  for (const TensorId tensor : tensors) {
    if (tensor == kNone) continue;
    const std::optional<Place> place = place_of(ir, tensor);
    if (!place) continue;
    if (!first) {
      first = place;
      placed = tensor;
    } else if (place->ipu != first->ipu) {
      raise<GraphError>(
          "{}: inputs are on different IPUs, got '{}' on IPU {} and '{}' on IPU {}, expected one IPU", where,
          ir.tensor(placed).name, first->ipu, ir.tensor(tensor).name, place->ipu);
    } else if (place->tiles != first->tiles) {
      raise<GraphError>(
          "{}: inputs are on different tile sets, got '{}' on {} tiles and '{}' on {} tiles, expected one "
          "tile set",
          where, ir.tensor(placed).name, to_string(first->tiles), ir.tensor(tensor).name,
          to_string(place->tiles));
    }
  }
}

}  // namespace popsr
