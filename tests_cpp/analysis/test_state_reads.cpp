// State that a run reads as the run before left it, against a Herbrand interpreter.
#include "popsr/analysis/memory/state_reads.h"

#include <doctest/doctest.h>

#include <map>
#include <random>

#include "fuzz/programs/random_program.h"
#include "popsr/analysis/partition_analysis.h"
#include "popsr/effects/verify.h"
#include "popsr/ir/print.h"
#include "popsr/transform/merge.h"
#include "support/effort.h"
#include "support/herbrand.h"

namespace popsr {
namespace {

using namespace test;

/// State of the main graph and positions of streams after a run.
struct Final final : Observer {
  void value(const test::Place& place, std::span<const Term> terms, Mask) override {
    if (place.path != 0 || (place.role != Role::kLast && place.role != Role::kPosition)) return;
    found[{place.role, place.index}].assign(terms.begin(), terms.end());
  }
  std::map<std::pair<Role, std::uint32_t>, std::vector<Term>> found;
};

std::vector<TensorId> states_of(const PartitionAnalysis& facts) {
  std::vector<TensorId> states = facts.entry_tensors(kMainGraph);
  const std::vector<TensorId>& entries = facts.remote().of(kMainGraph);
  states.insert(states.end(), entries.begin(), entries.end());
  return states;
}

/// Counts state that is said not to be read, and fails where it matters to what one run leaves.
int check_states(const Program& p, std::uint64_t seed) {
  const Ir& ir = p.ir;
  const PartitionAnalysis facts(ir, p.seeds);
  const StateReads reads(ir, facts.entry_tensors(kMainGraph));
  int unread = 0;
  for (const TensorId state : states_of(facts)) {
    if (reads.reads(state)) continue;
    ++unread;
    Final before, after;
    Herbrand program(ir, p.seeds);
    const bool ends = program.session(seed, 1, before);
    program.start_otherwise(state);
    REQUIRE(program.session(seed, 1, after) == ends);
    if (ends && before.found != after.found) {
      FAIL("'", ir.tensor(state).name, "' is read by\n", print_ir(ir));
    }
  }
  return unread;
}

TEST_CASE("state reads: state that is said not to be read does not matter, in random programs") {
  std::mt19937_64 random(20261122);
  int unread = 0;
  for (int round = 0; round < rounds(3000); ++round) {
    const Recipe recipe = random_recipe(random, random_replicas(random), Flavour::kControlFlow, 40);
    Program p(recipe.replicas);
    grow(recipe, p);
    verify(p.ir);
    unread += check_states(p, random());
    merge_collectives(p.ir);
    merge_exchange(p.ir);
    unread += check_states(p, random());
  }
  MESSAGE(unread, " variables, shards and entries that no run reads");
  CHECK(unread > rounds(1000));
}

TEST_CASE("state reads: an op that is wrongly said to ignore its target is caught") {
  auto registry = std::make_shared<Registry>(*default_registry());
  OpDef def = registry->at("accumulate_");
  def.memory.zeros = [](const Op&, const std::vector<bool>&) { return ZeroFacts{.ignores = true}; };
  registry->replace(std::move(def));
  Program p(2, registry);
  const TensorId w = p.variable("w");
  p.emit("accumulate_", {w, p.load("x")});
  const PartitionAnalysis facts(p.ir);
  CHECK_FALSE(StateReads(p.ir, facts.entry_tensors(kMainGraph)).reads(w));
  Final before, after;
  Herbrand program(p.ir);
  REQUIRE(program.session(1, 1, before));
  program.start_otherwise(w);
  REQUIRE(program.session(1, 1, after));
  CHECK(before.found != after.found);
}

}  // namespace
}  // namespace popsr
