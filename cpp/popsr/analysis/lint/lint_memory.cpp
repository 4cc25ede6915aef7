#include "popsr/analysis/lint/lint_memory.h"

#include <algorithm>

#include "popsr/effects/memory.h"
#include "popsr/ir/op_def.h"

namespace popsr {
namespace {

/// True if no lint of other ops can tell the program with the op from the one without.
bool only_reads(const PartitionAnalysis& facts, const Op& op) {
  const Ir& ir = facts.ir();
  const bool moves = loaded_stream(ir, op) || stored_stream(ir, op);
  return op.def->program.control == Control::kNone && op.def->program.remote == Remote::kNone && !moves &&
         op.def->memory.effects.empty() && op.def->memory.view == nullptr && op.schedule.parts.empty() &&
         facts.contexts(op.graph).size() < 2;
}

/// True if the op takes a gradient, or is in a gradient graph.
bool takes_gradients(const Ir& ir, const LintMemory& memory, const Op& op) {
  bool takes = ir.gradient_graph(op.graph) != nullptr;
  for (const TensorId input : op.inputs) {
    if (input == kNone) continue;
    for_each_root(ir, input, [&](TensorId root) {
      takes = takes || (root.index() < memory.gradients.size() && memory.gradients[root.index()]);
    });
  }
  return takes;
}

/// True if the program may have lints that need all of it: reads of unwritten memory; gradients that are
/// wrong, as what helps is looked for among all groups of the program; and gradient graphs that it lacked
/// before.
bool has_wide_lints(const Ir& ir, const LintMemory& memory) {
  if (std::ranges::any_of(memory.lints, [](const Lint& lint) { return lint.code == 10 || lint.code == 11; }))
    return true;
  for (std::size_t graph = memory.graphs; graph < ir.num_graphs(); ++graph) {
    if (ir.gradient_graph(GraphId(graph)) != nullptr) return true;
  }
  return ir.may_have([](const OpDef& def) {
    return def.memory.undefined != nullptr || def.program.remote == Remote::kLoads;
  });
}

}  // namespace

std::shared_ptr<LintMemory> grown_lints(Explainer& explainer, const LintMemory& memory) {
  const PartitionAnalysis& facts = explainer.flow().facts();
  const Ir& ir = facts.ir();
  // Facts hand on their lints to facts of the same seed rules only.
  if (!ir.grew_from(memory.epoch, memory.ops) || has_wide_lints(ir, memory)) return nullptr;
  auto now = std::make_shared<LintMemory>(memory);
  now->grown = true;
  for (; now->ops < ir.num_ops(); ++now->ops) {
    const Op& op = ir.op(OpId(now->ops));
    if (!only_reads(facts, op) || takes_gradients(ir, memory, op)) return nullptr;
    if (!facts.contexts(op.graph).empty()) lint_op(explainer, op, now->lints);
  }
  for (auto& [graph, order] : now->order) {
    if (!order.grow(ir)) return nullptr;
  }
  now->graphs = ir.num_graphs();
  now->epoch = ir.epoch();
  return now;
}

}  // namespace popsr
