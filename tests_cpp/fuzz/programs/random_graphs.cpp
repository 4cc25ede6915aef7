#include "fuzz/programs/random_graphs.h"

#include <algorithm>
#include <utility>

#include "popsr/effects/memory.h"
#include "popsr/transform/graph_editor.h"

namespace popsr::test {

void RandomGraphs::open(std::size_t kind) {
  if (frames_.size() > kMaxDepth) return compute(below(kComputations));
  Frame inner;
  inner.pure = frame().pure;
  std::vector<TensorId> carried;
  if (kind < 10) {
    inner.kind = Frame::Kind::kCall;
  } else if (kind < 13) {
    inner.kind = Frame::Kind::kWhile;
    inner.condition = condition();
    carried = {condition(), condition()};
    for (std::size_t left = below(3); left > 0; --left) carried.push_back(any());
  } else if (kind < 20) {
    inner.kind = Frame::Kind::kRepeat;
    static constexpr std::int64_t kCounts[] = {2, 3, 4, 1, 3, 0};
    inner.count = kCounts[below(6)];
    for (std::size_t left = below(3); left > 0; --left) carried.push_back(any());
  } else {
    inner.kind = Frame::Kind::kThen;
    inner.condition = condition();
  }
  inner.graph = ir().create_graph("f");
  p_.at = inner.graph;
  for (const TensorId t : carried) {
    const Tensor outer = ir().tensor(t);
    inner.arguments.push_back(t);
    const Pool pool =
        inner.kind == Frame::Kind::kWhile && inner.arguments.size() <= 2 ? kConditions : kValues;
    inner.pools[pool].push_back(ir().add_input(inner.graph, "carried", outer.type, outer.meta_shape));
  }
  inner.carried = carried.size();
  frames_.push_back(std::move(inner));
}

void RandomGraphs::close() {
  if (frames_.size() == 1) return compute(below(kComputations));
  Frame done = std::move(frame());
  switch (done.kind) {
    case Frame::Kind::kThen:
      return open_else(std::move(done));
    case Frame::Kind::kElse:
      frames_.back() = std::move(done);
      return close_conditional();
    default:
      frames_.back() = std::move(done);
      if (frame().kind == Frame::Kind::kWhile) return close_while();
      return frame().kind == Frame::Kind::kRepeat ? close_repeat() : close_call();
  }
}

RandomGraphs::Frame RandomGraphs::close_frame() {
  Frame done = std::move(frames_.back());
  frames_.pop_back();
  p_.at = frame().graph;
  p_.sequence = SequenceMode::kOrdered;
  std::vector<bool> written;
  for (const TensorId t : ir().graph(done.graph).inputs) written.push_back(done.written.contains(t));
  callables_.push_back({done.graph, std::move(written)});
  return done;
}

void RandomGraphs::close_call() {
  const std::vector<TensorId>& made = frame().pools[kValues];
  for (std::size_t k = made.size() - std::min<std::size_t>(made.size(), 2); k < made.size(); ++k) {
    ir().add_output(frame().graph, made[k]);
  }
  Frame done = close_frame();
  run("call", {{"graph", done.graph}}, done.arguments, {callables_.back()}, 0);
}

/// Each carried value is followed by the last tensor of its type.
void RandomGraphs::close_repeat() {
  const std::vector<TensorId> inputs = ir().graph(frame().graph).inputs;
  for (std::size_t i = 0; i < frame().carried; ++i) {
    ir().add_output(frame().graph, last_like(inputs[i], frame().pools[kValues]).value_or(inputs[i]));
  }
  Frame done = close_frame();
  run("repeat", {{"graph", done.graph}, {"count", done.count}}, done.arguments, {callables_.back()},
      done.carried);
}

/// The first condition that is carried is asked next: no loop has more than three iterations.
void RandomGraphs::close_while() {
  const GraphId body = frame().graph;
  const std::vector<TensorId> inputs = ir().graph(body).inputs;
  const auto both = [this](TensorId a, TensorId b) {
    return ir().op(p_.emit("logical_and", {a, b})).outputs[0];
  };
  ir().add_output(body, inputs[0]);
  ir().add_output(body, both(inputs[1], condition()));
  const TensorId opposite = ir().op(p_.emit("logical_not", {inputs[1]})).outputs[0];
  ir().add_output(body, both(inputs[1], opposite));
  for (std::size_t i = 2; i < frame().carried; ++i) {
    ir().add_output(body, last_like(inputs[i], frame().pools[kValues]).value_or(inputs[i]));
  }
  Frame done = close_frame();
  const Callable iteration = iteration_of(callables_.back(), done.carried);
  callables_.push_back(iteration);
  std::vector<TensorId> arguments = done.arguments;
  arguments.insert(arguments.begin(), done.condition);
  run("while_loop", {{"graph", iteration.graph}}, arguments, {iteration}, 1 + done.carried);
}

/// A conditional that runs the body where its first input holds.
RandomGraphs::Callable RandomGraphs::iteration_of(const Callable& body, std::size_t carried) {
  const GraphId end = ir().create_graph("end"), iteration = ir().create_graph("iteration");
  const auto add = [this](GraphId graph, const TensorType& type, const Shape& meta_shape) {
    return ir().add_input(graph, "in", type, meta_shape);
  };
  Callable result{iteration, {false}};
  ir().add_output(end, add(end, kCondition, {}));
  std::vector<TensorId> arguments{add(iteration, kCondition, {})}, of_end = arguments;
  const std::vector<TensorId> inputs = ir().graph(body.graph).inputs;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const Tensor input = ir().tensor(inputs[i]);
    arguments.push_back(add(iteration, input.type, input.meta_shape));
    result.written.push_back(body.written[i]);
    if (i >= carried) continue;
    ir().add_output(end, add(end, input.type, input.meta_shape));
    of_end.push_back(arguments.back());
  }
  const std::size_t given = arguments.size();
  arguments.insert(arguments.end(), of_end.begin(), of_end.end());
  p_.at = iteration;
  const OpId op = p_.emit("conditional", arguments, {{"then_branch", body.graph}, {"else_branch", end}});
  for (std::uint32_t i = 1; i < given; ++i) {
    if (body.written[i - 1]) GraphEditor(ir()).mark_modified(op, i);
  }
  for (const TensorId t : ir().op(op).outputs) ir().add_output(iteration, t);
  p_.at = frame().graph;
  return result;
}

std::optional<TensorId> RandomGraphs::last_like(TensorId t, const std::vector<TensorId>& from) {
  const std::size_t skip = from.empty() ? 0 : below(from.size());
  for (std::size_t tries = 0; tries < from.size(); ++tries) {
    const TensorId other = from[from.size() - 1 - (tries + skip) % from.size()];
    if (same_type(t, other)) return other;
  }
  return std::nullopt;
}

void RandomGraphs::open_else(Frame then_branch) {
  Frame other{.kind = Frame::Kind::kElse,
              .graph = ir().create_graph("f"),
              .condition = then_branch.condition,
              .pure = then_branch.pure};
  frames_.back() = std::move(other);
  p_.at = frame().graph;
  then_branches_.push_back(std::move(then_branch));
}

void RandomGraphs::close_conditional() {
  Frame taken = std::move(then_branches_.back());
  then_branches_.pop_back();
  const std::vector<TensorId>& made = taken.pools[kValues];
  for (std::size_t k = made.size() - std::min<std::size_t>(made.size(), 2); k < made.size(); ++k) {
    std::optional<TensorId> other = last_like(made[k], frame().pools[kValues]);
    for (std::size_t back = 0; !other && back < available(kValues); ++back) {
      if (same_type(peek(kValues, back), made[k])) other = at_back(kValues, back);
    }
    if (!other) continue;
    ir().add_output(taken.graph, made[k]);
    ir().add_output(frame().graph, *other);
  }
  frames_.push_back(std::move(taken));
  taken = close_frame();
  Frame other = close_frame();
  const std::size_t last = callables_.size() - 1;
  std::vector<TensorId> arguments = taken.arguments;
  arguments.insert(arguments.begin(), taken.condition);
  arguments.insert(arguments.end(), other.arguments.begin(), other.arguments.end());
  run("conditional", {{"then_branch", taken.graph}, {"else_branch", other.graph}}, arguments,
      {callables_[last - 1], callables_[last]}, 0);
}

void RandomGraphs::run(std::string_view name, Attrs attrs, const std::vector<TensorId>& arguments,
                       const std::vector<Callable>& graphs, std::size_t carried) {
  p_.sequence = SequenceMode::kOrdered;
  const OpId op = p_.emit(name, arguments, std::move(attrs));
  auto i = static_cast<std::uint32_t>(name == "conditional" ? 1 : 0);
  const std::size_t by_value = below(4) == 1 ? byte() : 0;  // a bit an input: mostly by reference
  for (const Callable& graph : graphs) {
    std::set<TensorId> given;
    for (std::size_t k = 0; k < graph.written.size(); ++k, ++i) {
      const bool writes = graph.written[k] || k < carried;
      if ((by_value >> (k % 8) & 1) != 0 || (k < carried && by_value == 0)) continue;
      if (writes && !try_pass(arguments[i], given)) continue;
      GraphEditor(ir()).mark_modified(op, i);
      if (writes) wrote(arguments[i]);
    }
  }
  for (const TensorId t : ir().op(op).outputs) add_value(t);
}

/// Memory is given once, where it may be written; false if it was given before.
bool RandomGraphs::try_pass(TensorId t, std::set<TensorId>& given) {
  std::set<TensorId> roots;
  for_each_root(ir(), t, [&roots](TensorId root) { roots.insert(root); });
  if (std::ranges::any_of(roots, [&given](TensorId root) { return given.contains(root); })) return false;
  given.insert(roots.begin(), roots.end());
  return true;
}

void RandomGraphs::call_again() {
  if (callables_.empty()) return compute(below(kComputations));
  const Callable callable = callables_[callables_.size() - 1 - below(callables_.size())];
  const std::vector<TensorId> outputs = ir().graph(callable.graph).outputs;
  const std::size_t how = below(4);
  TensorId holds = kNone;
  if (how == 3) holds = condition();
  std::vector<TensorId> arguments;
  if (!append_arguments(callable, arguments)) return compute(below(kComputations));
  if (how == 3) {
    arguments.insert(arguments.begin(), holds);
    std::vector<TensorId> others;
    if (!append_arguments(callable, others)) return;
    arguments.insert(arguments.end(), others.begin(), others.end());
    return run("conditional", {{"then_branch", callable.graph}, {"else_branch", callable.graph}}, arguments,
               {callable, callable}, 0);
  }
  const std::vector<TensorId>& inputs = ir().graph(callable.graph).inputs;
  bool carries = outputs.size() <= inputs.size();
  for (std::size_t k = 0; carries && k < outputs.size(); ++k) {
    carries = same_type(inputs[k], outputs[k]);
  }
  if (how == 2 && carries) {
    return run("repeat", {{"graph", callable.graph}, {"count", static_cast<std::int64_t>(2 + below(2))}},
               arguments, {callable}, outputs.size());
  }
  run("call", {{"graph", callable.graph}}, arguments, {callable}, 0);
}

bool RandomGraphs::append_arguments(const Callable& callable, std::vector<TensorId>& arguments) {
  const std::vector<TensorId> inputs = ir().graph(callable.graph).inputs;
  for (const TensorId input : inputs) {
    const TensorType& type = ir().tensor(input).type;
    if (type == kCondition) {
      arguments.push_back(condition());
    } else if (type == kOffset) {
      arguments.push_back(offset());
    } else if (type == kSeed) {
      arguments.push_back(seed());
    } else if (type == types_[0] && ir().tensor(input).meta_shape.empty()) {
      arguments.push_back(any_vector());
    } else {
      const std::size_t all = available(kValues), start = below(all);
      std::size_t tries = 0;
      while (tries < all && !same_type(input, peek(kValues, (start + tries) % all))) ++tries;
      if (tries == all) return false;
      arguments.push_back(at_back(kValues, (start + tries) % all));
    }
  }
  return true;
}

}  // namespace popsr::test
