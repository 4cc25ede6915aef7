// Random programs against a Herbrand interpreter: facts of straight-line programs are exact, no fact of any
// program is refuted by a run.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cstdlib>
#include <ctime>
#include <iostream>
#include <map>

#include "fuzz/facts_check.h"
#include "fuzz/hunt.h"
#include "fuzz/shrink.h"
#include "popsr/effects/verify.h"
#include "popsr/ir/print.h"
#include "popsr/transform/merge.h"
#include "support/effort.h"

namespace popsr {
namespace {

using namespace test;

constexpr std::size_t kRecords = 40;

/// Fails with the smallest program that shows what is wrong with the facts of this one.
void show_failure(const Recipe& recipe) {
  const auto fails = [](const Recipe& r) { return !judge(r, default_registry()).failure.empty(); };
  const Recipe small = shrink(recipe, fails);
  const Verdict verdict = judge(small, default_registry());
  FAIL(small.replicas, " replicas: ", verdict.failure, " in\n", verdict.program);
}

TEST_CASE("analysis fuzz: facts of straight-line programs are exact, before and after merging") {
  std::mt19937_64 random(20240612);
  int between = 0;
  std::size_t merged = 0;
  std::map<RoundingMode, int> modes;
  for (int round = 0; round < rounds(1500); ++round) {
    const Recipe recipe = random_recipe(random, random_replicas(random), Flavour::kStraightLine, kRecords);
    Program p(recipe.replicas);
    ++modes[grow(recipe, p) ? recipe.rounding : RoundingMode::kNearest];
    verify(p.ir);
    const Verdict before = judge(p, recipe.flavour);
    if (!before.failure.empty()) show_failure(recipe);
    between += before.between;
    merged += merge_collectives(p.ir) + merge_exchange(p.ir);
    const Verdict after = judge(p, recipe.flavour);
    if (!after.failure.empty()) FAIL(after.failure, " in\n", after.program);
  }
  CHECK(between > rounds(10000));  // the programs are not all trivial
  CHECK(modes.size() == kNumRoundingModes);
  for (const auto& [mode, programs] : modes) CHECK_MESSAGE(programs > rounds(200), to_string(mode));
  CHECK(merged > static_cast<std::size_t>(rounds(3000)));
}

TEST_CASE("analysis fuzz: no fact of a program with control flow is refuted, before and after merging") {
  std::mt19937_64 random(20240613);
  int parted = 0, equal = 0;
  std::size_t merged = 0;
  std::map<std::string_view, int> kinds;
  std::map<RoundingMode, int> modes;
  for (int round = 0; round < rounds(4000); ++round) {
    const Recipe recipe = random_recipe(random, random_replicas(random), Flavour::kControlFlow, kRecords);
    Program p(recipe.replicas);
    ++modes[grow(recipe, p) ? recipe.rounding : RoundingMode::kNearest];
    verify(p.ir);
    const Verdict before = judge(p, recipe.flavour);
    if (!before.failure.empty()) show_failure(recipe);
    parted += before.divergences;
    for (const OpId op : ids<OpId>(p.ir.num_ops())) ++kinds[p.ir.op(op).def->name];
    for (const StreamId id : ids<StreamId>(p.ir.num_streams()))
      equal += p.ir.stream(id).mode == StreamMode::kEqual;
    merged += merge_collectives(p.ir) + merge_exchange(p.ir);
    const Verdict after = judge(p, recipe.flavour);
    if (!after.failure.empty()) FAIL(after.failure, " in\n", after.program);
  }
  CHECK(parted > rounds(1000));
  CHECK(equal > rounds(1000));
  CHECK(merged > static_cast<std::size_t>(rounds(3000)));
  CHECK(modes.size() == kNumRoundingModes);
  for (const auto& [mode, programs] : modes) CHECK_MESSAGE(programs > rounds(500), to_string(mode));
  for (const std::string_view kind :
       {"call", "repeat", "conditional", "remote_store", "replicated_permute"}) {
    CHECK(kinds[kind] > rounds(3000));
  }
}

TEST_CASE("analysis fuzz: a recipe with any bytes makes a program") {
  std::mt19937_64 random(20240615);
  for (int round = 0; round < 300; ++round) {
    Recipe recipe = random_recipe(random, random_replicas(random), Flavour::kControlFlow, 12);
    for (Recipe::Record& record : recipe.records) {
      record[0] = static_cast<std::uint8_t>(168 + random() % 88);  // graphs, and little in them
    }
    CHECK(judge(recipe, default_registry()).failure == "");
  }
}

// Measurements: nothing is asserted about time

double cpu_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

TEST_CASE("analysis slow: thirty minutes of random programs" * doctest::skip()) {
  const char* given = std::getenv("POPSR_FUZZ_SECONDS");  // 1800 for the real thing
  const double seconds = given == nullptr ? 20.0 : std::atof(given);
  for (const auto& [name, flavour] : {std::pair("straight-line", Flavour::kStraightLine),
                                      std::pair("control flow", Flavour::kControlFlow)}) {
    std::mt19937_64 random(20240616);
    const double start = cpu_seconds();
    std::int64_t programs = 0, parted = 0;
    std::size_t ops = 0;
    while (cpu_seconds() - start < seconds / 2) {
      const std::size_t records = 10 + random() % 100;
      const Recipe recipe = random_recipe(random, random_replicas(random), flavour, records);
      const Verdict verdict = judge(recipe, default_registry());
      if (!verdict.failure.empty()) show_failure(recipe);
      ++programs;
      ops += verdict.ops;
      parted += verdict.divergences;
    }
    const double spent = cpu_seconds() - start;
    std::cout << fmt::format(
        "{}: {} programs in {:.0f} CPU-seconds, {:.1f} million a CPU-hour, {:.0f} ops each, 0 unsound, {} "
        "sessions parted\n",
        name, programs, spent, static_cast<double>(programs) / spent * 3600e-6,
        static_cast<double>(ops) / static_cast<double>(programs), parted);
  }
  // A fuzz that finds nothing shows that it finds what is wrong on purpose.
  for (const Mutant& mutant : mutants()) {
    INFO("canary ", mutant.op, ": ", mutant.what);
    if (mutant.quick) CHECK(hunt(mutant, 20000).programs > 0);
  }
}

std::int64_t number_from(const char* variable, std::int64_t otherwise) {
  const char* const given = std::getenv(variable);
  return given == nullptr ? otherwise : std::atoll(given);
}

/// Each program has a seed of its own, its number: several processes may share the numbers, and one may go on
/// where another ended.
TEST_CASE("analysis slow: ten million programs with control flow" * doctest::skip()) {
  const std::int64_t wanted = number_from("POPSR_FUZZ_PROGRAMS", 2000);  // 10000000 for the real thing
  const std::int64_t first = number_from("POPSR_FUZZ_FIRST", 0);
  const double start = cpu_seconds();
  std::int64_t views = 0, parted = 0;
  std::size_t ops = 0;
  for (std::int64_t programs = 1; programs <= wanted; ++programs) {
    std::mt19937_64 random(20261125 + 0x9E3779B97F4A7C15U * static_cast<std::uint64_t>(first + programs - 1));
    const std::size_t records = 10 + random() % 60;
    const Recipe recipe = random_recipe(random, random_replicas(random), Flavour::kControlFlow, records);
    const Verdict verdict = judge(recipe, default_registry());
    if (!verdict.failure.empty()) {
      std::cout << fmt::format("program {}: {}\n{}\n", first + programs - 1, verdict.failure,
                               verdict.program);
      show_failure(recipe);
    }
    views += recipe.views ? 1 : 0;
    parted += verdict.divergences;
    ops += verdict.ops;
    if (programs % 100000 != 0 && programs != wanted) continue;
    std::cout << fmt::format(
                     "programs {} to {}, {} with views, {} ops, {} sessions parted, 0 unsound, {:.0f} "
                     "CPU-seconds\n",
                     first, first + programs - 1, views, ops, parted, cpu_seconds() - start)
              << std::flush;
  }
}

/// Roughly: what kept the analysis from saying all there is to say.
std::string_view cause_of(const Ir& ir, const PartitionAnalysis& facts, const JudgedValue& value) {
  const Op& op = ir.op(value.op);
  if (op.def->program.control == Control::kConditional) return "result of a conditional";
  if (op.def->program.control == Control::kRepeat) return "result of a loop";
  if (op.graph == kMainGraph) return "later in the main graph";
  bool narrowed = false;
  for (const ContextId c : facts.contexts(op.graph)) narrowed |= facts.context(c).narrowing != kNoNarrowing;
  return narrowed ? "inside a branch" : "inside a call or loop";
}

std::string text_of(const Ir& ir, const JudgedValue& value) {
  const PartitionTable& table = ir.partitions();
  const auto text = [&](std::optional<PartitionId> fact) { return fact ? table.to_string(*fact) : "none"; };
  const Op& op = ir.op(value.op);
  return fmt::format("output {} of {} {} (op {} of '{}', path {}) is {}, claimed {}, in\n{}\n",
                     value.pairs.place.index, op.def->name, op.id, op.schedule.position,
                     ir.graph(op.graph).name, value.pairs.place.path, text(value.exact), text(value.fact),
                     print_ir(ir));
}

TEST_CASE("analysis slow: precision on programs with control flow" * doctest::skip()) {
  std::mt19937_64 random(20240617);
  std::map<std::string_view, int> gaps;
  const char* shown = std::getenv("POPSR_SHOW_GAPS");  // so many are shown with their programs
  int left = shown == nullptr ? 0 : std::atoi(shown);
  int programs = 0, values = 0, exact = 0;
  double equal_pairs = 0, proved_pairs = 0, unsound_pairs = 0;
  // So many that few values look equal because the runs never took the path on which they differ.
  constexpr int kSessions = 200;
  for (int round = 0; round < rounds(1500); ++round) {
    Recipe recipe = random_recipe(random, random_replicas(random), Flavour::kControlFlow, kRecords);
    recipe.rounding = RoundingMode::kNearest;
    Program p(recipe.replicas);
    grow(recipe, p);
    const PartitionAnalysis facts(p.ir);
    if (may_part(facts)) continue;  // its runs end early, and show little
    ++programs;
    for (const JudgedValue& value : judge_values(facts, kSessions, 3)) {
      const Comparison seen = compare(value.pairs, p.ir.partitions().labels(value.fact.value()));
      ++values;
      equal_pairs += static_cast<double>(seen.equal_pairs);
      proved_pairs += static_cast<double>(seen.proved_pairs);
      unsound_pairs += static_cast<double>(seen.unsound_pairs);
      if (seen.exact()) {
        ++exact;
      } else {
        ++gaps[cause_of(p.ir, facts, value)];
        if (left-- > 0) std::cout << text_of(p.ir, value);
      }
    }
  }
  CHECK(unsound_pairs == 0);
  std::cout << fmt::format(
      "{} programs without lint L1, {} values: {:.4f} exact; equal pairs proved: {:.4f}\n", programs, values,
      static_cast<double>(exact) / values, proved_pairs / equal_pairs);
  for (const auto& [cause, count] : gaps) std::cout << fmt::format("  {:<26} {:>6}\n", cause, count);
}

}  // namespace
}  // namespace popsr
