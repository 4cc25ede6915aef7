#include "popsr/analysis/explain/explanation.h"

#include <fmt/format.h>

#include <algorithm>

#include "popsr/analysis/gradients/gradient_flow.h"
#include "popsr/base/error.h"
#include "popsr/ir/calls/loops.h"
#include "popsr/ir/op_def.h"

namespace popsr {
namespace {

constexpr std::size_t kMaxSteps = 24;     // of a text
constexpr std::size_t kMaxBlocks = 8;     // of a partition in a text
constexpr std::size_t kMaxReplicas = 32;  // of the same
constexpr std::string_view kRootNames[] = {"stream", "variable", "uninitialised", "own_value", "part",
                                           "zeros",  "seeds",    "divergence",    "position",  "undeclared"};
constexpr std::string_view kStepNames[] = {"op",       "write",     "store", "call",
                                           "argument", "iteration", "run",   "start"};

const std::string& name(const Ir& ir, TensorId tensor) { return ir.tensor(tensor).name; }

std::string block_text(const std::vector<Replica>& block) {
  std::string text;
  for (const Replica r : block) text += fmt::format("{}{}", text.empty() ? "" : ",", r);
  return "{" + text + "}";
}

StepKind entry_kind(const std::vector<Difference>& path, std::size_t i) {
  if (i + 1 == path.size()) return path[i].value.frame == kMainFrame ? StepKind::kStart : StepKind::kArgument;
  switch (path[i + 1].link) {
    case Link::kRun:
      return StepKind::kRun;
    case Link::kIteration:
      return StepKind::kIteration;
    default:
      return StepKind::kArgument;
  }
}

StepKind kind_of(const Dataflow& flow, const std::vector<Difference>& path, std::size_t i) {
  const Value& value = path[i].value;
  const Op* op = flow.writer(value);
  if (op == nullptr) return entry_kind(path, i);
  if (op->def->program.control != Control::kNone) return StepKind::kCall;
  const std::size_t k = flow.output(value).value();
  if (k >= op->outputs.size()) return StepKind::kStore;
  return op->outputs[k] == value.storage ? StepKind::kOp : StepKind::kWrite;
}

/// Text of the op that runs the frame's graph, such as "call of graph 'f'".
std::string control_text(const Dataflow& flow, FrameId frame) {
  return fmt::format("{} of graph '{}'", flow.call_of(frame).def->name, flow.graph(frame).name);
}

/// "call of graph 'f'", "conditional of graphs 'f' and 'g'".
std::string control_text(const Ir& ir, const Op& op) {
  const std::vector<CalledGraph> called = called_graphs(ir, op);
  std::string names;
  for (const CalledGraph& each : called) {
    names += fmt::format("{}'{}'", names.empty() ? "" : " and ", ir.graph(each.graph).name);
  }
  return fmt::format("{} of graph{} {}", op.def->name, called.size() > 1 ? "s" : "", names);
}

/// Effect of a call, loop or branch on the value of a path's i-th node.
std::string call_step_text(const Dataflow& flow, const std::vector<Difference>& path, std::size_t i) {
  const Ir& ir = flow.ir();
  const Value& value = path[i].value;
  const Op& op = *flow.writer(value);
  const std::string& storage = name(ir, value.storage);
  const Difference* next = i + 1 < path.size() ? &path[i + 1] : nullptr;
  if (next != nullptr && next->link == Link::kUntouched) {
    return fmt::format("'{}' is left alone by {} of graph '{}'", storage, op.def->name,
                       ir.graph(called_graphs(ir, op)[next->input].graph).name);
  }
  const bool inside = next != nullptr && next->link == Link::kResult;
  return fmt::format("'{}' {} {}", storage, flow.output(value) ? "is returned by" : "is written in",
                     inside ? control_text(flow, next->value.frame) : control_text(ir, op));
}

std::string argument_text(const Dataflow& flow, const std::vector<Difference>& path, std::size_t i) {
  const Value& value = path[i].value;
  const std::string what = control_text(flow, value.frame);
  if (i + 1 == path.size()) return fmt::format("'{}' is an input, {}", name(flow.ir(), value.storage), what);
  return fmt::format("'{}' is given '{}' by {}", name(flow.ir(), value.storage),
                     name(flow.ir(), path[i + 1].value.storage), what);
}

/// Effect of an op that runs no graphs on the value of a path's i-th node.
std::string op_step_text(const Dataflow& flow, const std::vector<Difference>& path, std::size_t i,
                         StepKind kind) {
  const Ir& ir = flow.ir();
  const std::string& storage = name(ir, path[i].value.storage);
  const std::string call = call_text(ir, *flow.writer(path[i].value));
  if (i + 1 < path.size() && path[i + 1].link == Link::kUntouched) {
    return fmt::format("'{}' is left alone in part by {}", storage, call);
  }
  if (kind == StepKind::kOp) return fmt::format("'{}' = {}", storage, call);
  return fmt::format("'{}' is {} by {}", storage, kind == StepKind::kWrite ? "written" : "stored", call);
}

std::string step_text(const Dataflow& flow, const std::vector<Difference>& path, std::size_t i,
                      StepKind kind) {
  const Ir& ir = flow.ir();
  const Value& value = path[i].value;
  const std::string& storage = name(ir, value.storage);
  switch (kind) {
    case StepKind::kOp:
    case StepKind::kWrite:
    case StepKind::kStore:
      return op_step_text(flow, path, i, kind);
    case StepKind::kCall:
      return call_step_text(flow, path, i);
    case StepKind::kArgument:
      return argument_text(flow, path, i);
    case StepKind::kIteration:
      return fmt::format("'{}' is '{}' of the iteration before, {}", storage,
                         name(ir, path[i + 1].value.storage), control_text(flow, value.frame));
    case StepKind::kRun:
      return fmt::format("'{}' is what the run before left", storage);
    case StepKind::kStart:
      return fmt::format("'{}' starts so", storage);
  }
  return "";
}

/// Text of the sources of a value, such as "'a' equal nowhere, 'b' equal on all replicas".
std::string sources_text(Dataflow& flow, const Value& value) {
  std::string text;
  for (const Source& source : flow.sources(value)) {
    const bool operand = source.link == Link::kOperand;
    if (operand && !flow.writer(value)->def->influences(source.input)) continue;
    text += fmt::format("{}'{}' {}", text.empty() ? "" : ", ", name(flow.ir(), source.value.storage),
                        equal_inside(flow.ir().partitions(), flow.fact(source.value)));
  }
  return text;
}

/// ", groups {0,1}{2,3}" of a collective.
std::string groups_text(const Ir& ir, const Op& op) {
  if (op.def->replicas.collective == Collective::kNone) return "";
  PartitionTable& table = ir.partitions();
  return ", groups " + table.to_string(group_of(ir, op).partition(table));
}

std::string stream_name(const Ir& ir, const Op& op) {
  for (const Attribute& attr : op.attrs) {
    if (const auto* stream = std::get_if<StreamId>(&attr)) return ir.stream(*stream).name;
  }
  return "";
}

}  // namespace

std::string_view to_string(RootKind kind) { return kRootNames[static_cast<std::size_t>(kind)]; }
std::string_view to_string(StepKind kind) { return kStepNames[static_cast<std::size_t>(kind)]; }

std::string equal_inside(const PartitionTable& table, PartitionId fact) {
  if (fact == table.top()) return "equal on all replicas";
  if (fact == table.bottom()) return "equal nowhere";
  std::vector<std::vector<Replica>> blocks(static_cast<std::size_t>(table.num_blocks(fact)));
  const auto labels = table.labels(fact);
  for (Replica r = 0; r < labels.size(); ++r) blocks[labels[r]].push_back(r);
  std::erase_if(blocks, [](const std::vector<Replica>& block) { return block.size() == 1; });
  std::size_t members = 0;
  for (const std::vector<Replica>& block : blocks) members += block.size();
  if (blocks.size() > kMaxBlocks || members > kMaxReplicas) {
    return fmt::format("equal inside each of {} blocks", table.num_blocks(fact));
  }
  std::string text;
  for (const std::vector<Replica>& block : blocks) {
    text += fmt::format("{}{}", text.empty() ? "" : ",", block_text(block));
  }
  return "equal inside " + text;
}

std::string blocks_text(const PartitionTable& table, PartitionId fact) {
  return table.replicas() <= static_cast<std::int64_t>(kMaxReplicas)
             ? table.to_string(fact)
             : fmt::format("{} blocks", table.num_blocks(fact));
}

std::string call_text(const Ir& ir, const Op& op) {
  // An entry that is known reads like an operand.
  const bool loads_known = op.def->program.remote == Remote::kLoads && known_offset(ir, op);
  std::string inputs;
  for (const TensorId input : loads_known ? all_inputs(ir, op) : op.inputs) {
    if (input != kNone) inputs += fmt::format("{}'{}'", inputs.empty() ? "" : ", ", name(ir, input));
  }
  return fmt::format("{}({})", op.def->name, inputs);
}

std::string place_text(const Ir& ir, LocationId location) {
  return location == kUnknownLocation ? "?" : ir.locations().to_string(location);
}

LocationId location_of(const Dataflow& flow, const Value& value) {
  const Op* op = flow.writer(value);
  if (op != nullptr && op->origin.location != kUnknownLocation) return op->origin.location;
  for (FrameId frame = value.frame; frame != kMainFrame; frame = flow.frame(frame).caller) {
    if (const LocationId found = flow.call_of(frame).origin.location; found != kUnknownLocation) return found;
  }
  const Tensor& tensor = flow.ir().tensor(value.storage);
  return tensor.state.resident == kNone ? tensor.state.location
                                        : flow.ir().tensor(tensor.state.resident).state.location;
}

namespace {

/// " (a part of the sum over {0,1})", of the last value of a gradient; "" where no sum is pending.
std::string pending_text(Dataflow& flow, GradientFlow& gradients, const Value& value) {
  const Ir& ir = flow.ir();
  const Tensor& tensor = ir.tensor(value.storage);
  const auto end = static_cast<std::uint32_t>(ir.graph(tensor.graph).ops.size());
  if (value.time != flow.time_before(tensor.graph, value.storage, end, value.part)) return "";
  const auto pending = gradients.pending(value.storage, {.context = flow.frame(value.frame).context});
  return pending ? fmt::format(" (a part of the sum over {})", blocks_text(ir.partitions(), *pending)) : "";
}

}  // namespace

ExplainStep step_of(Dataflow& flow, const Explanation& explanation, std::size_t i, GradientFlow* gradients) {
  const std::vector<Difference>& path = explanation.path;
  const auto& [value, r, s, link, input] = path[i];
  ExplainStep step{.kind = kind_of(flow, path, i),
                   .tensor = value.storage,
                   .location = location_of(flow, value),
                   .r = r,
                   .s = s,
                   .fact = flow.fact(value)};
  if (const Op* op = flow.writer(value)) {
    step.op = op->id;
  } else if (value.frame != kMainFrame) {
    step.op = flow.call_of(value.frame).id;
  }
  // A buffer's entry was made nowhere: where it is filled.
  if (step.location == kUnknownLocation && i + 1 < path.size())
    step.location = location_of(flow, path[i + 1].value);
  step.text = explanation.root ? step_text(flow, path, i, step.kind) : derivation(flow, value);
  if (gradients != nullptr) step.text += pending_text(flow, *gradients, value);
  return step;
}

bool differs_since(const PartitionAnalysis& facts, const Difference& node) {
  const auto labels = facts.ir().partitions().labels(declared_fact(facts.ir(), node.value.storage));
  return labels[node.r] == labels[node.s];
}

namespace {

std::string rows_text(const PartitionAnalysis& facts, const Op& op) {
  const Ir& ir = facts.ir();
  const PartitionId rows = facts.rows(*loaded_stream(ir, op));
  const std::string& name = ir.stream(*loaded_stream(ir, op)).name;
  if (rows == ir.partitions().bottom())
    return fmt::format("stream '{}' gives each replica data of its own", name);
  return fmt::format("rows of stream '{}' are {}", name, equal_inside(ir.partitions(), rows));
}

std::string start_text(const PartitionAnalysis& facts, const Difference& node) {
  const std::string& tensor = name(facts.ir(), node.value.storage);
  if (differs_since(facts, node)) {
    return fmt::format("an earlier run left replicas {} and {} of '{}' unequal", node.r, node.s, tensor);
  }
  return fmt::format("'{}' is declared {}", tensor,
                     equal_inside(facts.ir().partitions(), declared_fact(facts.ir(), node.value.storage)));
}

}  // namespace

std::string root_text(const Dataflow& flow, const Explanation& explanation) {
  const Difference& node = explanation.path.back();
  const Op* conditional = explanation.conditional;
  const Ir& ir = flow.ir();
  const Op* op = flow.writer(node.value);
  const std::string& tensor = name(ir, node.value.storage);
  const ConditionSource asked =
      conditional == nullptr ? ConditionSource{} : condition_source(ir, *conditional);
  switch (*explanation.root) {
    case RootKind::kStream:
      return rows_text(flow.facts(), *op);
    case RootKind::kVariable:
      return start_text(flow.facts(), node);
    case RootKind::kUninitialised:
      return fmt::format("nothing was written to '{}'", tensor);
    case RootKind::kOwnValue:
      return fmt::format("{} gives replicas {} and {} values of their own", op->def->name, node.r, node.s);
    case RootKind::kPart:
      return fmt::format("{} gives each member of a group a part of its own", op->def->name);
    case RootKind::kZeros:
      return fmt::format("{} sends nothing to replica {} or to replica {}, which holds zeros", op->def->name,
                         node.r, node.s);
    case RootKind::kSeeds:
      return fmt::format("{} rounds with other random numbers on replicas {} and {}", op->def->name, node.r,
                         node.s);
    case RootKind::kDivergence:
      return fmt::format("replicas {} and {} may {} {}{}: its condition '{}' differs", node.r, node.s,
                         asked.by == conditional ? "take different branches of" : "leave",
                         asked.by->def->name, asked.by == conditional ? "" : " at different times",
                         name(ir, asked.condition));
    case RootKind::kPosition:
      return fmt::format(
          "replicas {} and {} may be at different elements of stream '{}', which {} at {} lets some skip",
          node.r, node.s, stream_name(ir, *op), asked.by->def->name,
          place_text(ir, asked.by->origin.location));
    case RootKind::kUndeclared:
      return fmt::format("{} declares no partition rule, so nothing is proved of its results", op->def->name);
  }
  return "";
}

std::string derivation(Dataflow& flow, const Value& value) {
  const Ir& ir = flow.ir();
  const Op* op = flow.writer(value);
  const std::vector<Difference> path{{.value = value}};
  const std::string sources = sources_text(flow, value);
  if (op == nullptr) {
    const std::string& tensor = name(ir, value.storage);
    if (ir.tensor(value.storage).kind == TensorKind::kConstant)
      return fmt::format("'{}' is a constant", tensor);
    if (value.frame != kMainFrame) return fmt::format("{}: {}", argument_text(flow, path, 0), sources);
    const std::string declared = equal_inside(ir.partitions(), flow.facts().start(value.storage));
    return sources.empty() ? fmt::format("'{}' starts {} and is never written", tensor, declared)
                           : fmt::format("'{}' starts {}, and a run leaves {}", tensor, declared, sources);
  }
  std::string text = step_text(flow, path, 0, kind_of(flow, path, 0)) + groups_text(ir, *op);
  if (flow.facts().seed_rule(*op)) {
    const PartitionId seeds = facts_of(ir, flow.context(value.frame), *op).seeds;
    text += ", rounded with seeds " + equal_inside(ir.partitions(), seeds);
  }
  return sources.empty() ? text + ", which needs no input" : fmt::format("{}: {}", text, sources);
}

std::string to_string(Dataflow& flow, const Explanation& explanation, GradientFlow* gradients) {
  const Ir& ir = flow.ir();
  const PartitionTable& table = ir.partitions();
  const bool equal = !explanation.root;
  std::string text =
      fmt::format("'{}' is {}proved equal on replicas {} and {}; it is {}", name(ir, explanation.tensor),
                  equal ? "" : "not ", explanation.r, explanation.s, equal_inside(table, explanation.fact));
  const std::size_t steps = explanation.path.size();
  const std::size_t head = steps <= kMaxSteps ? steps : kMaxSteps / 2;
  for (std::size_t i = 0; i < steps; ++i) {
    if (i == head) {
      const std::size_t left_out = steps - 2 * head;
      text += fmt::format("\n  ... {} more steps ...", left_out);
      i += left_out;
    }
    const ExplainStep step = step_of(flow, explanation, i, gradients);
    text += fmt::format("\n  {}: {}", place_text(ir, step.location), step.text);
    if (equal) continue;
    text += fmt::format(": differs between replicas {} and {}; {}", step.r, step.s,
                        equal_inside(table, step.fact));
  }
  if (equal) return text;
  return text + fmt::format("\nroot: {}: {}\nsuggestion: {}", place_text(ir, explanation.root_location),
                            explanation.root_text, explanation.suggestion);
}

}  // namespace popsr
