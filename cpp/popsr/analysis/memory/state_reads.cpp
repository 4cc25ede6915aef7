#include "popsr/analysis/memory/state_reads.h"

#include <algorithm>

#include "popsr/analysis/explain/dataflow.h"
#include "popsr/effects/remote_access.h"
#include "popsr/ir/calls/loops.h"
#include "popsr/ir/ir.h"

namespace popsr {
namespace {

/// Largest value in bytes whose zeros are followed: counters are small.
constexpr std::size_t kMaxBytes = 64;

bool all_zero(const HostBytes& data) {
  return data.size() <= kMaxBytes &&
         std::all_of(data.data(), data.data() + data.size(), [](std::byte b) { return b == std::byte{0}; });
}

/// True if all elements that `values` has set are set in `others`.
bool implies(const std::vector<bool>& values, const std::vector<bool>& others) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (values[i] && !others[i]) return false;
  }
  return true;
}

/// Elements that both have set.
std::vector<bool> both(std::vector<bool> values, const std::vector<bool>& others) {
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = values[i] && others[i];
  return values;
}

}  // namespace

StateReads::StateReads(const Ir& ir, std::vector<TensorId> state)
    : ir_(ir), state_(std::move(state)), written_(ir), parts_(ir) {
  std::vector<bool> zeros;
  for (const TensorId id : state_) zeros.push_back(starts_zero(id));
  // Greatest fixpoint across runs: what is 0 at the start of each.
  while (true) {
    main_ = summarise(kMainGraph, state_, zeros);
    if (implies(zeros, main_.zeros)) return;
    zeros = both(std::move(zeros), main_.zeros);
  }
}

bool StateReads::reads(TensorId state) const {
  const auto at = std::ranges::find(state_, state);
  if (at == state_.end()) {
    return main_.entry_reads.contains(state) || !main_.entry_overwrites.contains(state);
  }
  const auto i = static_cast<std::size_t>(at - state_.begin());
  return main_.reads[i] || !main_.overwrites[i];
}

bool StateReads::starts_zero(TensorId state) const {
  const Tensor& tensor = ir_.tensor(state);
  const Tensor& variable = tensor.state.resident == kNone ? tensor : ir_.tensor(tensor.state.resident);
  return variable.state.data && all_zero(*variable.state.data);
}

const StateReads::Summary& StateReads::of(GraphId graph, const std::vector<bool>& zeros) {
  const std::pair key{graph.value, zeros};
  if (const auto it = memo_.find(key); it != memo_.end()) return it->second;
  return memo_.emplace(key, summarise(graph, ir_.graph(graph).inputs, zeros)).first->second;
}

StateReads::Summary StateReads::summarise(GraphId graph, const std::vector<TensorId>& inputs,
                                          const std::vector<bool>& zeros) {
  Walk walk;
  walk.summary.reads.resize(inputs.size());
  for (std::uint32_t i = 0; i < inputs.size(); ++i) {
    walk.given[inputs[i]] = {i, kWholePart};
    if (zeros[i]) walk.zeros.insert(inputs[i]);
  }
  for (const OpId op : single_ops(ir_, graph)) visit(walk, ir_.op(op));
  for (const TensorId output : ir_.graph(graph).outputs) {
    read(walk, output);
    walk.summary.zero_outputs.push_back(is_zero(walk, output));
  }
  for (const TensorId input : inputs) {
    walk.summary.overwrites.push_back(!walk.given.contains(input));
    walk.summary.zeros.push_back(walk.zeros.contains(input));
  }
  return std::move(walk.summary);
}

void StateReads::visit(Walk& walk, const Op& op) {
  if (op.def->program.control != Control::kNone) return visit_graphs(walk, op);
  if (op.def->memory.view != nullptr) return;
  std::vector<bool> zeros;
  for (const TensorId input : op.inputs) zeros.push_back(input != kNone && is_zero(walk, input));
  const ZeroFacts facts = op.def->memory.zeros == nullptr ? ZeroFacts{} : op.def->memory.zeros(op, zeros);
  for (std::size_t i = 0; i < op.inputs.size(); ++i) {
    if (op.inputs[i] != kNone && op.def->influences(i) && (i > 0 || !facts.ignores)) read(walk, op.inputs[i]);
  }
  if (op.def->program.remote != Remote::kNone) visit_remote(walk, op);
  for (std::size_t k = 0; k < op.outputs.size(); ++k) {
    write(walk, op.outputs[k], k == 0 && (facts.clears || (op.def->memory.same_bytes && zeros[0])));
  }
}

void StateReads::visit_remote(Walk& walk, const Op& op) const {
  const std::vector<TensorId> entries = remote_entries(ir_, op);
  if (op.def->program.remote == Remote::kStores) {
    if (entries.size() == 1) walk.summary.entry_overwrites.insert(entries[0]);
  } else {
    for (const TensorId entry : entries) read_entry(walk, entry);
  }
}

/// Summary of a loop of one pass or more: after the first iteration only untouched memory still holds entry
/// values, and fewer inputs are known to be zero.
StateReads::Summary StateReads::of_loop(const Op& op, GraphId body, std::vector<bool> zeros) {
  Summary result = of(body, zeros);
  if (counted_iterations(op) == 1) return result;
  const auto after = [](const Summary& pass) {
    std::vector<bool> left = pass.zeros;
    std::copy(pass.zero_outputs.begin(), pass.zero_outputs.end(),
              left.begin());  // of the inputs that are carried
    return left;
  };
  while (true) {
    const std::vector<bool> left = after(of(body, zeros));
    if (implies(zeros, left)) break;
    zeros = both(std::move(zeros), left);
  }
  const Summary& later = of(body, zeros);
  for (std::size_t i = 0; i < result.reads.size(); ++i) {
    if (later.reads[i] && !result.overwrites[i]) result.reads[i] = true;
  }
  for (const TensorId entry : later.entry_reads) {
    if (!result.entry_overwrites.contains(entry)) result.entry_reads.insert(entry);
  }
  result.zeros = later.zeros;
  result.zero_outputs = later.zero_outputs;
  return result;
}

void StateReads::visit_graphs(Walk& walk, const Op& op) {
  if (!runs_body(op)) {
    for (const TensorId input : op.inputs) read(walk, input);
    for (const TensorId output : op.outputs) write(walk, output, false);
    return;
  }
  const bool loop = op.def->program.control == Control::kRepeat;
  if (op.def->program.control == Control::kConditional) read(walk, op.inputs[0]);
  const std::vector<CalledGraph> called = called_graphs(ir_, op);
  // Number of branches that write, overwrite and clear a tensor of the caller.
  struct Written {
    std::size_t overwritten = 0, zeros = 0, branches = 0;
  };
  std::map<TensorId, Written> written;
  std::vector<bool> zero_outputs(op.outputs.size(), true);
  std::map<TensorId, std::size_t> entries;
  for (const CalledGraph& each : called) {
    std::vector<bool> zeros;
    for (std::uint32_t i = each.first; i < each.end; ++i) zeros.push_back(is_zero(walk, op.inputs[i]));
    const Summary summary = loop ? of_loop(op, each.graph, zeros) : of(each.graph, zeros);
    for (std::uint32_t i = each.first; i < each.end; ++i) {
      if (summary.reads[i - each.first]) read(walk, op.inputs[i]);
    }
    for (const TensorId entry : summary.entry_reads) read_entry(walk, entry);
    for (const TensorId entry : summary.entry_overwrites) ++entries[entry];
    for (const std::uint32_t i : op.call.modified) {
      if (i < each.first || i >= each.end || !written_.by_call(op, i)) continue;
      Written& of_tensor = written[op.inputs[i]];
      const bool carried = loop && i < op.outputs.size();
      ++of_tensor.branches;
      of_tensor.overwritten += !carried && summary.overwrites[i - each.first] ? 1 : 0;
      of_tensor.zeros += !carried && summary.zeros[i - each.first] ? 1 : 0;
    }
    zero_outputs = both(std::move(zero_outputs), summary.zero_outputs);
  }
  for (const auto& [tensor, counts] : written) {
    const bool zeros =
        counts.zeros == counts.branches && (counts.branches == called.size() || is_zero(walk, tensor));
    if (counts.overwritten == called.size()) {
      write(walk, tensor, zeros);
    } else if (!zeros) {
      for_each_root(ir_, tensor, [&](TensorId root) { walk.zeros.erase(root); });
    }
  }
  for (const auto& [entry, branches] : entries) {
    if (branches == called.size()) walk.summary.entry_overwrites.insert(entry);
  }
  for (std::size_t k = 0; k < op.outputs.size(); ++k) write(walk, op.outputs[k], zero_outputs[k]);
}

void StateReads::read(Walk& walk, TensorId tensor) const {
  for_each_root(ir_, tensor, [&](TensorId root) {
    const auto it = walk.given.find(root);
    if (it == walk.given.end()) return;
    const auto [input, part] = it->second;
    if (!is_viewed(ir_, root) || parts_.touches(root, part, tensor)) walk.summary.reads[input] = true;
  });
}

void StateReads::read_entry(Walk& walk, TensorId entry) const {
  if (!walk.summary.entry_overwrites.contains(entry)) walk.summary.entry_reads.insert(entry);
}

void StateReads::write(Walk& walk, TensorId tensor, bool zeros) {
  const bool view = view_of(ir_, tensor) != nullptr;
  for_each_root(ir_, tensor, [&](TensorId root) {
    const auto it = walk.given.find(root);
    std::optional<PartId> left;
    if (it != walk.given.end() && is_viewed(ir_, root)) left = parts_.rest(root, it->second.second, tensor);
    if (it != walk.given.end() && left) {
      it->second.second = *left;
    } else if (it != walk.given.end()) {
      walk.given.erase(it);
    }
    // Zeros in a part leave the rest what it was.
    if (zeros && (!view || !parts_.rest(root, kWholePart, tensor))) walk.zeros.insert(root);
    if (!zeros) walk.zeros.erase(root);
  });
}

bool StateReads::is_zero(const Walk& walk, TensorId tensor) const {
  bool zeros = true;
  for_each_root(ir_, tensor, [&](TensorId root) {
    const Tensor& memory = ir_.tensor(root);
    const bool constant = memory.kind == TensorKind::kConstant;
    zeros &= constant ? all_zero(*memory.state.data) : walk.zeros.contains(root);
  });
  return zeros;
}

}  // namespace popsr
