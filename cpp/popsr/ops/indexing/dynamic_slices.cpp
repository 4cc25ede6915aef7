// Parts of tensors: dynamic_slice and dynamic_update, whose offsets are known when the program runs, and
// subsample.
//
// An offset whose range does not lie inside the operand is an error when the program runs.
#include <algorithm>
#include <cstring>

#include "popsr/base/error.h"
#include "popsr/ir/remote_access.h"
#include "popsr/ops/infer.h"
#include "popsr/ops/loops/strided.h"
#include "popsr/ops/loops/tiles.h"
#include "popsr/ops/registry.h"

namespace popsr {
namespace {

using Ints = std::vector<std::int64_t>;

// ---- dynamic_slice, dynamic_update, dynamic_update_

Ints sliced_axes(const Op& op, std::size_t rank) {
  Ints axes = op.attr<Ints>("axes");
  normalize_axes(op.def->name, axes, rank);  // Checks range and duplicates.
  for (std::int64_t& axis : axes) axis = normalize_axis(op.def->name, axis, rank);
  return axes;
}

/// The shape of the part; checks axes, sizes and the number of offsets.
Shape checked_part(const InferContext& context, const Shape& full) {
  const Ints axes = sliced_axes(context.op, full.size());
  const Ints& sizes = context.op.attr<Ints>("sizes");
  if (sizes.size() != axes.size()) {
    raise<AttributeValueError>("{}: axes and sizes differ in length, got {} and {}, expected equal lengths",
                               context.name(), to_string(axes), to_string(sizes));
  }
  const Shape& index = context.type(1).shape;
  if (num_elements(index) != static_cast<std::int64_t>(axes.size())) {
    raise<ShapeError>("{}: index does not match axes, got {}, expected {} offsets", context.name(),
                      describe(context, 1), axes.size());
  }
  Shape part = full;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    std::int64_t& extent = part[static_cast<std::size_t>(axes[i])];
    if (sizes[i] < 0 || sizes[i] > extent) {
      raise<ShapeError>("{}: size is out of range, got {} on axis {} of {}, expected 0 to {}", context.name(),
                        sizes[i], axes[i], to_string(full), extent);
    }
    extent = sizes[i];
  }
  return part;
}

/// A box in a dense tensor whose place is read when the program runs, and the same box alone.
class Box {
 public:
  Box(const EvalSpec& spec, const Shape& full)
      : op_(spec.op.def->name),
        index_dtype_(spec.inputs[1]->dtype),
        size_(static_cast<std::int64_t>(size_of(spec.outputs[0].dtype))),
        axes_(sliced_axes(spec.op, full.size())),
        sizes_(spec.op.attr<Ints>("sizes")) {
    Shape part = full;
    const Shape strides = row_major_strides(full);
    for (std::size_t i = 0; i < axes_.size(); ++i) {
      const auto axis = static_cast<std::size_t>(axes_[i]);
      part[axis] = sizes_[i];
      extents_.push_back(full[axis]);
      axis_strides_.push_back(strides[axis]);
    }
    elements_ = num_elements(part);
    const StridedView view = collapse({.shape = part, .strides = strides});
    shape_ = view.shape;
    strides_ = view.strides;
    if (strides_.back() != 1) {
      shape_.push_back(1);
      strides_.push_back(1);
    }
  }

  /// Where the box begins in each block, in bytes; OutOfRangeError for a place outside.
  Ints places(const BlockRun& run) const {
    Ints places;
    for (std::int64_t b = 0; b < run.blocks; ++b) {
      const std::byte* const index = run.in[1] + b * run.in_stride[1];
      std::int64_t& place = places.emplace_back(0);
      for (std::size_t i = 0; i < axes_.size(); ++i) {
        const std::int64_t at = read_integer(index + i * size_of(index_dtype_), index_dtype_);
        if (at < 0 || at > extents_[i] - sizes_[i]) {
          raise<OutOfRangeError>(
              "{}: range is outside the operand, got offset {} on axis {}, expected 0 to {}", op_, at,
              axes_[i], extents_[i] - sizes_[i]);
        }
        place += at * axis_strides_[i] * size_;
      }
    }
    return places;
  }

  /// Calls visit(in the tensor, in the box alone, bytes) for each row of the box; offsets in bytes.
  template <class Visit>
  void rows(const Visit& visit) const {
    if (elements_ == 0) return;
    const std::int64_t run = shape_.back();
    for (std::int64_t row = 0; row < elements_ / run; ++row) {
      std::int64_t at = 0, rest = row;
      for (std::size_t d = shape_.size() - 1; d-- > 0;) {
        at += rest % shape_[d] * strides_[d];
        rest /= shape_[d];
      }
      visit(at * size_, row * run * size_, static_cast<std::size_t>(run * size_));
    }
  }

 private:
  std::string_view op_;
  DType index_dtype_;
  std::int64_t size_;
  Ints axes_, sizes_, extents_ = {}, axis_strides_ = {};
  std::int64_t elements_ = 0;
  Shape shape_ = {}, strides_ = {};
};

std::vector<OutputDef> infer_dynamic_slice(const InferContext& context) {
  return {{{context.type(0).dtype, checked_part(context, context.type(0).shape)}, {}}};
}

BlockKernel eval_dynamic_slice(const EvalSpec& spec) {
  return [box = Box(spec, spec.inputs[0]->shape)](const BlockRun& run) {
    const Ints places = box.places(run);
    for (std::int64_t b = 0; b < run.blocks; ++b) {
      const std::byte* const from = run.in[0] + b * run.in_stride[0] + places[static_cast<std::size_t>(b)];
      std::byte* const to = run.out[0] + b * run.out_stride[0];
      box.rows([&](std::int64_t full, std::int64_t part, std::size_t bytes) {
        std::memcpy(to + part, from + full, bytes);
      });
    }
  };
}

std::vector<OutputDef> infer_dynamic_update(const InferContext& context) {
  require_equal_dtypes(context, 0, 2);
  const Shape part = checked_part(context, context.type(0).shape);
  if (context.type(2).shape != part) {
    raise<ShapeError>("{}: t_update does not match sizes, got {}, expected {}", context.name(),
                      describe(context, 2), to_string(part));
  }
  return {{context.type(0), {}}};
}

BlockKernel eval_dynamic_update(const EvalSpec& spec) {
  return [copy = copy_kernel(spec), box = Box(spec, spec.outputs[0].shape)](const BlockRun& run) {
    const Ints places = box.places(run);
    copy(run);
    for (std::int64_t b = 0; b < run.blocks; ++b) {
      const std::byte* const from = run.in[2] + b * run.in_stride[2];
      std::byte* const to = run.out[0] + b * run.out_stride[0] + places[static_cast<std::size_t>(b)];
      box.rows([&](std::int64_t full, std::int64_t part, std::size_t bytes) {
        std::memcpy(to + full, from + part, bytes);
      });
    }
  };
}

/// A part as big as the operand can lie in one place only: all of it is overwritten, whatever the offsets.
PartitionId update_rule(const RuleContext& context, std::size_t output) {
  const bool all =
      context.ir.tensor(context.op.inputs[0]).type == context.ir.tensor(context.op.inputs[2]).type;
  return all ? context.table.meet(context.inputs[2], context.exec) : meet_of_inputs(context, output);
}

/// Gradient of dynamic_slice: dy in its place, zeros elsewhere.
std::vector<OutputDef> infer_dynamic_slice_grad(const InferContext& context) {
  return {{{context.type(0).dtype, context.op.attr<Ints>("shape")}, {}}};
}

BlockKernel eval_dynamic_slice_grad(const EvalSpec& spec) {
  const TensorType& type = spec.outputs[0];
  const std::size_t all = bytes_of(type);
  return [box = Box(spec, type.shape), all](const BlockRun& run) {
    const Ints places = box.places(run);
    for (std::int64_t b = 0; b < run.blocks && all > 0; ++b) {
      const std::byte* const from = run.in[0] + b * run.in_stride[0];
      std::byte* const out = run.out[0] + b * run.out_stride[0];
      std::memset(out, 0, all);
      box.rows([&](std::int64_t full, std::int64_t part, std::size_t bytes) {
        std::memcpy(out + places[static_cast<std::size_t>(b)] + full, from + part, bytes);
      });
    }
  };
}

/// Gradient of what dynamic_update overwrites: dy with zeros in that place.
BlockKernel eval_dynamic_clear(const EvalSpec& spec) {
  return [copy = copy_kernel(spec), box = Box(spec, spec.outputs[0].shape)](const BlockRun& run) {
    const Ints places = box.places(run);
    copy(run);
    for (std::int64_t b = 0; b < run.blocks; ++b) {
      std::byte* const to = run.out[0] + b * run.out_stride[0] + places[static_cast<std::size_t>(b)];
      box.rows([&](std::int64_t full, std::int64_t, std::size_t bytes) { std::memset(to + full, 0, bytes); });
    }
  };
}

std::vector<std::pair<std::string, Attribute>> box_attrs(GradContext& g) {
  return {{"axes", g.op().attribute("axes")}, {"sizes", g.op().attribute("sizes")}};
}

void dynamic_slice_rule(GradContext& g) {
  if (!differentiates(g, 0)) return;
  auto attrs = box_attrs(g);
  attrs.emplace_back("shape", g.in_type(0).shape);
  g.set(0, g.emit("dynamic_slice_grad", {g.cotangent(0), g.in(1)}, std::move(attrs)));
}

void dynamic_update_rule(GradContext& g) {
  if (differentiates(g, 0)) g.set(0, g.emit("dynamic_clear", {g.cotangent(0), g.in(1)}, box_attrs(g)));
  if (differentiates(g, 2)) {
    auto attrs = box_attrs(g);
    attrs.emplace_back("no_overlap", g.op().attribute("no_overlap"));
    g.set(2, g.emit("dynamic_slice", {g.cotangent(0), g.in(1)}, std::move(attrs)));
  }
}

// ---- subsample

StridedView subsample_view(const Op& op, const Shape& full) {
  const Ints& steps = op.attr<Ints>("strides");
  if (steps.size() > full.size()) {
    raise<AttributeValueError>("{}: too many strides, got {}, expected at most {}", op.def->name,
                               to_string(steps), full.size());
  }
  StridedView view{.shape = full, .strides = row_major_strides(full)};
  for (std::size_t d = 0; d < steps.size(); ++d) {
    if (steps[d] < 1) {
      raise<AttributeValueError>("{}: stride is not positive, got {} on axis {}, expected 1 or more",
                                 op.def->name, steps[d], d);
    }
    view.shape[d] = full[d] == 0 ? 0 : (full[d] - 1) / steps[d] + 1;
    view.strides[d] *= view.shape[d] > 1 ? steps[d] : 1;
  }
  return view;
}

std::vector<OutputDef> infer_subsample(const InferContext& context) {
  const TensorType& t = context.type(0);
  return {{{t.dtype, subsample_view(context.op, t.shape).shape}, {}}};
}

BlockKernel eval_subsample(const EvalSpec& spec) {
  return gather_kernel(spec, subsample_view(spec.op, spec.inputs[0]->shape));
}

BlockKernel eval_subsample_grad(const EvalSpec& spec) {
  return embed_kernel(spec, subsample_view(spec.op, spec.outputs[0].shape));
}

void subsample_rule(GradContext& g) {
  if (!differentiates(g, 0)) return;
  g.set(0, g.emit("subsample_grad", {g.cotangent(0)},
                  {{"strides", g.op().attribute("strides")}, {"shape", g.in_type(0).shape}}));
}

// ---- definitions

std::vector<AttrDef> box_defs(AttrDef last) {
  return {required("axes", AttrType::kInts), required("sizes", AttrType::kInts), std::move(last)};
}

std::vector<OpDef> dynamic_ops() {
  const AttrDef no_overlap = required("no_overlap", AttrType::kBool);
  const InputDef index{.name = "index", .dtypes = kIntegers};
  OpDef update{.name = "dynamic_update",
               .inputs = {{"t"}, index, {"t_update"}},
               .attrs = box_defs(no_overlap),
               .infer = infer_dynamic_update,
               .kernel = {.eval = eval_dynamic_update},
               .grad = {.rule = dynamic_update_rule},
               .replicas = {.partition = update_rule,
                            .says = "meet of inputs; of the update alone where it covers everything"}};
  return {
      update,
      inplace_form(update, "dynamic_update_"),
      {.name = "dynamic_slice",
       .inputs = {{"t"}, index},
       .attrs = box_defs(no_overlap),
       .infer = infer_dynamic_slice,
       .kernel = {.eval = eval_dynamic_slice},
       .grad = {.rule = dynamic_slice_rule}},
      {.name = "dynamic_slice_grad",
       .inputs = {{"dy"}, index},
       .attrs = box_defs(required("shape", AttrType::kInts)),
       .infer = infer_dynamic_slice_grad,
       .kernel = {.eval = eval_dynamic_slice_grad},
       .program = {.internal = true}},
      {.name = "dynamic_clear",
       .inputs = {{"dy"}, index},
       .attrs = {required("axes", AttrType::kInts), required("sizes", AttrType::kInts)},
       .infer = same_as_input,
       .kernel = {.eval = eval_dynamic_clear},
       .program = {.internal = true}},
  };
}

}  // namespace

std::vector<OpDef> dynamic_slice_ops() {
  std::vector<OpDef> ops = dynamic_ops();
  ops.push_back({.name = "subsample",
                 .inputs = {{"t"}},
                 .attrs = {required("strides", AttrType::kInts)},
                 .infer = infer_subsample,
                 .kernel = {.eval = eval_subsample},
                 .grad = {.rule = subsample_rule}});
  ops.push_back({.name = "subsample_grad",
                 .inputs = {{"dy"}},
                 .attrs = {required("strides", AttrType::kInts), required("shape", AttrType::kInts)},
                 .infer = infer_dynamic_slice_grad,
                 .kernel = {.eval = eval_subsample_grad},
                 .program = {.internal = true}});
  return ops;
}

}  // namespace popsr
