#include "fuzz/stored_claims.h"

#include "popsr/ir/calls/called_graphs.h"
#include "popsr/ir/calls/loops.h"
#include "popsr/ir/op_def.h"

namespace popsr::test {
namespace {

bool is_store(const Op& op) { return op.def->name == "host_store"; }

/// The op, or its parts where it is merged.
std::vector<OpId> parts_of(const Op& op) {
  return op.schedule.parts.empty() ? std::vector<OpId>{op.id} : op.schedule.parts;
}

}  // namespace

StoredClaims::StoredClaims(const PartitionAnalysis& facts)
    : facts_(facts), flow_(facts), claims_(facts.ir().num_streams(), std::vector<PartitionId>()) {
  walk(facts.main_id());
}

void StoredClaims::walk(ContextId id) {
  const Context& context = facts_.context(id);
  const Graph& graph = facts_.ir().graph(context.graph);
  for (std::size_t i = 0; i < graph.ops.size(); ++i) {
    const Op& op = facts_.ir().op(graph.ops[i]);
    const FactView facts = context.ops[i];
    switch (op.def->program.control) {
      case Control::kNone:
        for (const OpId part : parts_of(op)) {
          if (is_store(facts_.ir().op(part))) store(context, facts_.ir().op(part));
        }
        break;
      case Control::kCall:
        walk(facts.callee);
        break;
      case Control::kRepeat:
        for (std::int64_t pass = counted_iterations(op).value_or(1); pass > 0; --pass) walk(facts.callee);
        break;
      case Control::kConditional:
        for (const CalledGraph& branch : called_graphs(facts_.ir(), op)) drop(branch.graph);
    }
  }
}

void StoredClaims::store(const Context& context, const Op& op) {
  auto& claims = claims_[op.get(Attr<StreamId>{"d2h_stream"})];
  if (!claims) return;
  const TensorId storage = flow_.storage_of(op.inputs[0]);
  const std::int32_t time = flow_.time_before(context.graph, op.inputs[0], op.schedule.position);
  claims->push_back(flow_.fact(context, storage, time));
}

void StoredClaims::drop(GraphId id) {
  if (!dropped_.insert(id).second) return;
  for (const OpId each : facts_.ir().graph(id).ops) {
    const Op& op = facts_.ir().op(each);
    for (const OpId part : parts_of(op)) {
      if (is_store(facts_.ir().op(part)))
        claims_[facts_.ir().op(part).get(Attr<StreamId>{"d2h_stream"})].reset();
    }
    for (const CalledGraph& called : called_graphs(facts_.ir(), op)) drop(called.graph);
  }
}

}  // namespace popsr::test
