// Negative log likelihood of class labels: nll_loss, its gradient, and the loss together with the gradient of
// the softmax before it.
//
// Row i with label l: loss_i = -log(max(p[l], eps)), or -p[l] when p already holds log probabilities. A label
// equal to ignore_index contributes nothing; any other label outside [0, classes) counts as a class of
// probability 0. "mean" divides by the number of rows that are not ignored, at least 1.
#include <algorithm>
#include <cstring>

#include "popsr/base/error.h"
#include "popsr/base/threads/thread_pool.h"
#include "popsr/exec/block_kernel.h"
#include "popsr/exec/invalid_labels.h"
#include "popsr/ops/infer.h"
#include "popsr/ops/loops/blocks.h"
#include "popsr/ops/loops/elementwise_walk.h"
#include "popsr/ops/registry.h"

namespace popsr {
namespace {

using kernels::Compute;
using kernels::ElementwiseOp;
using kernels::KernelTable;
using kernels::NoiseKey;

constexpr std::size_t kProbs = 0, kLabels = 1, kLossGrad = 2;

enum class LossReduction : std::uint8_t { kMean, kSum, kNone };
constexpr Choice<LossReduction> kReductions[] = {
    {"mean", LossReduction::kMean}, {"sum", LossReduction::kSum}, {"none", LossReduction::kNone}};
constexpr ChoiceAttr<LossReduction> kReduction{"reduction", kReductions};
constexpr Attr<std::int64_t> kIgnoreIndex{"ignore_index"};
constexpr Attr<bool> kLogProb{"log_prob"};

enum class Target : std::uint8_t { kClass, kIgnored, kOutside };

std::int64_t floor_to_tile(std::int64_t n) { return std::min(n, kTile); }

/// Constants of the plan, and access to rows.
struct Loss {
  const KernelTable& table;
  DType dtype, label_dtype;
  Compute compute;
  std::int64_t rows, classes;
  LossReduction reduction;
  std::optional<std::int64_t> ignore_index;
  bool log_prob;
  double eps;
  bool stochastic;

  void elementwise(ElementwiseOp op, void* out, const void* a, const void* b, std::int64_t n) const {
    const void* in[] = {a, b};
    table.elementwise(op, compute)(out, nullptr, in, n, nullptr);
  }
  Target target(std::int64_t label) const {
    if (ignore_index && label == *ignore_index) return Target::kIgnored;
    return label >= 0 && label < classes ? Target::kClass : Target::kOutside;
  }
  std::int64_t element_size() const { return static_cast<std::int64_t>(size_of(dtype)); }
};

Loss make_loss(const EvalSpec& spec, bool log_prob) {
  const TensorType& probs = *spec.inputs[0];
  const DType label_dtype = spec.inputs[1]->dtype;
  const bool is_half = probs.dtype == DType::kFloat16;
  return {spec.kernels,
          probs.dtype,
          label_dtype,
          compute_of(probs.dtype),
          num_elements(spec.inputs[1]->shape),
          probs.shape.back(),
          spec.op.get(kReduction),
          spec.op.find(kIgnoreIndex),
          log_prob,
          is_half ? 6.104e-5 : 1e-7,
          spec.stochastic && is_narrow_float(probs.dtype)};
}

/// Labels [first, first + n) as 64-bit integers; n <= kTile.
void load_labels(const Loss& loss, const std::byte* labels, std::int64_t first, std::int64_t n,
                 std::int64_t* out) {
  const std::byte* src = labels + first * static_cast<std::int64_t>(size_of(loss.label_dtype));
  load_tile(loss.table, loss.label_dtype, Compute::kI64, out, src, n);
}

/// Calls visit(row, label) for all rows.
template <class Visit>
void for_each_label(const Loss& loss, const std::byte* labels, const Visit& visit) {
  std::int64_t tile[kTile];
  for (std::int64_t first = 0; first < loss.rows; first += kTile) {
    const std::int64_t n = floor_to_tile(loss.rows - first);
    load_labels(loss, labels, first, n, tile);
    for (std::int64_t i = 0; i < n; ++i) visit(first + i, tile[i]);
  }
}

/// Divisor of "mean", 1 otherwise.
std::int64_t count_rows(const Loss& loss, const std::byte* labels) {
  if (loss.reduction != LossReduction::kMean) return 1;
  std::int64_t count = loss.rows;
  if (loss.ignore_index) {
    for_each_label(loss, labels,
                   [&](std::int64_t, std::int64_t label) { count -= label == *loss.ignore_index; });
  }
  return std::max<std::int64_t>(count, 1);
}

// The loss

/// The first row whose label is outside the classes; none when it is negative.
struct Outside {
  std::int64_t row = -1;
  std::int64_t label = 0;
};

/// values[i] = the loss of row i, in the compute type T.
template <class T>
Outside row_losses(const Loss& loss, const std::byte* probs, const std::byte* labels, T* values) {
  const T eps = static_cast<T>(loss.eps);
  Outside outside;
  for_each_label(loss, labels, [&](std::int64_t row, std::int64_t label) {
    values[row] = loss.log_prob ? T{0} : eps;
    const Target target = loss.target(label);
    if (target == Target::kOutside && outside.row < 0) outside = {row, label};
    if (target != Target::kClass) return;
    const std::byte* src = probs + (row * loss.classes + label) * loss.element_size();
    T p;
    load_tile(loss.table, loss.dtype, loss.compute, &p, src, 1);
    values[row] = loss.log_prob || !(p < eps) ? p : eps;
  });
  T floor = eps;
  loss.elementwise(ElementwiseOp::kLog, &floor, &floor, nullptr, 1);
  if (!loss.log_prob) loss.elementwise(ElementwiseOp::kLog, values, values, nullptr, loss.rows);
  for_each_label(loss, labels, [&](std::int64_t row, std::int64_t label) {
    const Target target = loss.target(label);
    if (target == Target::kOutside) values[row] = floor;
    values[row] = target == Target::kIgnored ? T{0} : -values[row];
  });
  return outside;
}

/// Loss of one block: reduced in the compute type, rounded once.
template <class T>
Outside loss_block(const Loss& loss, const std::byte* probs, const std::byte* labels, std::byte* out,
                   const NoiseKey* key) {
  T* values = static_cast<T*>(thread_scratch(static_cast<std::size_t>(loss.rows) * sizeof(T)));
  const Outside outside = row_losses(loss, probs, labels, values);
  if (loss.reduction == LossReduction::kNone) {
    store_tile(loss.table, loss.compute, loss.dtype, out, values, nullptr, loss.rows, key, 0);
    return outside;
  }
  T hi = 0;
  T lo = 0;
  const bool has_lo = is_narrow_float(loss.dtype) && loss.reduction == LossReduction::kSum;
  const auto sum =
      loss.table
          .reduce[static_cast<std::size_t>(kernels::Reduce::kSum)][static_cast<std::size_t>(loss.compute)];
  sum(&hi, has_lo ? &lo : nullptr, values, 1, loss.rows, loss.rows);
  const T count = static_cast<T>(count_rows(loss, labels));
  if (loss.reduction == LossReduction::kMean) loss.elementwise(ElementwiseOp::kDiv, &hi, &hi, &count, 1);
  const float residual = static_cast<float>(lo);
  store_tile(loss.table, loss.compute, loss.dtype, out, &hi, has_lo ? &residual : nullptr, 1, key, 0);
  return outside;
}

void loss_block(const Loss& loss, const Block& block) {
  const std::byte *probs = block.in(0), *labels = block.in(1);
  std::byte* out = block.out();
  const NoiseKey* key = block.key(loss.stochastic);
  const Outside outside = loss.compute == Compute::kF64 ? loss_block<double>(loss, probs, labels, out, key)
                                                        : loss_block<float>(loss, probs, labels, out, key);
  InvalidLabels* const invalid_labels = block.run().invalid_labels;
  if (outside.row >= 0 && invalid_labels != nullptr) {
    invalid_labels->add(block.index(), outside.row, outside.label, loss.classes);
  }
}

void loss_blocks(const Loss& loss, const BlockRun& run) {
  share_blocks(run, loss.rows * 8, [&](const Block& block) { loss_block(loss, block); });
}

BlockKernel nll_loss(const EvalSpec& spec) {
  return [loss = make_loss(spec, spec.op.get(kLogProb))](const BlockRun& run) { loss_blocks(loss, run); };
}

// Gradients

/// The incoming gradient: one number, or one per row.
struct Incoming {
  DType dtype = DType::kFloat32;
  std::size_t input = 0;
  bool per_row = false;
};

Incoming incoming(const EvalSpec& spec, std::size_t input) {
  const TensorType& type = *spec.inputs[input];
  const bool per_row = num_elements(type.shape) != 1 && spec.op.get(kReduction) == LossReduction::kNone;
  return {type.dtype, input, per_row};
}

/// One block of a gradient with respect to something of the shape of probs.
struct GradBlock {
  const Loss& loss;
  Incoming incoming;
  const std::byte* probs;
  const std::byte* labels;
  const std::byte* gradient;
  std::byte* out;
  const NoiseKey* key;
  std::int64_t count;  ///< Divisor of "mean".

  /// Incoming gradient of a row, divided for "mean".
  template <class T>
  T scale(std::int64_t row) const {
    const std::int64_t i = incoming.per_row ? row : 0;
    T value;
    load_tile(loss.table, incoming.dtype, loss.compute, &value,
              gradient + i * static_cast<std::int64_t>(size_of(incoming.dtype)), 1);
    return value / static_cast<T>(count);
  }
};

GradBlock grad_block(const Loss& loss, const Block& block, Incoming incoming, std::size_t output) {
  return {loss,
          incoming,
          block.in(0),
          block.in(1),
          block.in(incoming.input),
          block.out(output),
          block.key(loss.stochastic, output),
          count_rows(loss, block.in(1))};
}

/// d[row, label] = -dloss / max(p, eps), all else 0.
template <class T>
void nll_grad_block(const GradBlock& block) {
  const Loss& loss = block.loss;
  const std::int64_t size = loss.element_size();
  const T eps = static_cast<T>(loss.eps);
  std::fill_n(block.out, loss.rows * loss.classes * size, std::byte{0});
  for_each_label(loss, block.labels, [&](std::int64_t row, std::int64_t label) {
    if (loss.target(label) != Target::kClass) return;
    const std::int64_t i = row * loss.classes + label;
    T value = -block.scale<T>(row);
    if (!loss.log_prob) {
      T p;
      load_tile(loss.table, loss.dtype, loss.compute, &p, block.probs + i * size, 1);
      value /= p < eps ? eps : p;
    }
    store_tile(loss.table, loss.compute, loss.dtype, block.out + i * size, &value, nullptr, 1, block.key,
               static_cast<std::uint64_t>(i));
  });
}

BlockKernel nll_loss_grad(const EvalSpec& spec) {
  const Loss loss = make_loss(spec, spec.op.get(kLogProb));
  return [loss, dloss = incoming(spec, 2)](const BlockRun& run) {
    share_blocks(run, loss.rows * loss.classes, [&](const Block& block) {
      const GradBlock gradient = grad_block(loss, block, dloss, 0);
      loss.compute == Compute::kF64 ? nll_grad_block<double>(gradient) : nll_grad_block<float>(gradient);
    });
  };
}

/// Elements [first, first + n) of (p - onehot) * scale: values holds p, scales one number per element.
template <class T>
void softmax_grad_tile(const GradBlock& block, std::int64_t first, std::int64_t n) {
  const Loss& loss = block.loss;
  alignas(64) T values[kTile];
  alignas(64) T scales[kTile];
  load_tile(loss.table, loss.dtype, loss.compute, values, block.probs + first * loss.element_size(), n);
  const std::int64_t last_row = (first + n - 1) / loss.classes;
  for (std::int64_t row = first / loss.classes; row <= last_row; ++row) {
    std::int64_t label = 0;
    load_labels(loss, block.labels, row, 1, &label);
    const Target target = loss.target(label);
    const std::int64_t begin = std::max(row * loss.classes, first) - first;
    const std::int64_t end = std::min((row + 1) * loss.classes, first + n) - first;
    const std::int64_t hit = row * loss.classes + label - first;
    if (target == Target::kClass && hit >= begin && hit < end) values[hit] -= T{1};
    if (target == Target::kIgnored) std::fill(values + begin, values + end, T{0});
    std::fill(scales + begin, scales + end, target == Target::kIgnored ? T{0} : block.scale<T>(row));
  }
  loss.elementwise(ElementwiseOp::kMul, values, values, scales, n);
  store_tile(loss.table, loss.compute, loss.dtype, block.out + first * loss.element_size(), values, nullptr,
             n, block.key, static_cast<std::uint64_t>(first));
}

void softmax_grad_block(const GradBlock& block, ThreadPool& pool) {
  const std::int64_t elements = block.loss.rows * block.loss.classes;
  parallel_for(pool, elements, kTile, elements, [&](std::int64_t from, std::int64_t to) {
    for (std::int64_t first = from; first < to; first += kTile) {
      const std::int64_t n = floor_to_tile(to - first);
      block.loss.compute == Compute::kF64 ? softmax_grad_tile<double>(block, first, n)
                                          : softmax_grad_tile<float>(block, first, n);
    }
  });
}

BlockKernel nll_loss_with_softmax_grad(const EvalSpec& spec) {
  return [loss = make_loss(spec, false), loss_grad = incoming(spec, 2)](const BlockRun& run) {
    loss_blocks(loss, run);
    for_each_block(run, [&](const Block& block) {
      softmax_grad_block(grad_block(loss, block, loss_grad, 1), run.pool);
    });
  };
}

// Definitions

OutputDef loss_output(const InferContext& context) {
  const bool reduced = context.get(kReduction) != LossReduction::kNone;
  return {{context.type(0).dtype, reduced ? Shape{} : context.type(1).shape}};
}

/// ShapeError unless the labels have the shape of the rows of probs.
void require_label_shape(const InferContext& context) {
  const TensorType& probs = context.type(kProbs);
  const TensorType& labels = context.type(kLabels);
  if (probs.shape.empty() ||
      !std::equal(labels.shape.begin(), labels.shape.end(), probs.shape.begin(), probs.shape.end() - 1)) {
    raise<ShapeError>(
        "{}: labels do not match, got probs {} and labels {}, expected labels.shape == probs.shape[:-1]",
        context.name(), describe(context, kProbs), describe(context, kLabels));
  }
}

/// ShapeError unless there is a label for each row of probs.
void require_label_count(const InferContext& context) {
  const Shape& probs = context.type(kProbs).shape;
  const std::int64_t labels = num_elements(context.type(kLabels).shape);
  if (probs.empty() || labels != num_elements(Shape(probs.begin(), probs.end() - 1))) {
    raise<ShapeError>(
        "{}: labels do not match, got probs {} and labels {}, expected a label for each row of probs",
        context.name(), describe(context, kProbs), describe(context, kLabels));
  }
}

std::vector<OutputDef> infer_nll_loss(const InferContext& context) {
  require_label_shape(context);
  return {loss_output(context)};
}

std::vector<OutputDef> infer_nll_loss_grad(const InferContext& context) {
  require_label_shape(context);
  return {{context.type(0)}};
}

std::vector<OutputDef> infer_with_softmax_grad(const InferContext& context) {
  require_label_count(context);
  const OutputDef loss = loss_output(context);
  if (num_elements(context.type(kLossGrad).shape) != 1 && context.type(kLossGrad).shape != loss.type.shape) {
    raise<ShapeError>("{}: loss_grad does not match the loss, got {}, expected one element or {}",
                      context.name(), describe(context, kLossGrad), to_string(loss.type.shape));
  }
  return {loss, {context.type(0)}};
}

/// The loss itself does not depend on loss_grad.
PartitionId with_softmax_grad_rule(const RuleContext& context, std::size_t output) {
  PartitionTable& table = context.table;
  const PartitionId loss =
      table.meet(table.meet(context.inputs[kProbs], context.inputs[kLabels]), context.exec);
  return output == 0 ? loss : table.meet(loss, context.inputs[kLossGrad]);
}

GradValue probs_grad(Grad& g) {
  return g.call("nll_loss_grad", {g.x(kProbs), g.x(kLabels), g.dy()},
                {g.same(kIgnoreIndex), g.same(kReduction), g.same(kLogProb)});
}

AttrDef reduction() { return optional(kReduction, LossReduction::kMean); }

}  // namespace

std::vector<OpDef> losses_ops() {
  return {
      {.name = "nll_loss",
       .inputs = {{"probs", kFloating}, {"labels", kIntegers}},
       .attrs = {optional(kIgnoreIndex), reduction(), optional(kLogProb, false)},
       .infer = infer_nll_loss,
       .kernel = {.eval = nll_loss},
       .grad = per_input({probs_grad}),
       .numerics = {.rounding = Rounding::kOnce, .labels = kLabels}},
      {.name = "nll_loss_grad",
       .inputs = {{"probs", kFloating}, {"labels", kIntegers}, {"dloss", kFloating}},
       .attrs = {optional(kIgnoreIndex), reduction(), optional(kLogProb, false)},
       .infer = infer_nll_loss_grad,
       .kernel = {.eval = nll_loss_grad},
       .grad = {.missing = NoGrad::kThrows},
       .numerics = kRoundsOnce,
       .program = {.internal = true}},
      {.name = "nll_loss_with_softmax_grad",
       .inputs = {{"probs", kFloating}, {"labels", kIntegers}, {"loss_grad", kNumbers}},
       .attrs = {optional(kIgnoreIndex), reduction()},
       .infer = infer_with_softmax_grad,
       .kernel = {.eval = nll_loss_with_softmax_grad},
       .replicas = {.partition = with_softmax_grad_rule,
                    .rule_text = "meet of inputs; of the loss without loss_grad"},
       .numerics = {.rounding = Rounding::kOnce, .labels = kLabels}},
  };
}

}  // namespace popsr
