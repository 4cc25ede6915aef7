#include "fuzz/programs/random_every_op.h"

#include <algorithm>
#include <iterator>
#include <string>

#include "popsr/base/error.h"

namespace popsr::test {
namespace {

/// Largest number of elements of a value that others may grow from.
constexpr std::int64_t kMaxElements = 1 << 14;

using Ints = std::vector<std::int64_t>;

}  // namespace

void RandomEveryOp::compute_anything() {
  switch (below(17)) {
    case 0:
    case 1:
    case 2:
    case 3:
      return elementwise();
    case 4:
    case 5:
      return along_axes();
    case 6:
    case 7:
      return rearrange();
    case 8:
    case 9:
    case 10:
      return product();
    case 11:
    case 12:
      return draw();
    case 13:
      return average();
    case 14:
      return several();
    case 15: {
      const std::string_view op = one_of(op_pools().others);
      attempt(op, {any_for(op)});
      return;
    }
    default:
      return change_type();
  }
}

void RandomEveryOp::elementwise() {
  const OpPools& pools = op_pools();
  const std::size_t kind = below(pools.unary.size() + pools.binary.size() + 4);
  if (kind < pools.unary.size()) {
    attempt(pools.unary[kind], {any_for(pools.unary[kind])});
    return;
  }
  if (kind < pools.unary.size() + pools.binary.size()) {
    const std::string_view op = pools.binary[kind - pools.unary.size()];
    const TensorId t = any_for(op);
    attempt(op, {t, like(t)});
    return;
  }
  const TensorId t = any_for("scale");
  const double factor = 0.25 * static_cast<double>(below(16)) - 1.5;
  switch (below(4)) {
    case 0:
      attempt("scale", {t}, {{"factor", factor}});
      return;
    case 1:
      attempt("clip", {t}, {{"min", -1.0}, {"max", 0.5}});
      return;
    case 2:
      attempt("increment_mod", {t}, {{"increment", 0.5}, {"modulus", 2.0}});
      return;
    default:
      attempt("scaled_add", {t, like(t)}, {{"a", factor}, {"b", 0.5}});
  }
}

void RandomEveryOp::along_axes() {
  const TensorId t = any_for("softmax");
  const auto rank = static_cast<std::int64_t>(type_of(t).shape.size());
  const auto axis =
      static_cast<std::int64_t>(below(static_cast<std::size_t>(std::max<std::int64_t>(rank, 1))));
  switch (below(6)) {
    case 0:
      attempt("softmax", {t}, {{"axis", axis}});
      return;
    case 1:
      attempt("log_softmax", {t}, {{"axis", axis}});
      return;
    case 2:
      attempt("cumsum", {t}, {{"dim", axis}, {"reverse", below(2) == 1}});
      return;
    case 3:
      attempt("topk", {t}, {{"k", std::int64_t{1}}, {"axis", axis}, {"largest", true}});
      return;
    default:
      Attrs attrs{{"keepdims", below(2) == 1}};
      if (below(3) != 0) attrs.emplace_back("axis", Ints{axis});
      attempt(one_of(op_pools().over_axes), {t}, attrs);
  }
}

void RandomEveryOp::rearrange() {
  const TensorId t = any();
  const Shape shape = type_of(t).shape;
  switch (below(7)) {
    case 0:
      attempt("transpose", {t});
      return;
    case 1:
      attempt("reshape", {t}, {{"shape", Ints{elements_of(t)}}});
      return;
    case 2: {
      Shape wide = shape;
      wide.insert(wide.begin(), 2);
      if (2 * elements_of(t) <= kMaxElements) attempt("expand", {t}, {{"shape", wide}});
      return;
    }
    case 3:
      if (2 * elements_of(t) <= kMaxElements) attempt("concat", {t, like(t)});
      return;
    case 4:
      attempt("flatten", {t});
      return;
    case 5:
      attempt("where", {any_for("where"), t, like(t)});
      return;
    default:
      if (!shape.empty()) attempt("slice", {t}, {{"start", Ints{0}}, {"stop", Ints{(shape[0] + 1) / 2}}});
  }
}

TensorId RandomEveryOp::any_matrix() {
  const std::size_t all = available(kValues), back = below(all);
  for (std::size_t tries = 0; tries < all; ++tries) {
    const std::size_t at = (back + tries) % all;
    const TensorType& type = type_of(peek(kValues, at));
    if (type.shape.size() == 2 && kFloating.contains(type.dtype)) return at_back(kValues, at);
  }
  for (const TensorType& type : types_) {
    if (kFloating.contains(type.dtype)) return load(StreamMode::kReplicate, {type.dtype, {3, 3}}, kValues);
  }
  return load(StreamMode::kReplicate, {DType::kFloat32, {3, 3}}, kValues);
}

/// Collectives that can be merged.
void RandomEveryOp::several() {
  static constexpr std::string_view kOps[] = {"replicated_all_reduce", "replicated_all_reduce_",
                                              "replicated_reduce_scatter"};
  const std::string_view op = kOps[frame().pure ? 0 : below(std::size(kOps))];
  const Attrs attrs{{"op", std::string(below(2) == 0 ? "mean" : "add")}, {"group", grouping()}};
  for (std::size_t left = 2 + below(2); left > 0; --left) {
    const TensorId t = any_for("softmax");
    if (op.back() == '_') p_.sequence = SequenceMode::kOrdered;
    if (attempt(op, {t}, attrs) && op.back() == '_') wrote(t);
  }
}

/// Products, often right before what they can be fused into.
void RandomEveryOp::product() {
  const TensorId t = any_matrix();
  const TensorId other = like(t);
  const std::size_t how = below(3);
  const Attrs attrs{{"transpose_lhs", how == 0}, {"transpose_rhs", how == 1}};
  const std::size_t then = below(5);
  if (then == 0) {
    attempt("matmul", {t, other}, attrs);
    return;
  }
  TensorId made = kNone;
  try {
    made = p_("matmul", {t, other}, {}, attrs);
  } catch (const Error&) {
    return;
  }
  if (then < 3) {
    Attrs reduced{{"op", std::string(below(2) == 0 ? "mean" : "add")}};
    reduced.emplace_back("group", grouping());
    attempt(then == 1 ? "replicated_all_reduce" : "replicated_all_reduce_", {made}, reduced);
    return;
  }
  const TensorId total = like(made);
  p_.sequence = SequenceMode::kOrdered;
  if (total == made || frame().pure) {
    add_value(made);
  } else if (attempt("accumulate_", {total, made}, {{"f", 0.5}})) {
    wrote(total);
  }
}

void RandomEveryOp::draw() {
  const TensorType& type = any_type();
  switch (below(5)) {
    case 0:
      attempt("random_normal", {seed()}, {{"shape", type.shape}, {"dtype", type.dtype}});
      return;
    case 1:
      attempt("random_uniform", {seed()}, {{"shape", type.shape}, {"dtype", type.dtype}, {"low", -1.0}});
      return;
    case 2: {
      const TensorId next = seed();
      add_value(p_("create_random_seed", {next, offset()}), kSeeds);
      return;
    }
    default:
      attempt("dropout", {any_for("dropout"), seed()}, {{"p", 0.5}});
  }
}

DType RandomEveryOp::float8() {
  std::vector<DType> all;
  for (const DTypeInfo& row : kDTypes) {
    if (kFloat8.contains(row.dtype)) all.push_back(row.dtype);
  }
  return all[below(all.size())];
}

void RandomEveryOp::change_type() {
  static constexpr DType kTypes[] = {DType::kFloat32,  DType::kBFloat16, DType::kFloat16, DType::kFloat64,
                                     DType::kBFloat16, DType::kInt32,    DType::kFloat32, DType::kInt8};
  const TensorId t = any();
  if (kFloat8.contains(type_of(t).dtype)) {
    attempt("pow2scale_cast_from_fp8", {t, offset()}, {{"data_type", kTypes[1 + below(2)]}});
  } else if (below(6) == 0) {
    attempt("pow2scale_cast_to_fp8", {t, offset()}, {{"data_type", float8()}});
  } else {
    attempt("cast", {t}, {{"data_type", kTypes[below(std::size(kTypes))]}});
  }
}

/// A step of Adam: its second output is its counter, written in place.
void RandomEveryOp::average() {
  const TensorId t = any_for("adam_updater");
  if (frame().pure || below(2) == 0) {
    attempt("adam_updater", {t, like(t), like(t)}, {{"weight_decay", 0.5}});
    return;
  }
  const TensorId counter = variable({DType::kFloat32, {}}, kValues);
  p_.sequence = SequenceMode::kOrdered;
  if (attempt("adam_updater", {t, like(t), like(t), counter},
              {{"weight_decay", 0.5}, {"beta1", 0.5}, {"beta2", 0.75}})) {
    wrote(counter);
  }
}

// Ops that write

void RandomEveryOp::modify_anything() {
  p_.sequence = SequenceMode::kOrdered;
  const std::string_view op = one_of(op_pools().in_place);
  const OpDef& def = ir().registry().at(op);
  const TensorId t = target(op);
  std::vector<TensorId> inputs{t};
  if (required_operands(def) == 2) inputs.push_back(like(t));
  Attrs attrs;
  for (const AttrDef& attr : def.attrs) {
    if (attr.type == AttrType::kFloat) attrs.emplace_back(attr.name, 0.25 * static_cast<double>(below(9)));
  }
  if (attempt(op, inputs, attrs)) wrote(t);
}

void RandomEveryOp::view() {
  p_.sequence = SequenceMode::kOrdered;
  const TensorId t = any();
  const Shape shape = type_of(t).shape;
  switch (below(7)) {
    case 0:
      attempt("transpose_", {t});
      return;
    case 1:
      attempt("reshape_", {t}, {{"shape", Ints{elements_of(t)}}});
      return;
    case 2:
      attempt("flatten_", {t});
      return;
    case 3:
      attempt("detach_", {t});
      return;
    case 4:
      if (2 * elements_of(t) <= kMaxElements) attempt("concat_", {t, like(t)});
      return;
    default:
      if (shape.empty()) return;
      const auto start = static_cast<std::int64_t>(below(2));
      attempt("slice_", {t},
              {{"start", Ints{std::min(start, shape[0])}},
               {"step", Ints{1 + static_cast<std::int64_t>(below(2))}}});
  }
}

}  // namespace popsr::test
