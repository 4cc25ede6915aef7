#include "fuzz/programs/random_ops.h"

#include <algorithm>
#include <iterator>
#include <random>
#include <string>

#include "popsr/effects/memory.h"
#include "popsr/transform/graph_editor.h"

namespace popsr::test {

// Ops that write

void RandomOps::wrote(TensorId t) {
  frame().written.insert(ir().tensor(t).memory.storage);
  for_each_root(ir(), t, [this](TensorId root) { frame().written.insert(root); });
}

TensorId RandomOps::target(std::string_view op) {
  if (control_flow_) return any_for(op);
  std::vector<TensorId> fitting;
  for (const TensorId t : loaded_) {
    if (accepts(op, type_of(t).dtype)) fitting.push_back(t);
  }
  if (!fitting.empty()) return fitting[below(fitting.size())];
  return load(StreamMode::kReplicate, accepts(op, types_[0].dtype) ? types_[0] : kVector, kValues);
}

const OpPools& RandomOps::op_pools() {
  if (!pools_) pools_ = test::op_pools(ir().registry());
  return *pools_;
}

void RandomOps::modify(std::size_t kind) {
  static constexpr std::string_view kOps[] = {"add_",        "copy_var_update_",   "replicated_all_reduce_",
                                              "accumulate_", "accumulator_scale_", "accumulator_zero_"};
  p_.sequence = SequenceMode::kOrdered;
  const std::size_t what = kind % 11;
  if (what >= 7) return remote(what);
  if (what == 6) return load_into();
  const std::string_view op = kOps[what];
  const bool of_conditions = control_flow_ && what == 1 && available(kConditions) > 0 && byte() % 4 == 0;
  const TensorId t = of_conditions ? condition_around() : target(op);
  wrote(t);
  if (of_conditions) return void(add_value(p_(op, {t, condition()}), kConditions));
  switch (what) {
    case 2:
      return void(add_value(p_(op, {t}, {}, with_group(reduction(t)))));
    case 3:
      return void(add_value(p_(op, {t, like(t)}, {}, {{"f", static_cast<double>(below(2))}})));
    case 4:
      return void(add_value(p_(op, {t}, {}, {{"f", static_cast<double>(below(2))}})));
    case 5:
      return void(add_value(p_(op, {t})));
    default:
      return void(add_value(p_(op, {t, like(t)})));
  }
}

void RandomOps::view_part() {
  constexpr std::int64_t kMaxElements = 8;  // as support/herbrand.cpp
  const TensorId t = any();
  const std::int64_t elements = elements_of(t);
  if (elements < 2 || elements > kMaxElements || !ir().tensor(t).meta_shape.empty()) return pass_on(t);
  p_.sequence = SequenceMode::kOrdered;
  const std::int64_t rows = type_of(t).shape[0], half = (rows + 1) / 2;
  using Ints = std::vector<std::int64_t>;
  const auto slice = [&](std::int64_t start, std::int64_t stop, std::int64_t step) {
    attempt("slice_", {t}, {{"start", Ints{start}}, {"stop", Ints{stop}}, {"step", Ints{step}}});
  };
  switch (below(5)) {
    case 0:
      return void(attempt("reshape_", {t}, {{"shape", Ints{elements}}}));
    case 1:
      return slice(std::min<std::int64_t>(static_cast<std::int64_t>(below(2)), rows - 1), rows, 2);
    case 2:
      return slice(0, half, 1);
    default:
      return slice(std::min(half, rows - 1), rows, 1);
  }
}

void RandomOps::load_into() {
  const TensorId t = target("remote_load_");
  if (type_of(t) != types_[0] || !ir().tensor(t).meta_shape.empty()) return remote(9);
  wrote(t);
  std::vector<TensorId> inputs{t};
  const Attrs attrs = entry(inputs);
  add_value(p_("remote_load_", inputs, {}, attrs));
}

RemoteId RandomOps::buffer() {
  if (!buffer_) {
    buffer_ = ir().add_remote_buffer(types_[0], 2);
    for (std::int64_t e = 0; e < 2 && !control_flow_; ++e) {
      p_.emit("remote_store", {any_vector()}, {{"remote_buffer", *buffer_}, {"entry", e}});
    }
    if (control_flow_ && below(2) == 1)
      GraphEditor(ir()).place_variable(p_.variable("home", grouping(), types_[0]), *buffer_, 0, 1);
  }
  return *buffer_;
}

/// The entry to reach: known, or an offset that is appended to the inputs.
Attrs RandomOps::entry(std::vector<TensorId>& inputs) {
  Attrs attrs{{"remote_buffer", buffer()}};
  if (below(3) == 2) {
    inputs.push_back(offset());
  } else {
    attrs.emplace_back("entry", static_cast<std::int64_t>(below(2)));
  }
  return attrs;
}

void RandomOps::remote(std::size_t kind) {
  std::vector<TensorId> inputs;
  if (kind % 2 == 0) {
    inputs.push_back(any_vector());
    const Attrs attrs = entry(inputs);
    p_.emit("remote_store", inputs, attrs);
    return;
  }
  const Attrs attrs = entry(inputs);
  add_value(p_("remote_load", inputs, {}, attrs));
}

// Ops that compute

void RandomOps::compute(std::size_t kind) {
  if (kind >= 24) return void(source(byte()));
  switch (kind) {
    case 0:
      return void(add_value(p_("relu", {any_for("relu")})));
    case 1:
    case 2:
    case 3: {
      const std::string_view op = kind == 3 ? "mul" : "add";
      const TensorId t = any_for(op);
      return void(add_value(p_(op, {t, like(t)})));
    }
    case 4:
    case 5:
      return collective("replicated_all_reduce");
    case 6:
      return any_collective();
    case 7:
    case 8:
      return collective("replicated_reduce_scatter");
    case 9:
      return gather();
    case 10:
    case 11:
    case 12:
      return broadcast("replicated_broadcast");
    case 13:
      return broadcast("replicated_broadcast_grad");
    case 14:
    case 15:
      return permute();
    case 16:
      return part("replicated_all_to_all");
    case 17:
      return part("replicated_slice");
    case 18:
      return collective("replica_sharded_slice");
    case 19:
      return void(add_value(p_("cast", {place_of_replica()}, {}, {{"data_type", DType::kFloat32}})));
    case 20:
      collective("replicated_all_reduce_identical_inputs");
      return void(add_value(
          p_("replicated_identical_grad", {any_for("replicated_identical_grad")}, {}, with_group(Attrs()))));
    case 21:
      return collective("replicated_all_reduce_identical_grad_inputs");
    case 22: {
      const TensorId t = any_for("all_reduce");
      const OpId sums = p_.emit("all_reduce", {t, like(t)}, reduction(t));
      for (const TensorId sum : ir().op(sums).outputs) add_value(sum);
      return;
    }
    default:
      return gather_grad();
  }
}

/// Something else of the value, where the op that was drawn does not fit.
void RandomOps::pass_on(TensorId t) {
  add_value(p_(accepts("tanh", type_of(t).dtype) ? "tanh" : "identity", {t}));
}

Attrs RandomOps::reduction(TensorId t) {
  static constexpr std::string_view kOps[] = {"add", "mean", "add", "max", "min", "mul", "square_add"};
  if (type_of(t).dtype == DType::kBool) return {{"op", std::string(below(2) == 0 ? "or" : "and")}};
  if (!every_op_) return {};
  return {{"op", std::string(kOps[below(std::size(kOps))])}};
}

Attrs RandomOps::with_group(Attrs attrs) {
  attrs.emplace_back("group", grouping());
  return attrs;
}

void RandomOps::collective(std::string_view op) {
  const TensorId t = any_for(op);
  const bool sums = op.ends_with("_inputs");  // other reductions have no gradient
  const bool plain = op == "replica_sharded_slice" || (sums && type_of(t).dtype != DType::kBool);
  add_value(p_(op, {t}, {}, with_group(plain ? Attrs() : reduction(t))));
}

/// One of the registry, with its defaults.
void RandomOps::any_collective() {
  const std::string_view op = one_of(op_pools().collectives);
  const TensorId t = any_for(op);
  if (elements_of(t) > 64 || !attempt(op, {t}, {{"group", grouping()}})) pass_on(t);
}

void RandomOps::gather() {
  const TensorId t = any();
  if (elements_of(t) > 64) return pass_on(t);
  add_value(
      p_("replicated_all_gather", {t}, {}, {{"group", grouping()}, {"output_shape", std::string("concat")}}));
}

void RandomOps::gather_grad() {
  const TensorId t = any();
  const ReplicaGrouping group = grouping();
  const std::int64_t elements = elements_of(t);
  if (elements % group.group_size() != 0) return pass_on(t);
  add_value(
      p_("replicated_gather_grad", {t}, {},
         {{"shape", Shape{elements / group.group_size()}}, {"outer", std::int64_t{1}}, {"group", group}}));
}

void RandomOps::broadcast(std::string_view op) {
  const TensorId t = any_for(op);
  const ReplicaGrouping group = grouping();
  const auto size = static_cast<std::size_t>(group.group_size());
  Attrs attrs = op == "replicated_broadcast" ? Attrs() : reduction(t);
  attrs.emplace_back("root", static_cast<std::int64_t>(below(size)));
  attrs.emplace_back("group", group);
  add_value(p_(op, {t}, {}, std::move(attrs)));
}

void RandomOps::permute() {
  if (frames_.back().condition != kNone && byte() % 8 != 0) return broadcast("replicated_broadcast");
  const TensorId t = any();
  add_value(p_("replicated_permute", {t}, {}, {{"mapping", destinations()}}));
}

std::vector<std::int64_t> RandomOps::destinations() {
  std::minstd_rand random(static_cast<std::uint32_t>(byte() + 1));
  std::vector<std::int64_t> mapping;
  for (std::int64_t r = 0; r < ir().replication(); ++r) mapping.push_back(r);
  std::shuffle(mapping.begin(), mapping.end(), random);
  for (std::int64_t& to : mapping) to = random() % 4 == 0 ? -1 : to;
  return mapping;
}

/// Along an axis that divides.
void RandomOps::part(std::string_view op) {
  const TensorId t = any();
  const ReplicaGrouping group = grouping();
  const Shape& shape = type_of(t).shape;
  if (shape.empty() || shape[0] % group.group_size() != 0) return pass_on(t);
  add_value(p_(op, {t}, {}, {{"group", group}}));
}

}  // namespace popsr::test
