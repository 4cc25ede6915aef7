// Schedules in arrays say what the program says, also after it grew and after that was taken back.
#include <doctest/doctest.h>

#include <algorithm>
#include <random>

#include "fuzz/programs/random_program.h"
#include "popsr/analysis/partition_analysis.h"
#include "popsr/base/error.h"
#include "popsr/ir/edit/transaction.h"
#include "popsr/ir/flat/flat_program.h"
#include "popsr/ir/op_def.h"
#include "popsr/transform/graph_editor.h"

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
  CHECK(flat.floats == std::ranges::all_of(op.outputs, [&ir](TensorId output) {
          return is_float(ir.tensor(output).type.dtype);
        }));
  if (flat.meets) {
    CHECK((flat.alone && !flat.view && !loaded_stream(ir, op) && !rounds(ir, op)));
    CHECK((op.def->replicas.partition == meet_of_inputs));
  }
  const bool exchanges = op.def->replicas.collective != Collective::kNone && op.schedule.parts.empty();
  CHECK((flat.groups != kNone) == exchanges);
  if (exchanges) CHECK(schedule.groups()[flat.groups] == group_of(ir, op));
  if (exchanges && op.def->replicas.collective == Collective::kReduce)
    CHECK(flat.reduction == op.get(kReduction));
}

void check_schedule(const Ir& ir, GraphId graph) {
  const FlatSchedule& schedule = flat(ir).schedule(graph);
  const std::vector<OpId>& ops = ir.graph(graph).ops;
  REQUIRE(schedule.size() == ops.size());
  for (std::size_t at = 0; at < ops.size(); ++at) {
    INFO("op ", at, " of graph ", graph.value);
    check_flat_op(ir, schedule, at, ir.op(ops[at]));
  }
}

/// Checks all arrays of a program.
void check_flat(const Ir& ir) {
  const auto& sizes = flat(ir).sizes();
  REQUIRE(sizes.size() == ir.num_tensors());
  for (const TensorId id : sizes.ids()) CHECK(sizes[id] == num_elements(ir.tensor(id).type.shape));
  for (const GraphId graph : ids<GraphId>(ir.num_graphs())) check_schedule(ir, graph);
}

TEST_CASE("flat schedules of random programs have the lists and properties of their ops") {
  std::size_t merged = 0, grouped = 0, meets = 0;
  for (std::uint64_t number = 1; number <= 300; ++number) {
    INFO("program ", number);
    std::mt19937_64 random(number);
    Recipe recipe = random_recipe(random, random_replicas(random), Flavour::kControlFlow, 24);
    recipe.merges = number % 2 == 0;
    Program p(recipe.replicas);
    const auto check = [&p] { check_flat(p.ir); };
    // Looked at after each step, after some, or at the end alone: what is kept was made then.
    int step = 0;
    const auto check_some = [&] {
      if (++step % 5 == 0) check();
    };
    test::grow(recipe, p, {},
               number % 3 == 0   ? AfterStep(check)
               : number % 3 == 1 ? check_some
                                 : AfterStep());
    check();
    for (const GraphId graph : ids<GraphId>(p.ir.num_graphs())) {
      const FlatSchedule& schedule = flat(p.ir).schedule(graph);
      for (std::size_t at = 0; at < schedule.size(); ++at) {
        merged += schedule[at].merged ? 1 : 0;
        meets += schedule[at].meets ? 1 : 0;
      }
      grouped += schedule.groups().size();
    }
  }
  CHECK(merged > 20);
  CHECK(grouped > 100);
  CHECK(meets > 500);
}

/// Program with a graph that is called, and its call.
struct Called : Program {
  Called() : Program(2), graph(ir.create_graph("called")), x(variable("x")) {
    const TensorId input = ir.add_input(graph, "input", kVector);
    ir.add_output(graph, ir.op(ir.emit(graph, "tanh", {input})).outputs[0]);
    call = ir.emit(kMainGraph, "call", {x}, {.attrs = {{"graph", graph}}});
  }
  GraphId graph;
  TensorId x;
  OpId call = kNone;
};

TEST_CASE("schedules follow changes of ops, and what takes them back") {
  Called p;
  check_flat(p.ir);
  GraphEditor(p.ir).mark_modified(p.call, 0);
  CHECK(flat(p.ir).schedule(kMainGraph)[0].modifies);
  const auto change = [&p] {
    const OpId made = p.ir.emit(kMainGraph, "call", {p.x}, {.attrs = {{"graph", p.graph}}});
    check_flat(p.ir);  // in the middle of a transaction
    GraphEditor(p.ir).mark_modified(made, 0);
    check_flat(p.ir);
    p.ir.add_output(p.graph, p.ir.graph(p.graph).outputs[0]);
    GraphEditor(p.ir).add_call_output(made, p.ir.graph(p.graph).outputs[0], "more");
    check_flat(p.ir);
  };
  {
    Transaction transaction(p.ir);
    change();
  }  // takes the changes back
  check_flat(p.ir);
  CHECK(flat(p.ir).schedule(kMainGraph).size() == 1);
  {
    Transaction transaction(p.ir);
    {
      Transaction inner(p.ir);
      change();
    }
    check_flat(p.ir);
    change();
    transaction.commit();
  }
  check_flat(p.ir);
  CHECK(flat(p.ir).schedule(kMainGraph).outputs(1).size() == 2);
  {
    Transaction transaction(p.ir);
    const GraphId graph = p.ir.create_graph("new");
    p.ir.emit(graph, "tanh", {p.ir.add_input(graph, "input", kVector)});
    check_flat(p.ir);
  }
  const GraphId graph = p.ir.create_graph("newer");  // of the same number
  CHECK(flat(p.ir).schedule(graph).size() == 0);
  p.ir.emit(graph, "gelu", {p.ir.add_input(graph, "input", kVector)});
  check_flat(p.ir);
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
