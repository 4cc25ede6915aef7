// Schedules in arrays say what the program says, also after it grew and after that was taken back.
#include <doctest/doctest.h>

#include <algorithm>
#include <random>

#include "fuzz/programs/random_program.h"
#include "popsr/analysis/partition_analysis.h"
#include "popsr/base/error.h"
#include "popsr/ir/edit/transaction.h"
#include "popsr/ir/op_def.h"

namespace popsr {
namespace {

using namespace test;

void check_flat_op(const Ir& ir, const FlatSchedule& schedule, std::size_t at, const Op& op) {
  const FlatOp& flat = schedule[at];
  CHECK(flat.id == op.id);
  CHECK(flat.def == op.def);
  CHECK(std::ranges::equal(schedule.inputs(at), op.inputs));
  CHECK(std::ranges::equal(schedule.outputs(at), op.outputs));
  CHECK(flat.merged == !op.schedule.parts.empty());
  CHECK(flat.view == (op.def->memory.view != nullptr));
  CHECK(flat.ordered == !op.schedule.after.empty());
  CHECK(flat.alone == (op.def->program.control == Control::kNone && op.def->program.remote == Remote::kNone &&
                       op.schedule.parts.empty()));
  for (std::size_t i = 0; i < op.inputs.size(); ++i) CHECK((flat.modifies || !op.def->writes(i)));
  CHECK((flat.modifies || op.call.modified.empty()));
  const bool exchanges = op.def->replicas.collective != Collective::kNone && op.schedule.parts.empty();
  CHECK((flat.groups != kNone) == exchanges);
  if (exchanges) CHECK(schedule.groups()[flat.groups] == group_of(ir, op));
}

TEST_CASE("flat schedules of random programs have the lists and properties of their ops") {
  std::size_t merged = 0, grouped = 0;
  for (std::uint64_t number = 1; number <= 300; ++number) {
    std::mt19937_64 random(number);
    Recipe recipe = random_recipe(random, random_replicas(random), Flavour::kControlFlow, 24);
    recipe.merges = number % 2 == 0;
    Program p(recipe.replicas);
    test::grow(recipe, p);
    for (const GraphId graph : ids<GraphId>(p.ir.num_graphs())) {
      const FlatSchedule schedule(p.ir, graph);
      const std::vector<OpId>& ops = p.ir.graph(graph).ops;
      REQUIRE(schedule.size() == ops.size());
      for (std::size_t at = 0; at < ops.size(); ++at) {
        INFO("program ", number, ", op ", at, " of graph ", graph.value);
        check_flat_op(p.ir, schedule, at, p.ir.op(ops[at]));
        merged += schedule[at].merged ? 1 : 0;
      }
      grouped += schedule.groups().size();
    }
  }
  CHECK(merged > 20);
  CHECK(grouped > 100);
}

TEST_CASE("the schedule of an analysis is the one of the program that was analysed") {
  Program p(2);
  const TensorId x = p.variable("x");
  p.ir.emit(kMainGraph, "tanh", {x});
  const PartitionAnalysis facts(p.ir);
  {
    Transaction transaction(p.ir);
    p.ir.emit(kMainGraph, "tanh", {x});
    CHECK_THROWS_AS(facts.schedule(kMainGraph), GraphError);
    const auto grown = PartitionAnalysis::grown(facts, {});
    REQUIRE(grown != nullptr);
    CHECK(grown->schedule(kMainGraph).size() == 2);
  }  // takes the op back
  CHECK(facts.schedule(kMainGraph).size() == 1);
}

}  // namespace
}  // namespace popsr
