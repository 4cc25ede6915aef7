// Parts of tensors: dynamic_slice and dynamic_update, whose offsets are known when the program runs, and
// subsample.
//
// An offset whose range does not lie inside the operand is an error when the program runs.
#include <algorithm>
#include <cstring>

#include "popsr/base/error.h"
#include "popsr/base/layout/loop_nest.h"
#include "popsr/exec/block_kernel.h"
#include "popsr/ops/attributes.h"
#include "popsr/ops/infer.h"
#include "popsr/ops/loops/blocks.h"
#include "popsr/ops/loops/strided.h"
#include "popsr/ops/loops/tiles.h"
#include "popsr/ops/registry.h"

namespace popsr {
namespace {

using Ints = std::vector<std::int64_t>;

constexpr std::size_t kT = 0, kIndex = 1, kUpdate = 2;

constexpr Attr<Ints> kAxes{"axes"};
constexpr Attr<Ints> kSizes{"sizes"};
constexpr Attr<bool> kNoOverlap{"no_overlap"};
constexpr Attr<Ints> kStrides{"strides"};

// dynamic_slice, dynamic_update, dynamic_update_

Ints sliced_axes(const Op& op, std::size_t rank) {
  Ints axes = op.get(kAxes);
  normalize_axes(op.def->name, axes, rank);  // Checks range and duplicates.
  for (std::int64_t& axis : axes) axis = normalize_axis(op.def->name, axis, rank);
  return axes;
}

/// The shape of the part; checks axes, sizes and the number of offsets.
Shape checked_part(const InferContext& context, const Shape& full) {
  const Ints axes = sliced_axes(context.op, full.size());
  const Ints& sizes = context.get(kSizes);
  if (sizes.size() != axes.size()) {
    raise<AttributeValueError>("{}: axes and sizes differ in length, got {} and {}, expected equal lengths",
                               context.name(), to_string(axes), to_string(sizes));
  }
  const Shape& index = context.type(kIndex).shape;
  if (num_elements(index) != static_cast<std::int64_t>(axes.size())) {
    raise<ShapeError>("{}: index does not match axes, got {}, expected {} offsets", context.name(),
                      describe(context, kIndex), axes.size());
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

/// A box in a dense tensor whose place is read when the program runs, and the dense box by itself.
class Box {
 public:
  Box(const EvalSpec& spec, const Shape& full)
      : op_(spec.op.def->name),
        index_dtype_(spec.inputs[1]->dtype),
        size_(static_cast<std::int64_t>(size_of(spec.outputs[0].dtype))),
        axes_(sliced_axes(spec.op, full.size())),
        sizes_(spec.op.get(kSizes)) {
    Shape part = full;
    const Shape strides = row_major_strides(full);
    for (std::size_t i = 0; i < axes_.size(); ++i) {
      const auto axis = static_cast<std::size_t>(axes_[i]);
      part[axis] = sizes_[i];
      extents_.push_back(full[axis]);
      axis_strides_.push_back(strides[axis]);
    }
    elements_ = num_elements(part);
    nest_ = LoopNest(part, {&strides, 1});
    // A row is a run of adjacent elements: one element where the innermost dimension is not whole.
    row_ = nest_.stride(0) == 1 ? nest_.extent(0) : 1;
  }

  /// Begin of the box in each block, in bytes; OutOfRangeError for a place outside.
  Ints places(const BlockRun& run) const {
    Ints places;
    for_each_block(run, [&](const Block& block) {
      const std::byte* const index = block.in(1);
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
    });
    return places;
  }

  /// Calls visit(in the tensor, in the box alone, bytes) for each row of the box; offsets in bytes.
  template <class Visit>
  void rows(const Visit& visit) const {
    if (elements_ == 0) return;
    NestPosition at(nest_, 0);
    for (std::int64_t done = 0; done < elements_; done += row_) {
      visit(at.offset(0) * size_, done * size_, static_cast<std::size_t>(row_ * size_));
      at.advance(row_);
    }
  }

 private:
  std::string_view op_;
  DType index_dtype_;
  std::int64_t size_;
  Ints axes_, sizes_, extents_ = {}, axis_strides_ = {};
  std::int64_t elements_ = 0, row_ = 1;
  LoopNest nest_{1};
};

std::vector<OutputDef> infer_dynamic_slice(const InferContext& context) {
  return {{{context.type(0).dtype, checked_part(context, context.type(0).shape)}, {}}};
}

BlockKernel eval_dynamic_slice(const EvalSpec& spec) {
  return [box = Box(spec, spec.inputs[0]->shape)](const BlockRun& run) {
    const Ints places = box.places(run);
    for_each_block(run, [&](const Block& block) {
      const std::byte* const from = block.in(0) + places[static_cast<std::size_t>(block.index())];
      std::byte* const to = block.out();
      box.rows([&](std::int64_t full, std::int64_t part, std::size_t bytes) {
        std::memcpy(to + part, from + full, bytes);
      });
    });
  };
}

std::vector<OutputDef> infer_dynamic_update(const InferContext& context) {
  require_equal_dtypes(context, kT, kUpdate);
  const Shape part = checked_part(context, context.type(0).shape);
  if (context.type(kUpdate).shape != part) {
    raise<ShapeError>("{}: t_update does not match sizes, got {}, expected {}", context.name(),
                      describe(context, kUpdate), to_string(part));
  }
  return {{context.type(0), {}}};
}

BlockKernel eval_dynamic_update(const EvalSpec& spec) {
  return [copy = copy_kernel(spec), box = Box(spec, spec.outputs[0].shape)](const BlockRun& run) {
    const Ints places = box.places(run);
    copy(run);
    for_each_block(run, [&](const Block& block) {
      const std::byte* const from = block.in(kUpdate);
      std::byte* const to = block.out() + places[static_cast<std::size_t>(block.index())];
      box.rows([&](std::int64_t full, std::int64_t part, std::size_t bytes) {
        std::memcpy(to + full, from + part, bytes);
      });
    });
  };
}

/// A part as big as the operand can lie in one place only: all of it is overwritten, whatever the offsets.
PartitionId update_rule(const RuleContext& context, std::size_t output) {
  const bool all =
      context.ir.tensor(context.op.inputs[kT]).type == context.ir.tensor(context.op.inputs[kUpdate]).type;
  return all ? context.table.meet(context.inputs[kUpdate], context.exec) : meet_of_inputs(context, output);
}

/// Gradient of dynamic_slice: dy in its place, zeros elsewhere.
BlockKernel eval_dynamic_slice_grad(const EvalSpec& spec) {
  const TensorType& type = spec.outputs[0];
  const std::size_t all = bytes_of(type);
  return [box = Box(spec, type.shape), all](const BlockRun& run) {
    const Ints places = box.places(run);
    if (all == 0) return;
    for_each_block(run, [&](const Block& block) {
      const std::byte* const from = block.in(0);
      std::byte* const out = block.out();
      std::memset(out, 0, all);
      box.rows([&](std::int64_t full, std::int64_t part, std::size_t bytes) {
        std::memcpy(out + places[static_cast<std::size_t>(block.index())] + full, from + part, bytes);
      });
    });
  };
}

/// Gradient with respect to the tensor that dynamic_update writes into: dy with zeros in the box.
BlockKernel eval_dynamic_clear(const EvalSpec& spec) {
  return [copy = copy_kernel(spec), box = Box(spec, spec.outputs[0].shape)](const BlockRun& run) {
    const Ints places = box.places(run);
    copy(run);
    for_each_block(run, [&](const Block& block) {
      std::byte* const to = block.out() + places[static_cast<std::size_t>(block.index())];
      box.rows([&](std::int64_t full, std::int64_t, std::size_t bytes) { std::memset(to + full, 0, bytes); });
    });
  };
}

GradValue dynamic_slice_grad(Grad& g) {
  return g.call("dynamic_slice_grad", {g.dy(), g.x(kIndex)},
                {g.same(kAxes), g.same(kSizes), kShape(g.in_type(kT).shape)});
}

GradValue identity_grad(Grad& g) {
  return g.call("dynamic_clear", {g.dy(), g.x(kIndex)}, {g.same(kAxes), g.same(kSizes)});
}

GradValue update_grad(Grad& g) {
  return g.call("dynamic_slice", {g.dy(), g.x(kIndex)}, {g.same(kAxes), g.same(kSizes), g.same(kNoOverlap)});
}

// Subsample

StridedView subsample_view(const Op& op, const Shape& full) {
  const Ints& steps = op.get(kStrides);
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

GradValue subsample_grad(Grad& g) {
  return g.call("subsample_grad", {g.dy()}, {g.same(kStrides), kShape(g.in_type(kT).shape)});
}

// Definitions

std::vector<AttrDef> box_defs(AttrDef last) { return {required(kAxes), required(kSizes), std::move(last)}; }

std::vector<OpDef> dynamic_ops() {
  const AttrDef no_overlap = required(kNoOverlap);
  const InputDef index{.name = "index", .dtypes = kIntegers};
  OpDef update{.name = "dynamic_update",
               .inputs = {{"t"}, index, {"t_update"}},
               .attrs = box_defs(no_overlap),
               .infer = infer_dynamic_update,
               .kernel = {.eval = eval_dynamic_update},
               .grad = per_input({identity_grad, nullptr, update_grad}),
               .replicas = {.partition = update_rule,
                            .rule_text = "meet of inputs; of the update alone where it covers everything"},
               .memory = {.in_place = true}};
  return {
      update,
      inplace_form(update, "dynamic_update_"),
      {.name = "dynamic_slice",
       .inputs = {{"t"}, index},
       .attrs = box_defs(no_overlap),
       .infer = infer_dynamic_slice,
       .kernel = {.eval = eval_dynamic_slice},
       .grad = per_input({dynamic_slice_grad})},
      {.name = "dynamic_slice_grad",
       .inputs = {{"dy"}, index},
       .attrs = box_defs(required(kShape)),
       .infer = of_given_shape,
       .kernel = {.eval = eval_dynamic_slice_grad},
       .program = {.internal = true}},
      {.name = "dynamic_clear",
       .inputs = {{"dy"}, index},
       .attrs = {required(kAxes), required(kSizes)},
       .infer = same_as_input,
       .kernel = {.eval = eval_dynamic_clear},
       .program = {.internal = true}},
  };
}

}  // namespace

std::vector<OpDef> dynamic_slices_ops() {
  std::vector<OpDef> ops = dynamic_ops();
  ops.push_back({.name = "subsample",
                 .inputs = {{"t"}},
                 .attrs = {required(kStrides)},
                 .infer = infer_subsample,
                 .kernel = {.eval = eval_subsample},
                 .grad = per_input({subsample_grad})});
  ops.push_back({.name = "subsample_grad",
                 .inputs = {{"dy"}},
                 .attrs = {required(kStrides), required(kShape)},
                 .infer = of_given_shape,
                 .kernel = {.eval = eval_subsample_grad},
                 .program = {.internal = true}});
  return ops;
}

}  // namespace popsr
