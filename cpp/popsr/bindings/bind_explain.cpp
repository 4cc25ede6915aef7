// Facts at any time and on any call path, explanations, lints.
#include <algorithm>
#include <limits>
#include <optional>

#include "popsr/analysis/explain/drift.h"
#include "popsr/analysis/explain/explain.h"
#include "popsr/analysis/gradients/missing_sum.h"
#include "popsr/analysis/lint/lints.h"
#include "popsr/base/error.h"
#include "popsr/base/threads/deep_stack.h"
#include "popsr/bindings/bindings.h"
#include "popsr/bindings/classes.h"
#include "popsr/bindings/records.h"

namespace popsr::bindings {
namespace {

using namespace py::literals;

const Ir& ir_of(Explainer& self) { return self.flow().ir(); }

TensorId home_of(Explainer& self, TensorId id) {
  const Tensor& tensor = ir_of(self).tensor(checked_tensor(ir_of(self), id));
  return tensor.state.home == kNone ? id : tensor.state.home;
}

Partition to_partition(Explainer& self, PartitionId id) { return {ir_of(self).partition_table(), id}; }

/// Time of a tensor's value: its last write among the first `end` ops of its graph.
std::int32_t time_of(Explainer& self, TensorId id, std::int64_t end) {
  self.flow().facts().check_fresh();
  const Tensor& tensor = ir_of(self).tensor(home_of(self, id));
  const auto ops = static_cast<std::int64_t>(ir_of(self).graph(tensor.graph).ops.size());
  if (end < 0 || end > ops) {
    raise<OutOfRangeError>("partition: no such time, got {}, expected -1 to {} in {}", end - 1, ops - 1,
                           in_words(ir_of(self).graph(tensor.graph)));
  }
  // Not by the write that is found: of memory without elements there is none.
  if (tensor.uses.producer != kNone &&
      end <= std::int64_t{ir_of(self).op(tensor.uses.producer).schedule.position}) {
    raise<GraphError>("partition: '{}' has no value yet, got time {}, expected the time of its op or later",
                      tensor.name, end - 1);
  }
  return self.flow().time_before(tensor.graph, tensor.id, static_cast<std::uint32_t>(end));
}

/// Result of time_of() immediately before the op, or after it if `after`.
std::int32_t time_at_op(Explainer& self, TensorId id, OpId op_id, bool after) {
  const Op& op = ir_of(self).op(checked_op(ir_of(self), op_id));
  const Tensor& tensor = ir_of(self).tensor(home_of(self, id));
  if (op.graph != tensor.graph) {
    raise<GraphError>("partition: op of another graph, got {} of {} for '{}', expected {}", op.def->name,
                      in_words(ir_of(self).graph(op.graph)), tensor.name,
                      in_words(ir_of(self).graph(tensor.graph)));
  }
  return time_of(self, id, std::int64_t{op.schedule.position} + (after ? 1 : 0));
}

std::int32_t last_time(Explainer& self, TensorId id) {
  const GraphId graph = ir_of(self).tensor(id).graph;
  return self.flow().time_before(graph, id, static_cast<std::uint32_t>(ir_of(self).graph(graph).ops.size()));
}

/// Contexts to search: the one given, otherwise all contexts of the tensor's graph.
std::vector<ContextId> contexts_for(Explainer& self, TensorId tensor, std::optional<ContextId> context) {
  const GraphId graph = ir_of(self).tensor(tensor).graph;
  const std::vector<ContextId>& all = self.flow().facts().contexts(graph);
  if (!context) return all;
  if (std::ranges::find(all, *context) == all.end()) {
    raise<GraphError>("partition: context of another graph, got one of {} for '{}', expected {}",
                      in_words(ir_of(self).graph(self.flow().facts().context(*context).graph)),
                      ir_of(self).tensor(tensor).name, in_words(ir_of(self).graph(graph)));
  }
  return {*context};
}

Partition fact(Explainer& self, TensorId id, std::optional<std::int32_t> time,
               std::optional<ContextId> context) {
  self.flow().facts().check_fresh();
  const TensorId tensor = home_of(self, id);
  const std::int32_t at = time.value_or(last_time(self, tensor));
  PartitionTable& table = ir_of(self).partitions();
  PartitionId met = table.top();
  for (const ContextId each : contexts_for(self, tensor, context)) {
    met = table.meet(met,
                     self.flow().fact(self.flow().facts().context(each), self.flow().storage_of(tensor), at));
  }
  return to_partition(self, met);
}

std::optional<Partition> pending(Explainer& self, TensorId id, std::optional<std::int32_t> time,
                                 std::optional<ContextId> context) {
  self.flow().facts().check_fresh();
  const TensorId tensor = home_of(self, id);
  GradientFlow::At at;
  if (context) at.context = contexts_for(self, tensor, context)[0];
  if (time) at.end = static_cast<std::uint32_t>(*time + 1);
  const auto pending = self.gradients().pending(tensor, at);
  return pending ? std::optional(to_partition(self, *pending)) : std::nullopt;
}

/// The partition in the table of the program.
PartitionId own_partition(Explainer& self, const Partition& partition) {
  POPSR_CHECK(partition.replicas() == ir_of(self).replication());
  const auto labels = partition.labels();
  return ir_of(self).partitions().from_keys(std::vector<std::uint64_t>(labels.begin(), labels.end()));
}

std::optional<Record<"MissingSumInfo">> describe(const std::optional<MissingSum>& sum) {
  if (!sum) return std::nullopt;
  return Record<"MissingSumInfo">::of(sum->made, sum->gradient, optional_id(sum->used),
                                      optional_id(sum->nonlinear));
}

std::optional<Record<"MissingSumInfo">> missing_sum_of(Explainer& self, TensorId id,
                                                       const Partition& declared) {
  self.flow().facts().check_fresh();
  return describe(
      missing_sum(self.flow().facts(), checked_tensor(ir_of(self), id), own_partition(self, declared)));
}

std::vector<Record<"ContextInfo">> contexts(Explainer& self, GraphId graph) {
  std::vector<Record<"ContextInfo">> result;
  for (const ContextId id : self.flow().facts().contexts(checked_graph(ir_of(self), graph))) {
    const Context& context = self.flow().facts().context(id);
    std::vector<Partition> inputs;
    for (const PartitionId input : context.inputs) inputs.push_back(to_partition(self, input));
    result.push_back(Record<"ContextInfo">::of(id, self.flow().call_path(self.flow().frame_of(id)), inputs,
                                               to_partition(self, context.exec)));
  }
  return result;
}

/// The graph of `op` that a path enters: the next call's, or the one asked about.
std::uint32_t branch_into(Explainer& self, const Op& op, GraphId graph) {
  const std::vector<CalledGraph> called = called_graphs(ir_of(self), op);
  const auto is_next = [graph](const CalledGraph& each) { return each.graph == graph; };
  const auto branches = std::ranges::count_if(called, is_next);
  if (branches != 1) {
    raise<GraphError>(
        "context: {} runs graph '{}' in {} of its branches, got one op, expected one of "
        "facts.contexts(graph)",
        op.def->name, ir_of(self).graph(graph).name, branches);
  }
  return static_cast<std::uint32_t>(std::ranges::find_if(called, is_next) - called.begin());
}

/// The context of the tensor's graph that a path of calls from the main graph leads to.
ContextId context_at(Explainer& self, TensorId tensor, const std::vector<OpId>& calls) {
  self.flow().facts().check_fresh();
  FrameId frame = {};
  for (std::size_t i = 0; i < calls.size(); ++i) {
    const Op& op = ir_of(self).op(checked_op(ir_of(self), calls[i]));
    const Graph& graph = self.flow().graph(frame);
    if (op.graph != graph.id || op.def->program.control == Control::kNone || !runs_body(op)) {
      raise<GraphError>("context: no call of {} that runs, got {}, expected calls from the main graph on",
                        in_words(graph), op.def->name);
    }
    std::uint32_t branch = 0;
    if (op.def->program.control == Control::kConditional) {
      const bool last = i + 1 == calls.size();
      const GraphId next = last ? ir_of(self).tensor(home_of(self, tensor)).graph
                                : ir_of(self).op(checked_op(ir_of(self), calls[i + 1])).graph;
      branch = branch_into(self, op, next);
    }
    frame = self.flow().enter(frame, op.schedule.position, branch);
  }
  return self.flow().frame(frame).context;
}

/// An explanation whose steps are made when they are asked for.
class ExplanationHandle {
 public:
  ExplanationHandle(std::shared_ptr<Explainer> explainer, Explanation explanation)
      : owner_(std::move(explainer)), explainer_(*owner_), explanation_(std::move(explanation)) {}

  const Explanation& get() const { return explanation_; }
  Partition partition() const { return to_partition(explainer_, explanation_.fact); }
  std::string text() const { return to_string(explainer_.flow(), explanation_, &explainer_.gradients()); }
  std::optional<std::string> root() const {
    if (!explanation_.root) return std::nullopt;
    return std::string(to_string(*explanation_.root));
  }
  std::string root_location() const {
    return ir_of(explainer_).locations().to_string(explanation_.root_location);
  }
  std::vector<Record<"ExplanationStep">> steps() const {
    std::vector<Record<"ExplanationStep">> steps;
    for (std::size_t i = 0; i < explanation_.path.size(); ++i) {
      const ExplainStep step = step_of(explainer_.flow(), explanation_, i, &explainer_.gradients());
      steps.push_back(
          Record<"ExplanationStep">::of(std::string(to_string(step.kind)), step.tensor, optional_id(step.op),
                                        ir_of(explainer_).locations().to_string(step.location), step.r,
                                        step.s, to_partition(explainer_, step.fact), step.text));
    }
    return steps;
  }

  std::optional<Record<"MissingSumInfo">> missing_sum(const Partition& declared) const {
    explainer_.flow().facts().check_fresh();
    return describe(popsr::missing_sum(explainer_.flow(), explanation_, own_partition(explainer_, declared)));
  }

 private:
  std::shared_ptr<Explainer> owner_;
  Explainer& explainer_;
  Explanation explanation_;
};

/// The value in the first context in which the two differ; else in the first.
std::unique_ptr<ExplanationHandle> explain(const std::shared_ptr<Explainer>& owner, TensorId id,
                                           std::optional<std::int32_t> time, std::optional<ContextId> context,
                                           Replica r, Replica s) {
  Explainer& self = *owner;
  self.flow().facts().check_fresh();
  POPSR_CHECK(std::max(r, s) < ir_of(self).replication());
  const TensorId tensor = home_of(self, id);
  const std::vector<ContextId> all = contexts_for(self, tensor, context);
  if (all.empty()) {
    raise<GraphError>(
        "explain: '{}' is never computed, got a tensor of graph '{}', which nothing calls, expected a "
        "tensor of a graph that runs",
        ir_of(self).tensor(tensor).name, ir_of(self).graph(ir_of(self).tensor(tensor).graph).name);
  }
  const std::int32_t at = time.value_or(last_time(self, tensor));
  const TensorId storage = self.flow().storage_of(tensor);
  const auto differs = [&](ContextId each) {
    const auto labels =
        ir_of(self).partitions().labels(self.flow().fact(self.flow().facts().context(each), storage, at));
    return labels[r] != labels[s];
  };
  const auto found = std::ranges::find_if(all, differs);
  const FrameId frame = self.flow().frame_of(found == all.end() ? all[0] : *found);
  const Value value = self.flow().before(frame, tensor, static_cast<std::uint32_t>(at + 1));
  return std::make_unique<ExplanationHandle>(owner, self.explain(id, value, r, s));
}

Record<"LintInfo"> describe_lint(const Ir& ir, const Lint& lint) {
  return Record<"LintInfo">::of(lint.code, optional_id(lint.op), optional_id(lint.tensor),
                                ir.locations().to_string(lint.location), lint.cost, std::string(lint.unit),
                                lint.text);
}

std::vector<Record<"LintInfo">> describe_lints(const Ir& ir, const std::vector<Lint>& lints) {
  std::vector<Record<"LintInfo">> result;
  for (const Lint& lint : lints) result.push_back(describe_lint(ir, lint));
  return result;
}

std::vector<Record<"LintInfo">> session_lints(Explainer& self) {
  self.flow().facts().check_fresh();
  std::vector<Lint> lints;
  with_deep_stack([&] {
    lint_control(self, lints);
    lint_stores(self, lints);
  });
  return describe_lints(ir_of(self), lints);
}

/// A variable that drifts; its explanation is made when it is asked for.
class DriftHandle {
 public:
  DriftHandle(std::shared_ptr<Explainer> explainer, const Drift& drift)
      : explainer_(std::move(explainer)), drift_(drift) {}

  const Drift& get() const { return drift_; }
  Partition declared() const { return to_partition(*explainer_, drift_.declared); }
  Partition kept() const { return to_partition(*explainer_, drift_.at_end); }
  std::string location() const { return ir_of(*explainer_).locations().to_string(drift_.location); }
  std::unique_ptr<ExplanationHandle> explain() const {
    explainer_->flow().facts().check_fresh();
    return std::make_unique<ExplanationHandle>(explainer_, explain_drift(*explainer_, drift_));
  }
  Record<"LintInfo"> lint() const {
    explainer_->flow().facts().check_fresh();
    return describe_lint(ir_of(*explainer_), drift_lint(*explainer_, drift_));
  }

 private:
  std::shared_ptr<Explainer> explainer_;
  Drift drift_;
};

py::typing::List<DriftHandle> drifts(const std::shared_ptr<Explainer>& explainer) {
  explainer->flow().facts().check_fresh();
  py::typing::List<DriftHandle> result;
  for (const Drift& drift : find_drifts(explainer->flow())) {
    result.append(std::make_unique<DriftHandle>(explainer, drift));
  }
  return result;
}

}  // namespace

void bind_explain(py::module_& m) {
  py::class_<ExplanationHandle> explanation(m, "Explanation");
  guard(explanation)
      .def_property_readonly("partition", &ExplanationHandle::partition)
      .def_property_readonly("root", &ExplanationHandle::root)
      .def_property_readonly("root_location", &ExplanationHandle::root_location)
      .def_property_readonly("root_text", [](const ExplanationHandle& self) { return self.get().root_text; })
      .def_property_readonly("suggestion",
                             [](const ExplanationHandle& self) { return self.get().suggestion; })
      .def("text", &ExplanationHandle::text)
      .def("steps", &ExplanationHandle::steps)
      .def("missing_sum", &ExplanationHandle::missing_sum, py::arg("declared"));
  py::class_<DriftHandle> drift(m, "Drift");
  guard(drift)
      .def_property_readonly("variable", [](const DriftHandle& self) { return self.get().variable; })
      .def_property_readonly("declared", &DriftHandle::declared)
      .def_property_readonly("kept", &DriftHandle::kept)
      .def_property_readonly("op", [](const DriftHandle& self) { return self.get().op; })
      .def_property_readonly("location", &DriftHandle::location)
      .def_property_readonly("overwritten", [](const DriftHandle& self) { return self.get().overwritten; })
      .def("explain", &DriftHandle::explain)
      .def("lint", &DriftHandle::lint);
  py::class_<Explainer, std::shared_ptr<Explainer>> explainer(m, "Explainer");
  guard(explainer)
      .def(py::init([](const std::shared_ptr<PartitionAnalysis>& facts) {
        return make_owning<Explainer>(facts, *facts);
      }))
      .def(
          "time_at",
          [](Explainer& self, TensorId tensor, std::int64_t time) {
            return time_of(self, tensor, time == std::numeric_limits<std::int64_t>::max() ? time : time + 1);
          },
          py::arg("tensor"), py::arg("time"))
      .def("time_at_op", &time_at_op, py::arg("id"), py::arg("op_id"), py::arg("after"))
      .def("fact", &fact, py::arg("id"), py::arg("time"), py::arg("context"))
      .def("contexts", &contexts, py::arg("graph"))
      .def("pending", &pending, py::arg("tensor"), py::arg("time"), py::arg("context"))
      .def("missing_sum", &missing_sum_of, py::arg("tensor"), py::arg("declared"))
      .def("context_at", &context_at, py::arg("tensor"), py::arg("calls"))
      .def("explain", &explain, py::arg("id"), py::arg("time"), py::arg("context"), py::arg("r"),
           py::arg("s"))
      .def(
          "lints",
          [](Explainer& self, const OrderCheck& checked) {
            return describe_lints(ir_of(self), find_lints(self, &checked));
          },
          py::arg("checked"))
      .def("session_lints", &session_lints)
      .def("drifts", &drifts);
}

}  // namespace popsr::bindings
