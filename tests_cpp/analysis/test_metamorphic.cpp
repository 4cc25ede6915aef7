// Programs that must have the same facts: ops in a called graph, under a condition that is equal everywhere,
// beside an op that nobody reads, on renumbered replicas, on several copies of all replicas.
#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "fuzz/programs/program_copy.h"
#include "fuzz/programs/random_program.h"
#include "popsr/analysis/partition_analysis.h"

namespace popsr {
namespace {

using namespace test;
using Labels = std::vector<std::uint32_t>;

/// Facts of all outputs of ops, in the order of `ops`, which may be in several graphs.
std::vector<Labels> labels_of(const Ir& ir, const std::vector<OpId>& ops) {
  const PartitionAnalysis facts(ir);
  std::vector<Labels> result;
  for (const OpId id : ops) {
    const Op& op = ir.op(id);
    const std::vector<ContextId>& contexts = facts.contexts(op.graph);
    REQUIRE(contexts.size() == 1);
    for (const PartitionId fact : facts.context(contexts[0]).ops[op.schedule.position].outputs) {
      const auto labels = ir.partitions().labels(fact);
      result.emplace_back(labels.begin(), labels.end());
    }
  }
  return result;
}

std::vector<Labels> labels_of(const Ir& ir) { return labels_of(ir, ir.graph(kMainGraph).ops); }

/// Numbers blocks by first appearance.
Labels canonical(const Labels& labels) {
  std::vector<std::uint64_t> keys(labels.begin(), labels.end());
  const auto found = Partition::from_labels(keys);
  return {found.labels().begin(), found.labels().end()};
}

/// Calls check(program, its number of ops) with random straight-line programs on these replicas.
template <class Check>
void for_programs(std::uint64_t seed, std::int64_t replicas, int programs, const AcceptGrouping& accept,
                  const Check& check) {
  std::mt19937_64 random(seed);
  for (int round = 0; round < programs; ++round) {
    Recipe recipe = random_recipe(random, replicas, Flavour::kStraightLine, 30);
    recipe.rounding = RoundingMode::kNearest;
    Program p(replicas);
    grow(recipe, p, accept);
    check(p.ir, p.ir.graph(kMainGraph).ops.size(), random);
  }
}

ReplicaGrouping grouping_of(const std::vector<std::int64_t>& keys) {
  std::vector<std::int64_t> numbers, known;
  for (const std::int64_t key : keys) {
    const auto it = std::ranges::find(known, key);
    numbers.push_back(it - known.begin());
    if (it == known.end()) known.push_back(key);
  }
  return ReplicaGrouping::from_assignment(numbers);
}

TEST_CASE("analysis metamorphic: facts do not change when ops go into a called graph") {
  for (const std::int64_t replicas : {4, 6, 8}) {
    for_programs(1, replicas, 40, {}, [](const Ir& ir, std::size_t ops, std::mt19937_64& random) {
      const std::size_t first = random() % ops, end = first + random() % (ops - first + 1);
      Program p(ir.replication());
      ProgramCopy copy(ir, p);
      copy.ops(0, first);
      copy.run_as_graph(first, end);
      copy.ops(end, ops);
      CHECK(labels_of(p.ir, copy.copies()) == labels_of(ir));
    });
  }
}

TEST_CASE("analysis metamorphic: facts do not change under a condition that is equal everywhere") {
  for (const std::int64_t replicas : {4, 6, 8}) {
    for_programs(2, replicas, 40, {}, [](const Ir& ir, std::size_t ops, std::mt19937_64& random) {
      const std::size_t first = random() % ops, end = first + random() % (ops - first + 1);
      Program p(ir.replication());
      ProgramCopy copy(ir, p);
      const TensorId condition = p.load("condition", StreamMode::kBroadcast, {DType::kBool, {}});
      copy.ops(0, first);
      copy.run_as_graph(first, end, condition);
      copy.ops(end, ops);
      CHECK(labels_of(p.ir, copy.copies()) == labels_of(ir));
    });
  }
}

TEST_CASE("analysis metamorphic: an op that nobody reads changes no fact") {
  for_programs(3, 6, 100, {}, [](const Ir& ir, std::size_t ops, std::mt19937_64& random) {
    const std::size_t at = 1 + random() % ops;
    Program p(ir.replication());
    ProgramCopy copy(ir, p);
    copy.ops(0, at);
    p("replicated_all_reduce", {p("relu", {p.load("dead")})});
    copy.ops(at, ops);
    CHECK(labels_of(p.ir, copy.copies()) == labels_of(ir));
  });
}

/// Replica r becomes replica to(r, copy) of each copy.
using PlaceOf = std::function<std::size_t(std::int64_t r, std::int64_t copy)>;

ProgramCopy::Replicas placed(std::int64_t replicas, std::int64_t copies, const PlaceOf& to) {
  const auto each = [=](const auto& value_of) {
    std::vector<std::int64_t> result(static_cast<std::size_t>(replicas * copies));
    for (std::int64_t r = 0; r < replicas; ++r) {
      for (std::int64_t copy = 0; copy < copies; ++copy) result[to(r, copy)] = value_of(r, copy);
    }
    return result;
  };
  return {.grouping =
              [=](const ReplicaGrouping& groups) {
                return grouping_of(each([&groups, replicas](std::int64_t r, std::int64_t copy) {
                  return copy * replicas + groups.assignment()[static_cast<Replica>(r)];
                }));
              },
          .mapping =
              [=](const std::vector<std::int64_t>& mapping) {
                return each([&mapping, &to](std::int64_t r, std::int64_t copy) {
                  const std::int64_t target = mapping[static_cast<std::size_t>(r)];
                  return target < 0 ? -1 : static_cast<std::int64_t>(to(target, copy));
                });
              }};
}

TEST_CASE("analysis metamorphic: facts follow a renumbering of replicas that keeps the order in groups") {
  constexpr std::int64_t kReplicas = 8;
  std::mt19937_64 random(4);
  int between = 0;
  for (int round = 0; round < 100; ++round) {
    std::vector<std::size_t> numbers(kReplicas);
    std::iota(numbers.begin(), numbers.end(), 0);
    std::ranges::shuffle(numbers, random);
    const auto to = [&numbers](std::int64_t r) { return numbers[static_cast<std::size_t>(r)]; };
    const auto ordered = [&](const ReplicaGrouping& groups) {
      for (std::int64_t g = 0; g < groups.num_groups(); ++g) {
        if (!std::ranges::is_sorted(groups.group(g), {}, to)) return false;
      }
      return true;
    };
    const auto renumbered = placed(kReplicas, 1, [&to](std::int64_t r, std::int64_t) { return to(r); });
    for_programs(random(), kReplicas, 1, ordered, [&](const Ir& ir, std::size_t ops, std::mt19937_64&) {
      Program p(kReplicas);
      ProgramCopy copy(ir, p, renumbered);
      copy.ops(0, ops);
      std::vector<Labels> expected = labels_of(ir);
      for (Labels& labels : expected) {
        Labels moved(labels.size());
        for (std::int64_t r = 0; r < kReplicas; ++r) moved[to(r)] = labels[static_cast<std::size_t>(r)];
        labels = canonical(moved);
        between += std::ranges::max(labels) % 7 != 0 ? 1 : 0;
      }
      CHECK(labels_of(p.ir, copy.copies()) == expected);
    });
  }
  CHECK(between > 200);
}

TEST_CASE("analysis metamorphic: each of several copies of the replicas has the facts of the original") {
  constexpr std::int64_t kReplicas = 6, kCopies = 3;
  for (const bool interleaved : {false, true}) {
    const PlaceOf to = [interleaved](std::int64_t r, std::int64_t copy) {
      return static_cast<std::size_t>(interleaved ? r * kCopies + copy : copy * kReplicas + r);
    };
    for_programs(5, kReplicas, 60, {}, [&](const Ir& ir, std::size_t ops, std::mt19937_64&) {
      Program p(kReplicas * kCopies);
      ProgramCopy program(ir, p, placed(kReplicas, kCopies, to));
      program.ops(0, ops);
      const std::vector<Labels> expected = labels_of(ir), all = labels_of(p.ir, program.copies());
      REQUIRE(all.size() == expected.size());
      for (std::size_t i = 0; i < all.size(); ++i) {
        for (std::int64_t copy = 0; copy < kCopies; ++copy) {
          Labels own;
          for (std::int64_t r = 0; r < kReplicas; ++r) own.push_back(all[i][to(r, copy)]);
          CHECK(canonical(own) == expected[i]);
        }
      }
    });
  }
}

}  // namespace
}  // namespace popsr
