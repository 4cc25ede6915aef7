// In-place collectives: a result waits in a staging buffer exactly where another block of the op still reads
// what it overwrites.
#include <doctest/doctest.h>

#include <algorithm>

#include "fuzz/bit_judge.h"
#include "popsr/runtime/session/session.h"
#include "popsr/transform/graph_editor.h"
#include "support/program.h"

namespace popsr {
namespace {

using namespace test;

const TensorType kNarrow{DType::kBFloat16, {5}};

/// Staging buffers of exchanges, also in branches.
std::size_t staging_buffers(const std::vector<Instruction>& instructions) {
  std::size_t buffers = 0;
  for (const Instruction& instruction : instructions) {
    const auto* const exchange = std::get_if<CollectiveCall>(&instruction.work);
    if (exchange != nullptr) buffers += exchange->staging.size();
    for_each_body(instruction,
                  [&](const std::vector<Instruction>& body) { buffers += staging_buffers(body); });
  }
  return buffers;
}

/// A program whose all-reduce in place is looked at, and how often it is staged.
struct Case {
  std::shared_ptr<Program> program;

  std::shared_ptr<const Ir> ir() const { return {program, &program->ir}; }
  std::size_t staged(bool dedup = true) const {
    const auto facts = std::make_shared<const PartitionAnalysis>(
        *ir(), program->seeds);  // of streams that are fed unequal rows
    const Session session(ir(), {.dedup = dedup, .num_threads = 1}, facts);
    return staging_buffers(session.plan().instructions());
  }
};

/// Loads, reduces over pairs in place and stores what is there.
Case reduction(SeedRule seeds) {
  Case made{std::make_shared<Program>(4)};
  Program& p = *made.program;
  p.sequence = SequenceMode::kOrdered;
  const TensorId x = p.load("x", StreamMode::kReplicate, kNarrow);
  const TensorId sum = p("replicated_all_reduce_", {x}, "sum", {{"group", p.groups(1, 2)}});
  const StreamId out = p.ir.add_stream("out", kNarrow, false, StreamMode::kReplicate);
  p.emit("host_store", {sum}, {{"d2h_stream", out}});
  p.seeds = SeedRules(seeds);
  return made;
}

/// Reduction in a branch that replicas of one block of the condition take together.
Case reduction_in_branch(std::int64_t together) {
  Case made{std::make_shared<Program>(4)};
  Program& p = *made.program;
  p.sequence = SequenceMode::kOrdered;
  const TensorId x = p.load("x");
  const TensorId condition = p.variable("c", p.groups(1, together), {DType::kBool, {}});
  const GraphId then_branch = p.at = p.ir.create_graph("then");
  const TensorId inside = p.input("x");
  p("replicated_all_reduce_", {inside}, {}, {{"group", p.groups(1, 2)}});
  const GraphId else_branch = p.at = p.ir.create_graph("else");
  p.input("x");
  p.at = kMainGraph;
  const OpId taken =
      p.emit("conditional", {condition, x, x}, {{"then_branch", then_branch}, {"else_branch", else_branch}});
  GraphEditor(p.ir).mark_modified(taken, 1);
  const StreamId out = p.ir.add_stream("out", kVector, false, StreamMode::kReplicate);
  p.emit("host_store", {x}, {{"d2h_stream", out}});
  return made;
}

TEST_CASE("in-place collectives are staged where members of a group are blocks of their own") {
  CHECK(reduction(SeedRule::kPartition).staged() == 0);
  CHECK(reduction(SeedRule::kIdentical).staged() == 0);
  CHECK(reduction(SeedRule::kDiffering).staged() == 1);
  CHECK(reduction(SeedRule::kPartition).staged(false) == 1);
  CHECK(reduction_in_branch(2).staged() == 0);  // whole groups go together
  CHECK(reduction_in_branch(1).staged() == 1);  // where each replica decides alone, all may still come
}

TEST_CASE("in-place collectives give the same bits staged and not") {
  for (const std::uint64_t seed : {1, 2, 3}) {
    for (const SeedRule rule : {SeedRule::kPartition, SeedRule::kIdentical, SeedRule::kDiffering}) {
      const BitVerdict verdict =
          judge_bits(reduction(rule).ir(), {.seed = seed, .seed_rules = SeedRules(rule)});
      CHECK_MESSAGE(verdict.failure.empty(), verdict.failure);
    }
    for (const std::int64_t together : {1, 2, 4}) {
      const BitVerdict verdict = judge_bits(reduction_in_branch(together).ir(), {.seed = seed});
      CHECK_MESSAGE(verdict.failure.empty(), verdict.failure);
    }
  }
}

}  // namespace
}  // namespace popsr
