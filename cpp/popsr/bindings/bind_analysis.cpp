#include "popsr/analysis/partition_analysis.h"

#include "popsr/base/error.h"
#include "popsr/bindings/bindings.h"
#include "popsr/bindings/classes.h"
#include "popsr/bindings/gil.h"
#include "popsr/bindings/records.h"
#include "popsr/effects/verify.h"
#include "popsr/runtime/session/session.h"

namespace popsr::bindings {
namespace {

Partition partition(const PartitionAnalysis& facts, PartitionId id) {
  return Partition(facts.ir().partition_table(), id);
}

/// Streams whose rows are assumed to be equal, in the groups of a grouping or on all replicas.
using EqualStreams = std::vector<std::pair<StreamId, std::optional<ReplicaGrouping>>>;

Assumptions assumed_rows(const Ir& ir, const EqualStreams& equal) {
  PartitionTable& table = ir.partitions();
  Assumptions assumptions;
  for (const auto& [stream, grouping] : equal) {
    POPSR_CHECK(stream.index() < ir.num_streams());
    const PartitionId rows = grouping ? grouping->partition(table) : table.top();
    assumptions.rows[stream] = table.join(rows, declared_rows(ir, stream));
  }
  return assumptions;
}

/// Each met over the contexts of the graph.
std::vector<Record<"Value">> values(const PartitionAnalysis& facts, TensorId tensor) {
  facts.check_fresh();
  const Graph& graph = facts.ir().graph(facts.ir().tensor(checked_tensor(facts.ir(), tensor)).graph);
  std::vector<std::pair<int, PartitionId>> met;
  for (const ContextId context : facts.contexts(graph.id)) {
    const auto here = facts.values(tensor, context);
    if (met.empty()) met = here;
    POPSR_CHECK(met.size() == here.size());
    for (std::size_t i = 0; i < here.size(); ++i) {
      met[i].second = facts.ir().partitions().meet(met[i].second, here[i].second);
    }
  }
  std::vector<Record<"Value">> result;
  for (const auto& [time, fact] : met) {
    std::optional<OpId> op;
    if (time >= 0) op = graph.ops[static_cast<std::size_t>(time)];
    result.push_back(Record<"Value">::of(time, op, partition(facts, fact)));
  }
  return result;
}

void bind_seed_rules(py::module_& m) {
  py::class_<SeedRules> rules(m, "SeedRules");
  guard(rules)
      .def(py::init([] { return std::make_unique<SeedRules>(); }))
      .def_static(
          "of_mode",
          [](const Ir& ir, const std::string& mode) {
            const WithoutGil released;
            return SeedRules::of_mode(ir, mode);
          },
          py::arg("ir"), py::arg("mode"))
      .def("for_present_ops", &SeedRules::for_present_ops, py::arg("ir"))
      .def(
          "rule",
          [](const SeedRules& self, const Ir& ir, OpId op) -> std::optional<std::string> {
            const auto rule = self.of(ir, ir.op(checked_op(ir, op)));
            return rule ? std::optional<std::string>(to_string(*rule)) : std::nullopt;
          },
          py::arg("ir"), py::arg("op"))
      .def("verify", &SeedRules::verify, py::arg("ir"), py::arg("enabled"))
      .def("__str__", &SeedRules::to_string);
}

/// Facts of the present program, which may go on from those of the program that it grew from.
std::shared_ptr<PartitionAnalysis> facts_after(const std::shared_ptr<PartitionAnalysis>& before,
                                               const std::shared_ptr<Ir>& ir, const SeedRules& rules) {
  const WithoutGil released;
  verify(*ir);
  if (&before->ir() == ir.get()) {
    if (auto grown = PartitionAnalysis::grown(*before, rules))
      return make_owning<PartitionAnalysis>(ir, std::move(*grown));
  }
  return make_owning<PartitionAnalysis>(ir, *ir, rules);
}

}  // namespace

void bind_analysis(py::module_& m) {
  bind_seed_rules(m);
  // The analysis holds a reference to the Ir. It interns into the Ir's partition table
  // without a lock, so one Ir is for one thread at a time, as building one is; other threads may run
  // meanwhile.
  py::class_<PartitionAnalysis, std::shared_ptr<PartitionAnalysis>> analysis(m, "PartitionAnalysis");
  guard(analysis)
      .def(py::init([](const std::shared_ptr<Ir>& ir, const SeedRules& rules, const EqualStreams& equal) {
             const WithoutGil released;
             verify(*ir);  // facts of an ambiguous program would mean nothing
             return make_owning<PartitionAnalysis>(ir, *ir, rules, assumed_rows(*ir, equal));
           }),
           py::arg("ir"), py::arg("seed_rules"), py::arg("equal") = EqualStreams())
      .def_static("after", &facts_after, py::arg("before"), py::arg("ir"), py::arg("seed_rules"))
      .def_static(
          "of_new_session",
          [](const std::shared_ptr<Ir>& ir, const SeedRules& rules) {
            const WithoutGil released;
            verify(*ir);
            return make_owning<PartitionAnalysis>(ir, *ir, rules, initial_assumptions(*ir));
          },
          py::arg("ir"), py::arg("seed_rules"))
      .def_property_readonly("seed_rules", [](const PartitionAnalysis& self) { return self.seed_rules(); })
      .def(
          "is_fresh",
          [](const PartitionAnalysis& self, const SeedRules& rules) {
            const Ir& ir = self.ir();
            return self.epoch() == ir.epoch() && self.seed_rules().agree(ir, rules, ir.num_ops());
          },
          py::arg("seed_rules"))
      .def("check_fresh", [](const PartitionAnalysis& self) { self.check_fresh(); })
      .def(
          "check_fresh",
          [](const PartitionAnalysis& self, const SeedRules& rules) { self.check_fresh(rules); },
          py::arg("seed_rules"))
      .def(
          "partition",
          [](const PartitionAnalysis& self, TensorId tensor) {
            self.check_fresh();
            return partition(self, self.partition(checked_tensor(self.ir(), tensor)));
          },
          py::arg("tensor"))
      .def(
          "seeds",
          [](const PartitionAnalysis& self, OpId op) {
            self.check_fresh();
            return partition(self, self.seeds(checked_op(self.ir(), op)));
          },
          py::arg("op"))
      .def(
          "is_equal",
          [](const PartitionAnalysis& self, TensorId tensor, const ReplicaGrouping& grouping) {
            self.check_fresh();
            PartitionTable& table = self.ir().partitions();
            if (grouping.replicas() != table.replicas()) {
              raise<ReplicaError>("is_equal: grouping of another replica count, got {} replicas, expected {}",
                                  grouping.replicas(), table.replicas());
            }
            return table.refines(grouping.partition(table),
                                 self.partition(checked_tensor(self.ir(), tensor)));
          },
          py::arg("tensor"), py::arg("grouping"))
      .def("values", &values, py::arg("tensor"));
}

}  // namespace popsr::bindings
