// The analysis of a program that grew, from the one before, against a fresh one: facts, contexts, lints,
// pending sums and explanations are the same; and an analysis that forgets one dependency is found out.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <random>

#include "fuzz/programs/random_program.h"
#include "popsr/analysis/explain/explain.h"
#include "popsr/analysis/explain/explanation.h"
#include "popsr/analysis/lint/lint_memory.h"
#include "popsr/analysis/lint/lints.h"
#include "popsr/analysis/memory/memory_facts.h"
#include "popsr/base/error.h"
#include "popsr/effects/verify.h"
#include "popsr/ir/edit/transaction.h"
#include "popsr/transform/autodiff.h"
#include "popsr/transform/merge.h"

namespace popsr {
namespace {

using namespace test;

/// Contexts have other numbers: those of one graph are told apart by their place among them.
std::pair<std::uint32_t, std::size_t> place_of(const PartitionAnalysis& facts, ContextId id) {
  if (id == kNone) return {kNone, 0};
  const GraphId graph = facts.context(id).graph;
  const std::vector<ContextId>& all = facts.contexts(graph);
  return {graph.value, static_cast<std::size_t>(std::ranges::find(all, id) - all.begin())};
}

std::string difference(const PartitionAnalysis& a, const Context& of_a, const PartitionAnalysis& b,
                       const Context& of_b) {
  if (of_a.pieces != of_b.pieces || of_a.truths != of_b.truths) return "start of parts";
  if (of_a.end.output_pieces != of_b.end.output_pieces || of_a.end.input_pieces != of_b.end.input_pieces) {
    return "end of parts";
  }
  if (of_a.inputs != of_b.inputs || of_a.remote != of_b.remote || of_a.exec != of_b.exec) return "start";
  if (of_a.end.outputs != of_b.end.outputs || of_a.end.inputs != of_b.end.inputs) return "end";
  if (of_a.end.remote != of_b.end.remote) return "remote memory";
  if (of_a.end.memory->all() != of_b.end.memory->all()) return "memory";
  if (a.narrowing(of_a.narrowing).op != b.narrowing(of_b.narrowing).op) return "control";
  if (of_a.ops.size() != of_b.ops.size()) return "ops";
  for (std::size_t i = 0; i < of_a.ops.size(); ++i) {
    const FactView x = of_a.ops[i], y = of_b.ops[i];
    const bool same = std::ranges::equal(x.outputs, y.outputs) && x.seeds == y.seeds && x.taken == y.taken &&
                      std::ranges::equal(x.pieces, y.pieces) && std::ranges::equal(x.written, y.written) &&
                      place_of(a, x.callee) == place_of(b, y.callee) &&
                      place_of(a, x.otherwise) == place_of(b, y.otherwise);
    if (!same) return fmt::format("op {}", i);
  }
  return "";
}

/// The first difference between two analyses of a program; empty if there is none.
std::string difference(const PartitionAnalysis& a, const PartitionAnalysis& b) {
  const Ir& ir = a.ir();
  for (const GraphId graph : ids<GraphId>(ir.num_graphs())) {
    if (a.contexts(graph).size() != b.contexts(graph).size())
      return fmt::format("contexts of graph {}", graph);
    for (std::size_t i = 0; i < a.contexts(graph).size(); ++i) {
      const std::string found =
          difference(a, a.context(a.contexts(graph)[i]), b, b.context(b.contexts(graph)[i]));
      if (!found.empty()) return fmt::format("context {} of graph {}: {}", i, graph, found);
    }
  }
  for (const TensorId tensor : ids<TensorId>(ir.num_tensors())) {
    if (a.variable(tensor) != b.variable(tensor)) return "variable " + ir.tensor(tensor).name;
    if (a.partition(tensor) != b.partition(tensor)) return "tensor " + ir.tensor(tensor).name;
  }
  for (const OpId op : ids<OpId>(ir.num_ops())) {
    const OpId merged = ir.op(op).schedule.part_of;
    if (merged != kNone && std::ranges::count(ir.op(merged).schedule.parts, op) == 0)
      continue;  // merged twice
    if (a.seeds(op) != b.seeds(op)) return fmt::format("seeds of op {}", op);
  }
  return "";
}

std::string text_of(const Lint& lint) {
  return fmt::format("L{} {} {} {} {}", lint.code, lint.op, lint.tensor, lint.cost, lint.text);
}

/// The first difference between what is told about two analyses of a program.
std::string difference_text(const PartitionAnalysis& a, const PartitionAnalysis& b, std::mt19937_64& random) {
  const Ir& ir = a.ir();
  Explainer of_a(a), of_b(b);
  const std::vector<Lint> lints = find_lints(of_a), fresh = find_lints(of_b);
  for (std::size_t i = 0; i < std::max(lints.size(), fresh.size()); ++i) {
    const std::string x = i < lints.size() ? text_of(lints[i]) : "no lint";
    const std::string y = i < fresh.size() ? text_of(fresh[i]) : "no lint";
    if (x != y) return fmt::format("{} against {}", x, y);
  }
  for (const TensorId tensor : ids<TensorId>(ir.num_tensors())) {
    if (of_a.gradients().pending(tensor, {}) != of_b.gradients().pending(tensor, {})) return "pending sum";
  }
  const std::vector<TensorId>& tensors = ir.graph(kMainGraph).tensors;
  for (int question = 0; question < 4 && ir.replication() > 1 && !tensors.empty(); ++question) {
    const TensorId tensor = tensors[random() % tensors.size()];
    if (ir.tensor(tensor).state.home != kNone || ir.tensor(tensor).kind == TensorKind::kConstant) continue;
    const auto s = static_cast<Replica>(1 + random() % static_cast<std::uint64_t>(ir.replication() - 1));
    const auto explain = [&](Explainer& explainer) -> std::string {
      try {
        const Value value = explainer.flow().last(kMainFrame, tensor);
        return to_string(explainer.flow(), explainer.explain(tensor, value, 0, s));
      } catch (const InternalError&) {
        throw;
      } catch (const Error& error) {  // both fail alike
        return error.what();
      }
    };
    if (explain(of_a) != explain(of_b)) return "explanation of " + ir.tensor(tensor).name;
  }
  return "";
}

/// Analyses a program again and again while it is edited.
class Follower {
 public:
  /// Makes a follower; with `checks`, of an analysis that forgets something, so that only its facts are
  /// compared.
  Follower(const Program& p, std::uint64_t seed, std::optional<GrowthChecks> checks)
      : p_(p), ir_(p.ir), random_(seed), checks_(checks.value_or(GrowthChecks{})), tells_(!checks) {}

  void look() {
    if (!failure_.empty()) return;
    try {
      verify(ir_);
    } catch (const GraphError&) {
      return;
    }
    std::unique_ptr<PartitionAnalysis> now;
    if (before_ != nullptr) now = PartitionAnalysis::grown(*before_, p_.seeds, checks_);
    const PartitionAnalysis fresh(ir_, p_.seeds);
    grown_ += now != nullptr ? 1 : 0;
    ++looks_;
    if (now != nullptr) {
      failure_ = difference(*now, fresh);
      if (failure_.empty() && tells_ && looks_ % 2 == 0) {
        failure_ = difference_text(*now, fresh, random_);
        grown_lints_ += now->lint_memory()->grown ? 1 : 0;
      }
    }
    before_ = now != nullptr ? std::move(now) : std::make_unique<PartitionAnalysis>(ir_, p_.seeds);
  }

  const std::string& failure() const { return failure_; }
  int grown() const { return grown_; }
  int grown_lints() const { return grown_lints_; }
  int looks() const { return looks_; }

 private:
  const Program& p_;
  const Ir& ir_;
  std::mt19937_64 random_;
  GrowthChecks checks_;
  bool tells_;
  std::unique_ptr<PartitionAnalysis> before_;
  std::string failure_;
  int grown_ = 0, grown_lints_ = 0, looks_ = 0;
};

/// Edits of programs that are refused change nothing.
template <class Edit>
void tolerantly(const Edit& edit) {
  try {
    edit();
  } catch (const InternalError&) {
    throw;
  } catch (const Error&) {
  }
}

/// Adds an op to a random graph: to one that is called already as well as to others.
void edit_anywhere(Program& p, std::mt19937_64& random) {
  static constexpr std::string_view kOps[] = {"add",  "mul",       "add_",
                                              "tanh", "host_load", "replicated_all_reduce"};
  const GraphId graph(random() % p.ir.num_graphs());
  const std::string_view op = kOps[random() % std::size(kOps)];
  const std::vector<TensorId>& tensors = p.ir.graph(graph).tensors;
  if (tensors.empty()) return;
  const TensorId a = tensors[random() % tensors.size()], b = tensors[random() % tensors.size()];
  p.at = graph;
  tolerantly([&] {
    if (op == "host_load") {
      if (p.ir.num_streams() > 0) p(op, {}, {}, {{"h2d_stream", StreamId(random() % p.ir.num_streams())}});
    } else if (op == "tanh" || op == "replicated_all_reduce") {
      p(op, {a});
    } else {
      p(op, {a, b});
    }
  });
  if (random() % 8 == 0) p.ir.add_constant(graph, "c", kVector, zero_bytes(kVector));
  p.at = kMainGraph;
}

/// A program that is followed while it grows, is edited at random places, merged and rounded.
Follower follow(std::uint64_t number, std::optional<GrowthChecks> checks = {}) {
  std::mt19937_64 random(number);
  static constexpr Flavour kFlavours[] = {Flavour::kStraightLine, Flavour::kControlFlow, Flavour::kEveryOp};
  const Recipe recipe =
      random_recipe(random, random_replicas(random) % 8 + 1, kFlavours[number % 3], 8 + random() % 24);
  Program p(recipe.replicas);
  Follower follower(p, number, checks);
  const auto round = [&] {
    if (number % 4 != 1) return;
    const SeedRules rules(random() % 16 == 0 ? SeedRule::kIdentical : SeedRule::kPartition);
    p.seeds = rules.for_present_ops(p.ir);
  };
  grow(recipe, p, {}, [&] {
    round();
    if (random() % 2 == 0) follower.look();
  });
  for (int edit = 0; edit < 12; ++edit) {
    const bool taken_back = random() % 8 == 0;
    const SeedRules before = p.seeds;
    {
      Transaction transaction(p.ir);
      edit_anywhere(p, random);
      if (random() % 16 == 0) tolerantly([&] { merge_collectives(p.ir); });
      round();
      if (random() % 4 == 0) follower.look();
      if (!taken_back) transaction.commit();
    }
    if (taken_back) p.seeds = before;
    if (random() % 2 == 0) follower.look();
  }
  return follower;
}

TEST_CASE("growth: an analysis that goes on from the one before is a fresh one, at thousands of edits") {
  int looks = 0, grown = 0, lints = 0;
  for (std::uint64_t number = 1; number <= 600; ++number) {
    const Follower follower = follow(number);
    INFO("program ", number);
    REQUIRE(follower.failure() == "");
    looks += follower.looks();
    grown += follower.grown();
    lints += follower.grown_lints();
  }
  MESSAGE(grown, " of ", looks, " analyses went on, and the lints of ", lints);
  CHECK(looks > 5000);
  CHECK(grown > looks / 2);
  CHECK(lints > 300);
}

TEST_CASE("growth: an analysis that forgets a dependency is found out") {
  const auto found = [](GrowthChecks checks) {
    for (std::uint64_t number = 1; number <= 600; ++number) {
      try {
        if (!follow(number, checks).failure().empty()) return true;
      } catch (const InternalError&) {
        return true;
      }
    }
    return false;
  };
  CHECK(found({.runs = false}));
  CHECK(found({.called = false}));
  CHECK(found({.streams = false}));
  CHECK(found({.changes = false}));
}

TEST_CASE("growth: one op goes on, in the main graph, in a called one, after what was taken back") {
  Program p(4);
  const GraphId graph = p.ir.create_graph("g");
  p.at = graph;
  const TensorId x = p.input("x");
  p.ir.add_output(graph, p("tanh", {x}));
  p.at = kMainGraph;
  const TensorId w = p.variable("w"), y = p.load("y");
  p("call", {y}, "called", {{"graph", graph}});
  const PartitionAnalysis before(p.ir);
  {
    Transaction transaction(p.ir);
    p("add", {w, y});
  }
  p("add", {w, y}, "sum");
  const auto sum = PartitionAnalysis::grown(before, {});
  REQUIRE(sum != nullptr);
  CHECK(difference(*sum, PartitionAnalysis(p.ir)) == "");
  CHECK(PartitionAnalysis::grown(before, {}) == nullptr);  // once only
  p.at = graph;
  p("mul", {x, x});
  p.at = kMainGraph;
  const auto inner = PartitionAnalysis::grown(*sum, {});
  REQUIRE(inner != nullptr);
  CHECK(difference(*inner, PartitionAnalysis(p.ir)) == "");
  p("add_", {w, y});  // w drifts
  CHECK(PartitionAnalysis::grown(*inner, {}) == nullptr);
}

/// Lints of the grown program, which are those of a fresh analysis; true if they are made of the ones before.
bool lints_go_on(std::unique_ptr<PartitionAnalysis>& facts) {
  facts = PartitionAnalysis::grown(*facts, {});
  REQUIRE(facts != nullptr);
  const PartitionAnalysis fresh(facts->ir());
  std::mt19937_64 random(1);
  CHECK(difference_text(*facts, fresh, random) == "");
  return facts->lint_memory()->grown;
}

TEST_CASE("growth: lints beside gradients go on, unless an op takes a gradient or one is wrong") {
  for (const bool right : {true, false}) {
    Program p(4);
    const GraphId graph = p.ir.create_graph("g");
    p.at = graph;
    const TensorId x = p.input("x"), w = p.input("w");
    p.ir.add_output(graph, p("mul", {x, w}));
    const GradGraph made = autodiff(p.ir, graph, {.grads_required = {{w}}}).at(graph);
    p.at = kMainGraph;
    const TensorId u = p.variable("u"), v = p.variable("v"),
                   y = p.load("y", right ? StreamMode::kBroadcast : StreamMode::kReplicate);
    p("call", {y, v}, "called", {{"graph", graph}});
    const std::vector<TensorId> inputs(made.inputs.size(), y);
    const TensorId dv = p("call", inputs, "dv", {{"graph", made.graph}});
    p("add_", {v, dv});
    auto facts = std::make_unique<PartitionAnalysis>(p.ir);
    Explainer explainer(*facts);
    const std::vector<Lint> lints = find_lints(explainer);
    CHECK(right != std::ranges::any_of(lints, [](const Lint& lint) { return lint.code == 11; }));
    p("add", {u, y}, "sum");
    CHECK(lints_go_on(facts) == right);
    p("replicated_all_reduce", {u});
    CHECK(lints_go_on(facts) == right);
    p("mul", {dv, y});
    CHECK(!lints_go_on(facts));
    p("tanh", {u});
    CHECK(lints_go_on(facts) == right);
  }
}

}  // namespace
}  // namespace popsr
