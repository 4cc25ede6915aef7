#include "popsr/effects/stream_positions.h"

#include <algorithm>
#include <set>

#include "popsr/ir/calls/called_graphs.h"
#include "popsr/ir/op_def.h"

namespace popsr {

namespace {

std::optional<StreamId> moved_stream(const Ir& ir, const Op& op, bool to_device) {
  const std::vector<AttrDef>& declared = op.def->attrs;  // in the cache, which op.attrs need not be
  for (std::size_t i = 0; i < declared.size(); ++i) {
    if (declared[i].type != AttrType::kStream) continue;
    const auto* stream = std::get_if<StreamId>(&op.attrs[i]);
    if (stream != nullptr && ir.stream(*stream).to_device == to_device) return *stream;
  }
  return std::nullopt;
}

}  // namespace

std::optional<StreamId> loaded_stream(const Ir& ir, const Op& op) { return moved_stream(ir, op, true); }
std::optional<StreamId> stored_stream(const Ir& ir, const Op& op) { return moved_stream(ir, op, false); }

StreamPositions::StreamPositions(const Ir& ir) : ir_(ir) {
  std::set<StreamId> diverging;
  for (const OpId id : ir.ops_with_graphs()) {
    if (ir.op(id).def->program.control != Control::kConditional) continue;
    for (const CalledGraph& branch : called_graphs(ir, ir.op(id))) {
      const std::vector<StreamId> inside = reached(branch.graph);
      diverging.insert(inside.begin(), inside.end());
    }
  }
  diverging_.assign(diverging.begin(), diverging.end());
}

std::vector<StreamId> StreamPositions::reached(GraphId graph) const {
  std::set<StreamId> streams;
  std::set<GraphId> seen{graph};
  std::vector<GraphId> stack{graph};
  while (!stack.empty()) {
    const std::vector<OpId> ops = single_ops(ir_, stack.back());
    stack.pop_back();
    for (const OpId id : ops) {
      if (const auto stream = loaded_stream(ir_, ir_.op(id))) streams.insert(*stream);
      if (!runs_body(ir_.op(id))) continue;
      for (const CalledGraph& called : called_graphs(ir_, ir_.op(id))) {
        if (seen.insert(called.graph).second) stack.push_back(called.graph);
      }
    }
  }
  return {streams.begin(), streams.end()};
}

const std::vector<StreamId>& StreamPositions::of(GraphId graph) const {
  if (diverging_.empty() || graph == kMainGraph) return diverging_;
  if (const auto it = memo_.find(graph); it != memo_.end()) return it->second;
  std::vector<StreamId> streams = reached(graph);
  std::erase_if(streams, [this](StreamId id) { return !std::ranges::binary_search(diverging_, id); });
  return memo_[graph] = std::move(streams);
}

}  // namespace popsr
