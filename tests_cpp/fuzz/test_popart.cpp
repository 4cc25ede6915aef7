// Mode "popart" on random programs, against the partition analysis, which is exact on them.
//
// Programs are straight lines of ops that the reference has, without views, remote memory and merged ops.
// There its rules are sound as long as all variables have one group; with groups they are not, and both are
// counted.
#include <doctest/doctest.h>

#include <random>
#include <string>
#include <vector>

#include "fuzz/popart_score.h"
#include "popsr/analysis/popart/popart_analysis.h"
#include "popsr/ir/print.h"
#include "support/program.h"

namespace popsr {
namespace {

using test::kVector;
using test::PopartScore;
using test::Program;

class PopartGenerator {
 public:
  PopartGenerator(Program& program, std::mt19937& random, bool grouped)
      : p_(program), random_(random), grouped_(grouped) {}

  void grow(int ops) {
    p_.sequence = SequenceMode::kOrdered;
    for (int i = 0; i < 3; ++i) {
      tensors_.push_back(grouped_ ? p_.variable("w", grouping()) : p_.variable("w"));
    }
    tensors_.push_back(p_.load("x"));
    tensors_.push_back(p_.load("b", StreamMode::kBroadcast));
    tensors_.push_back(p_.constant("c"));
    for (int i = 0; i < ops; ++i) step();
  }

 private:
  std::size_t below(std::size_t end) { return random_() % end; }
  TensorId any() { return tensors_[below(tensors_.size())]; }
  void add_value(TensorId t) {
    if (p_.ir.tensor(t).type == kVector) tensors_.push_back(t);
  }

  /// Any but a constant, which nobody may write.
  TensorId writable() {
    for (;;) {
      const TensorId t = any();
      if (p_.ir.tensor(t).kind != TensorKind::kConstant) return t;
    }
  }

  ReplicaGrouping grouping() {
    const std::int64_t n = p_.ir.replication();
    std::vector<std::pair<std::int64_t, std::int64_t>> all;
    for (std::int64_t stride = 1; stride <= n; ++stride) {
      for (std::int64_t size = 1; size <= n; ++size) {
        if (n % (stride * size) == 0) all.emplace_back(stride, size);
      }
    }
    const auto [stride, size] = all[below(all.size())];
    return p_.groups(stride, size);
  }

  void step() {
    static const std::vector<std::string> binary = {"add",  "mul",         "sub",
                                                    "add_", "accumulate_", "copy_var_update_"};
    switch (below(12)) {
      case 0:
      case 1:
      case 2:
        return add_value(p_(binary[below(3)], {any(), any()}));
      case 3:
      case 4: {
        const TensorId target = writable();
        TensorId source = any();
        while (p_.ir.tensor(source).memory.storage == p_.ir.tensor(target).memory.storage) source = any();
        return add_value(p_(binary[3 + below(3)], {target, source}));
      }
      case 5:
        return add_value(p_("accumulator_zero_", {writable()}));
      case 6:
        return add_value(p_("replicated_all_reduce_", {writable()}, {}, {{"group", grouping()}}));
      case 7:
      case 8:
        return add_value(p_("replicated_all_reduce", {any()}, {}, {{"group", grouping()}}));
      case 9:
        return scatter_and_gather();
      case 10:
        return add_value(p_("tanh", {any()}));
      default:
        return add_value(p_.load("x", below(3) == 0 ? StreamMode::kBroadcast : StreamMode::kReplicate));
    }
  }

  /// Scatters and gathers in groups of 1, 2 or 4, so that the whole comes back.
  void scatter_and_gather() {
    ReplicaGrouping group = grouping();
    while (4 % group.group_size() != 0) group = grouping();
    const TensorId part = p_("replicated_reduce_scatter", {any()}, {}, {{"group", group}});
    add_value(part);
    add_value(
        p_("replicated_all_gather", {part}, {}, {{"group", group}, {"output_shape", std::string("concat")}}));
  }

  Program& p_;
  std::mt19937& random_;
  bool grouped_;
  std::vector<TensorId> tensors_;
};

/// Adds all values of a program: results of ops, and what variables start a run with.
void add_program(PopartScore& score, const Program& p) {
  const PartitionAnalysis ours(p.ir);
  const PopartAnalysis popart(p.ir);
  const Graph& graph = p.ir.graph(kMainGraph);
  for (const OpId id : graph.ops) {
    const Op& op = p.ir.op(id);
    for (std::size_t k = 0; k < op.outputs.size(); ++k) {
      score.add(p.ir.partitions(), popart.is_output_equal(id, k),
                ours.main().ops[op.schedule.position].outputs[k]);
    }
  }
  for (const TensorId t : graph.tensors) {
    if (p.ir.tensor(t).kind != TensorKind::kVariable) continue;
    score.add(p.ir.partitions(), popart.values().at(t, kInitially), ours.variable(t));
  }
}

PopartScore score_of(bool grouped, int programs) {
  std::mt19937 random(20261121);
  PopartScore score;
  for (const std::int64_t replicas : {2, 4, 6, 8, 12}) {
    for (int round = 0; round < programs; ++round) {
      Program p(replicas);
      PopartGenerator(p, random, grouped).grow(30);
      const double wrong = score.wrong;
      add_program(score, p);
      if (!grouped && score.wrong != wrong) FAIL("a wrong claim in\n", print_ir(p.ir));
    }
  }
  return score;
}

TEST_CASE("popart fuzz: with variables of one group, what the reference takes for equal is equal") {
  const PopartScore score = score_of(false, 100);
  CHECK(score.wrong == 0);
  CHECK(score.exact < 0.9 * score.values);  // but it misses a lot
  CHECK(score.exact > 0.1 * score.values);
}

TEST_CASE("popart fuzz: with grouped variables it is often wrong") {
  const PopartScore score = score_of(true, 100);
  CHECK(score.wrong > 0.05 * score.values);
}

// Table of the benchmarks: popsr_tests -tc="popart table*" -s
TEST_CASE("popart table: precision of the reference's rules on straight lines") {
  for (const bool grouped : {false, true}) {
    const PopartScore score = score_of(grouped, 40);
    const std::string groups = grouped ? "grouped" : "of one group";
    MESSAGE("variables ", groups, ": ", score.values, " values, exact ", score.exact / score.values,
            ", equal pairs proved ", score.proved / score.pairs, ", wrong claims ",
            score.wrong / score.values, "; partition analysis: exact 1");
    CHECK(score.proved < score.pairs);
  }
}

}  // namespace
}  // namespace popsr
