#include "random_program.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "popsr/transform/stochastic_rounding.h"
#include "random_builder.h"

namespace popsr::test {
namespace {

using Record = Recipe::Record;

/// A graph that can be called again.
struct Callable {
  GraphId graph;
  std::vector<bool> written;  ///< Per input.
};

/// Does what the records say.
class Generator : RandomBuilder {
 public:
  using RandomBuilder::RandomBuilder;

  void step(const Record& record) {
    record_ = &record;
    next_ = 0;
    const std::size_t kind = below(256);
    p_.sequence = SequenceMode::kUnordered;
    if (!control_flow_) return kind < 64 ? modify(kind) : compute(below(kComputations));
    if (kind < 128) return compute(below(kComputations));
    if (kind < 168) return modify(kind);
    if (kind < 200) return close();
    if (kind < 216) return call_again();
    return open(kind);
  }

  void finish() {
    static constexpr Record kZeros = {};
    record_ = &kZeros;
    while (frames_.size() > 1) {
      next_ = 0;
      close();
    }
  }

 private:
  static constexpr std::size_t kMaxDepth = 3;
  static constexpr std::size_t kComputations = 28;

  // --- ops that write

  void wrote(TensorId t) { frame().written.insert(ir().tensor(t).storage); }

  /// What may be written in place.
  TensorId target() {
    if (control_flow_) return any();
    if (loaded_.empty()) load(StreamMode::kReplicate, vector_, kValues);
    auto it = loaded_.begin();
    std::advance(it, static_cast<std::ptrdiff_t>(below(loaded_.size())));
    return *it;
  }

  void modify(std::size_t kind) {
    p_.sequence = SequenceMode::kOrdered;
    const std::size_t what = kind % 11;
    if (what >= 7) return remote(what);
    const TensorId t = target();
    wrote(t);
    switch (what) {
      case 0:
        return void(keep(p_("add_", {t, like(t)})));
      case 1:
        return void(keep(p_("copy_var_update_", {t, like(t)})));
      case 2:
        return void(keep(p_("replicated_all_reduce_", {t}, {}, {{"group", grouping()}})));
      case 3:
        return void(keep(p_("accumulate_", {t, like(t)}, {}, {{"f", static_cast<double>(below(2))}})));
      case 4:
        return void(keep(p_("accumulator_scale_", {t}, {}, {{"f", static_cast<double>(below(2))}})));
      case 5:
        return void(keep(p_("accumulator_zero_", {t})));
      default:
        if (ir().tensor(t).type != vector_ || !ir().tensor(t).meta_shape.empty())
          return void(keep(p_("add_", {t, t})));
        std::vector<TensorId> inputs{t};
        const Attrs attrs = entry(inputs);
        return void(keep(p_("remote_load_", inputs, {}, attrs)));
    }
  }

  RemoteId buffer() {
    if (!buffer_) {
      buffer_ = ir().add_remote_buffer(vector_, 2);
      for (std::int64_t e = 0; e < 2 && !control_flow_; ++e) {
        p_.emit("remote_store", {any_vector()}, {{"remote_buffer", RemoteRef{*buffer_}}, {"entry", e}});
      }
      if (control_flow_ && below(2) == 1)
        ir().place_variable(p_.variable("home", grouping(), vector_), *buffer_, 0, 1);
    }
    return *buffer_;
  }

  /// The entry to reach: known, or an offset that is appended to the inputs.
  Attrs entry(std::vector<TensorId>& inputs) {
    Attrs attrs{{"remote_buffer", RemoteRef{buffer()}}};
    if (below(3) == 2) {
      inputs.push_back(offset());
    } else {
      attrs.emplace_back("entry", static_cast<std::int64_t>(below(2)));
    }
    return attrs;
  }

  void remote(std::size_t kind) {
    std::vector<TensorId> inputs;
    if (kind % 2 == 0) {
      inputs.push_back(any_vector());
      const Attrs attrs = entry(inputs);
      p_.emit("remote_store", inputs, attrs);
      return;
    }
    const Attrs attrs = entry(inputs);
    keep(p_("remote_load", inputs, {}, attrs));
  }

  // --- ops that compute

  void compute(std::size_t kind) {
    if (kind >= 24) return void(source(byte()));
    const TensorId t = any();
    switch (kind) {
      case 0:
        return void(keep(p_("relu", {t})));
      case 1:
      case 2:
        return void(keep(p_("add", {t, like(t)})));
      case 3:
        return void(keep(p_("mul", {t, like(t)})));
      case 4:
      case 5:
      case 6:
        return collective("replicated_all_reduce", t);
      case 7:
      case 8:
        return collective("replicated_reduce_scatter", t);
      case 9:
        return gather(t);
      case 10:
      case 11:
      case 12:
        return broadcast(t, "replicated_broadcast");
      case 13:
        return broadcast(t, "replicated_broadcast_grad");
      case 14:
      case 15:
        if (frames_.back().condition != kNone && byte() % 8 != 0) return broadcast(t, "replicated_broadcast");
        return void(keep(p_("replicated_permute", {t}, {}, {{"mapping", destinations()}})));
      case 16:
        return part("replicated_all_to_all", t);
      case 17:
        return part("replicated_slice", t);
      case 18:
        return collective("replica_sharded_slice", t);
      case 19:
        return void(keep(p_("cast", {place_of_replica()}, {}, {{"data_type", DType::kFloat32}})));
      case 20:
        return collective("replicated_all_reduce_identical_inputs", t);
      case 21:
        return collective("replicated_all_reduce_identical_grad_inputs", t);
      case 22:
        for (const TensorId sum : ir().op(p_.emit("all_reduce", {t, like(t)})).outputs) keep(sum);
        return;
      default:
        return gather_grad(t);
    }
  }

  void collective(std::string_view op, TensorId t) { keep(p_(op, {t}, {}, {{"group", grouping()}})); }

  void gather(TensorId t) {
    if (num_elements(ir().tensor(t).type.shape) > 64) return void(keep(p_("tanh", {t})));
    keep(p_("replicated_all_gather", {t}, {},
            {{"group", grouping()}, {"output_shape", std::string("concat")}}));
  }

  void gather_grad(TensorId t) {
    const ReplicaGrouping group = grouping();
    const std::int64_t elements = num_elements(ir().tensor(t).type.shape);
    if (elements % group.group_size() != 0) return void(keep(p_("tanh", {t})));
    keep(p_("replicated_gather_grad", {t}, {},
            {{"shape", Shape{elements / group.group_size()}}, {"outer", std::int64_t{1}}, {"group", group}}));
  }

  void broadcast(TensorId t, std::string_view op) {
    const ReplicaGrouping group = grouping();
    const auto size = static_cast<std::size_t>(group.group_size());
    keep(p_(op, {t}, {}, {{"root", static_cast<std::int64_t>(below(size))}, {"group", group}}));
  }

  std::vector<std::int64_t> destinations() {
    std::minstd_rand random(static_cast<std::uint32_t>(byte() + 1));
    std::vector<std::int64_t> mapping;
    for (std::int64_t r = 0; r < ir().replication(); ++r) mapping.push_back(r);
    std::shuffle(mapping.begin(), mapping.end(), random);
    for (std::int64_t& to : mapping) to = random() % 4 == 0 ? -1 : to;
    return mapping;
  }

  /// Along an axis that divides.
  void part(std::string_view op, TensorId t) {
    const ReplicaGrouping group = grouping();
    const Shape& shape = ir().tensor(t).type.shape;
    if (shape.empty() || shape[0] % group.group_size() != 0) return void(keep(p_("tanh", {t})));
    keep(p_(op, {t}, {}, {{"group", group}}));
  }

  // --- graphs

  void open(std::size_t kind) {
    if (frames_.size() > kMaxDepth) return compute(below(kComputations));
    Frame inner;
    std::vector<TensorId> carried;
    if (kind < 226) {
      inner.kind = Frame::Kind::kCall;
    } else if (kind < 236) {
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
      inner.pools[kValues].push_back(ir().add_input(inner.graph, "carried", outer.type, outer.meta_shape));
    }
    inner.carried = carried.size();
    frames_.push_back(std::move(inner));
  }

  void close() {
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
        return frame().kind == Frame::Kind::kRepeat ? close_repeat() : close_call();
    }
  }

  /// Takes the innermost frame away; the graph can be called from now on.
  Frame leave() {
    Frame done = std::move(frames_.back());
    frames_.pop_back();
    p_.at = frame().graph;
    p_.sequence = SequenceMode::kOrdered;
    std::vector<bool> written;
    for (const TensorId t : ir().graph(done.graph).inputs) written.push_back(done.written.contains(t));
    callables_.push_back({done.graph, std::move(written)});
    return done;
  }

  void close_call() {
    const std::vector<TensorId>& made = frame().pools[kValues];
    for (std::size_t k = made.size() - std::min<std::size_t>(made.size(), 2); k < made.size(); ++k) {
      ir().add_output(frame().graph, made[k]);
    }
    Frame done = leave();
    run("call", {{"graph", done.graph}}, done.arguments, {callables_.back()}, 0);
  }

  /// Each carried value is followed by the last tensor of its type.
  void close_repeat() {
    const std::vector<TensorId> inputs = ir().graph(frame().graph).inputs;
    for (std::size_t i = 0; i < frame().carried; ++i) {
      ir().add_output(frame().graph, last_like(inputs[i], frame().pools[kValues]).value_or(inputs[i]));
    }
    Frame done = leave();
    run("repeat", {{"graph", done.graph}, {"count", done.count}}, done.arguments, {callables_.back()},
        done.carried);
  }

  std::optional<TensorId> last_like(TensorId t, const std::vector<TensorId>& from) {
    const std::size_t skip = from.empty() ? 0 : below(from.size());
    for (std::size_t tries = 0; tries < from.size(); ++tries) {
      const TensorId other = from[from.size() - 1 - (tries + skip) % from.size()];
      if (same_type(t, other)) return other;
    }
    return std::nullopt;
  }

  void open_else(Frame then_branch) {
    Frame other{
        .kind = Frame::Kind::kElse, .graph = ir().create_graph("f"), .condition = then_branch.condition};
    frames_.back() = std::move(other);
    p_.at = frame().graph;
    then_branches_.push_back(std::move(then_branch));
  }

  void close_conditional() {
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
    taken = leave();
    Frame other = leave();
    const std::size_t last = callables_.size() - 1;
    std::vector<TensorId> arguments = taken.arguments;
    arguments.insert(arguments.begin(), taken.condition);
    arguments.insert(arguments.end(), other.arguments.begin(), other.arguments.end());
    run("conditional", {{"then_branch", taken.graph}, {"else_branch", other.graph}}, arguments,
        {callables_[last - 1], callables_[last]}, 0);
  }

  /// Emits the op and gives some of its inputs by reference, no tensor twice.
  void run(std::string_view name, Attrs attrs, const std::vector<TensorId>& arguments,
           const std::vector<Callable>& graphs, std::size_t carried) {
    p_.sequence = SequenceMode::kOrdered;
    const OpId op = p_.emit(name, arguments, std::move(attrs));
    auto i = static_cast<std::uint32_t>(name == "conditional" ? 1 : 0);
    const std::size_t by_value = below(4) == 1 ? byte() : 0;  // a bit an input: mostly by reference
    for (const Callable& graph : graphs) {
      std::set<TensorId> given;
      for (std::size_t k = 0; k < graph.written.size(); ++k, ++i) {
        const bool writes = graph.written[k] || k < carried;
        const TensorId storage = ir().tensor(arguments[i]).storage;
        if ((by_value >> (k % 8) & 1) != 0 || (k < carried && by_value == 0)) continue;
        if (writes && !given.insert(storage).second) continue;
        ir().mark_modified(op, i);
        if (writes) frame().written.insert(storage);
      }
    }
    for (const TensorId t : ir().op(op).outputs) keep(t);
  }

  /// Other arguments for a graph that is called already: call sites that may disagree.
  void call_again() {
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

  bool append_arguments(const Callable& callable, std::vector<TensorId>& arguments) {
    const std::vector<TensorId> inputs = ir().graph(callable.graph).inputs;
    for (const TensorId input : inputs) {
      const TensorType& type = ir().tensor(input).type;
      if (type == kCondition) {
        arguments.push_back(condition());
      } else if (type == kOffset) {
        arguments.push_back(offset());
      } else if (type == vector_ && ir().tensor(input).meta_shape.empty()) {
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

  std::vector<Frame> then_branches_;  ///< Whose else branch is being written.
  std::vector<Callable> callables_;
  std::optional<RemoteId> buffer_;
};

}  // namespace

Recipe random_recipe(std::mt19937_64& random, std::int64_t replicas, Flavour flavour, std::size_t records) {
  Recipe recipe{.replicas = replicas, .flavour = flavour, .records = std::vector<Record>(records)};
  const std::uint64_t rounding = random() % 8;
  if (rounding < 3) recipe.seeds = rounding == 0 ? SeedRule::kIdentical : SeedRule::kPartition;
  for (Record& record : recipe.records) {
    std::uint64_t bits = random();
    for (std::size_t i = 0; i < record.size(); ++i, bits >>= 8) {
      if (i == 8) bits = random();
      record[i] = static_cast<std::uint8_t>(bits);
    }
  }
  return recipe;
}

std::int64_t random_replicas(std::mt19937_64& random) {
  const std::uint64_t draw = random() % 68;
  if (draw >= 64) return draw % 2 == 0 ? 48 : 64;
  return static_cast<std::int64_t>(1 + draw % 16);
}

void grow(const Recipe& recipe, Program& p, const AcceptGrouping& accept) {
  Generator generator(p, recipe, accept);
  for (const Record& record : recipe.records) generator.step(record);
  generator.finish();
  if (recipe.seeds) assign_seeds(p.ir, *recipe.seeds);
}

}  // namespace popsr::test
