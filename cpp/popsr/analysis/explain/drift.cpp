#include "popsr/analysis/explain/drift.h"

#include <fmt/format.h>

#include <memory>

#include "popsr/analysis/memory/state_reads.h"
#include "popsr/base/threads/deep_stack.h"

namespace popsr {
namespace {

/// Variables, shards, and the entries of remote buffers that variables live in.
std::vector<TensorId> variable_states(const PartitionAnalysis& facts) {
  const Ir& ir = facts.ir();
  std::vector<TensorId> states = facts.entry_tensors(kMainGraph);
  for (const RemoteId b : ids<RemoteId>(ir.num_remotes())) {
    for (const TensorId entry : ir.remote(b).entries) {
      if (ir.tensor(entry).state.resident != kNone) states.push_back(entry);
    }
  }
  return states;
}

/// Two replicas of one declared group that are not proved equal.
std::pair<Replica, Replica> pair_of(const Explainer& explainer, const Drift& drift) {
  return explainer.split(drift.declared, drift.at_end).value();
}

Lint lint_of(const Ir& ir, const Drift& drift, int code) {
  const auto copies = ir.partitions().num_blocks(drift.at_end) - ir.partitions().num_blocks(drift.declared);
  return {.code = code,
          .op = drift.op,
          .tensor = drift.variable,
          .location = drift.location,
          .cost = copies * static_cast<std::int64_t>(bytes_of(ir.tensor(drift.state).type)),
          .unit = "bytes"};
}

Lint read_lint(const Explainer& explainer, const Ir& ir, const Drift& drift) {
  const Tensor& variable = ir.tensor(drift.variable);
  const auto [r, s] = pair_of(explainer, drift);
  const std::int64_t replicas = variable.state.grouping->replicas();
  Lint lint = lint_of(ir, drift, 3);
  lint.cost = replicas - variable.state.grouping->num_groups();
  lint.unit = "replicas";
  lint.text = fmt::format(
      "one value per group is read back, but replicas {} and {} of one group of '{}' are not proved equal; "
      "the value of replica {} stands for its group and {} of {} replicas are not seen: all-reduce what "
      "updates it, group its replicas otherwise, or read all of them with replicas='all'",
      r, s, variable.name, variable.state.grouping->members(r)[0], lint.cost, replicas);
  return lint;
}

std::vector<Drift> drifts_of(Dataflow& flow) {
  const Ir& ir = flow.ir();
  std::vector<Drift> drifts;
  if (flow.facts().preserves_declared()) return drifts;
  std::unique_ptr<StateReads> reads;
  for (const TensorId state : variable_states(flow.facts())) {
    const PartitionId at_end = flow.facts().variable(state);
    if (at_end == ir.partitions().top()) continue;
    const PartitionId declared = declared_fact(ir, state);
    if (ir.partitions().refines(declared, at_end)) continue;
    if (reads == nullptr) reads = std::make_unique<StateReads>(ir, flow.facts().entry_tensors(kMainGraph));
    const TensorId resident = ir.tensor(state).state.resident;
    const Value last = flow.last(kMainFrame, state);
    drifts.push_back({.state = state,
                      .variable = resident == kNone ? state : resident,
                      .declared = declared,
                      .at_end = at_end,
                      .op = flow.writer(last) == nullptr ? kNone : flow.writer(last)->id,
                      .location = location_of(flow, last),
                      .overwritten = !reads->reads(state)});
  }
  return drifts;
}

}  // namespace

std::vector<Drift> find_drifts(Dataflow& flow) {
  return with_deep_stack([&flow] { return drifts_of(flow); });
}

Explanation explain_drift(Explainer& explainer, const Drift& drift) {
  const auto [r, s] = pair_of(explainer, drift);
  return explainer.explain(drift.variable, explainer.flow().last(kMainFrame, drift.state), r, s);
}

Lint drift_lint(Explainer& explainer, const Drift& drift) {
  const Ir& ir = explainer.flow().ir();
  const Explanation why = explain_drift(explainer, drift);
  Lint lint = lint_of(ir, drift, 2);
  lint.text = fmt::format("'{}' is declared {}, but a run leaves it {}: {}; {}",
                          ir.tensor(drift.variable).name, equal_inside(ir.partitions(), drift.declared),
                          equal_inside(ir.partitions(), drift.at_end), why.root_text, why.suggestion);
  return lint;
}

void lint_variables(Explainer& explainer, std::vector<Lint>& lints) {
  const Ir& ir = explainer.flow().ir();
  for (const Drift& drift : find_drifts(explainer.flow())) {
    if (drift.overwritten) continue;
    lints.push_back(drift_lint(explainer, drift));
    if (ir.tensor(drift.variable).state.retrieval == VariableRetrievalMode::kOnePerGroup) {
      lints.push_back(read_lint(explainer, ir, drift));
    }
  }
}

}  // namespace popsr
