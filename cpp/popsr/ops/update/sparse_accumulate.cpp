// sparse_accumulate_: rows of an axis that indices name are added to; all other elements keep their bits.
//
// Contributions to one element are added in ascending order of the positions in the index tensor, in t's
// compute type: t + f*X_1 + f*X_2 + ..., each product and each sum rounded to that type; a narrow t is
// rounded once, at the end, with the residual of the last sum.
#include <algorithm>
#include <array>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "popsr/base/error.h"
#include "popsr/exec/block_kernel.h"
#include "popsr/ops/attributes.h"
#include "popsr/ops/loops/blocks.h"
#include "popsr/ops/loops/positions.h"
#include "popsr/ops/registry.h"
#include "popsr/ops/scalar_params.h"

namespace popsr {
namespace {

using kernels::Compute;
using kernels::ElementwiseOp;

constexpr std::size_t kValues = 1, kIndices = 2;
constexpr ScalarOperand kSparseF{{"f"}, 3};

std::size_t axis_of(const Op& op, const Shape& t) {
  return static_cast<std::size_t>(normalize_axis(op.def->name, op.get(kAxis), t.size()));
}

/// Shape of t with `indices` in place of the axis.
Shape taken_shape(const Shape& t, std::size_t axis, const Shape& indices) {
  const auto at = t.begin() + static_cast<std::ptrdiff_t>(axis);
  Shape shape(t.begin(), at);
  shape.insert(shape.end(), indices.begin(), indices.end());
  shape.insert(shape.end(), at + 1, t.end());
  return shape;
}

/// Checks that X has the shape of a gather's result, or that with the indices flattened.
std::vector<OutputDef> infer_sparse(const InferContext& context) {
  check_scalar(context, kSparseF, false);
  const Shape& t = context.type(0).shape;
  const Shape& indices = context.type(kIndices).shape;
  const std::size_t axis = axis_of(context.op, t);
  const Shape expected = taken_shape(t, axis, indices);
  const Shape flat = taken_shape(t, axis, {num_elements(indices)});
  if (context.type(kValues).shape != expected && context.type(kValues).shape != flat) {
    raise<ShapeError>("{}: X does not match, got {} and indices {} for {}, expected a shape of {}",
                      context.name(), describe(context, kValues), describe(context, kIndices),
                      describe(context, 0), to_string(expected));
  }
  return {{context.type(0), context.tensor(0).meta_shape}};
}

/// The positions in the index tensor that name one element of the axis: order[begin..end-1], ascending.
struct TargetRows {
  std::int64_t target = 0;
  std::size_t begin = 0, end = 0;
};

struct RowsByTarget {
  std::vector<std::int64_t> order = {};
  std::vector<TargetRows> all = {};

  void find(const std::int64_t* indices, std::int64_t count) {
    order.resize(static_cast<std::size_t>(count));
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, {}, [indices](std::int64_t i) { return indices[i]; });
    all.clear();
    for (std::size_t i = 0; i < order.size(); ++i) {
      const std::int64_t target = indices[order[i]];
      if (all.empty() || all.back().target != target) all.push_back({target, i, i});
      all.back().end = i + 1;
    }
  }
};

/// t as (before the axis, axis, after the axis).
class SparseAccumulate {
 public:
  explicit SparseAccumulate(const EvalSpec& spec)
      : kernels_(spec.kernels),
        dtype_(spec.outputs[0].dtype),
        value_dtype_(spec.inputs[kValues]->dtype),
        compute_(compute_of(dtype_)),
        add_(spec.kernels.elementwise(ElementwiseOp::kScaledAdd, compute_)),
        stochastic_(spec.stochastic && is_narrow_float(dtype_)),
        factor_(scalar_param(spec, kSparseF, 1.0)),
        factor_dtype_(factor_.input ? spec.inputs[*factor_.input]->dtype : DType::kFloat64),
        copy_(copy_kernel(spec)),
        positions_(spec, kIndices, extent(spec), {}),
        extent_(extent(spec)),
        count_(num_elements(spec.inputs[kIndices]->shape)) {
    const Shape& t = spec.outputs[0].shape;
    const auto at = t.begin() + static_cast<std::ptrdiff_t>(axis_of(spec.op, t));
    before_ = num_elements(Shape(t.begin(), at));
    after_ = num_elements(Shape(at + 1, t.end()));
  }

  void operator()(const BlockRun& run) const {
    const Positions::Loaded positions = positions_.load(run);
    copy_(run);
    RowsByTarget rows_by_target;
    for_each_block(run, [&](const Block& block) {
      if (block.index() == 0 || run.in_stride[kIndices] != 0)
        rows_by_target.find(positions.of(block), count_);
      accumulate(block, rows_by_target);
    });
  }

 private:
  static std::int64_t extent(const EvalSpec& spec) {
    return spec.outputs[0].shape[axis_of(spec.op, spec.outputs[0].shape)];
  }

  double factor(const Block& block) const {
    if (!factor_.input) return factor_.value;
    return read_scalar(kernels_, factor_dtype_, block.in(*factor_.input));
  }

  /// Parts write different elements.
  void accumulate(const Block& block, const RowsByTarget& rows_by_target) const {
    const std::array<double, 2> p = {1.0, factor(block)};
    const auto targets = static_cast<std::int64_t>(rows_by_target.all.size());
    const std::int64_t work = before_ * count_ * after_;
    if (work == 0) return;
    const std::byte* values = block.in(kValues);
    std::vector<std::byte> before;
    if (values == block.out()) {  // t is added to itself, as it was
      before.assign(values, values + work * static_cast<std::int64_t>(size_of(value_dtype_)));
      values = before.data();
    }
    parallel_for(block.run().pool, before_ * targets, 1, work, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t part = begin; part < end; ++part) {
        const TargetRows& target_rows = rows_by_target.all[static_cast<std::size_t>(part % targets)];
        const std::span members =
            std::span(rows_by_target.order).subspan(target_rows.begin, target_rows.end - target_rows.begin);
        row(block, values, part / targets, target_rows.target, members, p.data());
      }
    });
  }

  void row(const Block& block, const std::byte* values, std::int64_t outer, std::int64_t target,
           std::span<const std::int64_t> members, const double* p) const {
    alignas(64) std::array<std::byte, kTile * sizeof(double)> sum, value;
    alignas(64) std::array<float, kTile> rest;
    float* const lo = is_narrow_float(dtype_) ? rest.data() : nullptr;
    const std::int64_t first = (outer * extent_ + target) * after_;
    for (std::int64_t i = 0; i < after_; i += kTile) {
      const std::int64_t n = std::min(kTile, after_ - i);
      std::byte* const to = block.out() + (first + i) * static_cast<std::int64_t>(size_of(dtype_));
      load_tile(kernels_, dtype_, compute_, sum.data(), to, n);
      for (const std::int64_t member : members) {
        const std::int64_t at = (outer * count_ + member) * after_ + i;
        load_tile(kernels_, value_dtype_, compute_, value.data(),
                  values + at * static_cast<std::int64_t>(size_of(value_dtype_)), n);
        const void* const terms[] = {sum.data(), value.data()};
        add_(sum.data(), lo, terms, n, p);
      }
      store_tile(kernels_, compute_, dtype_, to, sum.data(), lo, n, block.key(stochastic_),
                 static_cast<std::uint64_t>(first + i));
    }
  }

  const kernels::KernelTable& kernels_;
  DType dtype_, value_dtype_;
  Compute compute_;
  kernels::ElementwiseFn add_;
  bool stochastic_;
  ScalarParam factor_;
  DType factor_dtype_;
  BlockKernel copy_;
  Positions positions_;
  std::int64_t before_ = 1, extent_, count_, after_ = 1;
};

/// Kernel; with a constant factor 0 it leaves t unchanged, whatever X holds, and ignores the indices.
BlockKernel eval_sparse(const EvalSpec& spec) {
  if (is_zero(spec.op, kSparseF)) return copy_kernel(spec);
  return SparseAccumulate(spec);
}

PartitionId sparse_partition(const RuleContext& context, std::size_t output) {
  if (is_zero(context.op, kSparseF)) return context.table.meet(context.inputs[0], context.exec);
  return meet_of_inputs(context, output);
}

}  // namespace

std::vector<OpDef> sparse_accumulate_ops() {
  return {{.name = "sparse_accumulate_",
           .inputs = {{"t", kNumbers},
                      {"X", kNumbers},
                      {"indices", kIntegers},
                      scalar_input(kSparseF),
                      {.name = "W", .optional = true, .influences = false}},
           .attrs = {optional(kAxis, 0), scalar_attr(kSparseF)},
           .infer = infer_sparse,
           .kernel = {.eval = eval_sparse},
           .replicas = {.partition = sparse_partition,
                        .rule_text = "meet of inputs; partition of t with a constant factor 0"},
           .memory = {.effects = {{.input = 0, .output = 0}}},
           .numerics = kRoundsOnce}};
}

}  // namespace popsr
