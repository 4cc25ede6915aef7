// attention: softmax(scale * q k^T + mask) v for some queries at a time, and its gradients.
#include <algorithm>
#include <array>
#include <vector>

#include "popsr/base/error.h"
#include "popsr/ops/attributes.h"
#include "popsr/ops/infer.h"
#include "popsr/ops/linalg/matmul_kernel.h"
#include "popsr/ops/nn/attention_tiles.h"
#include "popsr/ops/registry.h"

namespace popsr {
namespace {

using namespace attention;  // NOLINT(google-build-using-namespace)

/// Results of tiles of queries of one thread; keys and values of an item are widened and transposed once.
template <class T>
class Forward {
 public:
  explicit Forward(const Attention<T>& of) : of_(of) {
    share_scratch<T>({{&keys_, of.transposed_elements(of.size)},
                      {&values_, of.widened_elements(of.keys * of.value_size)},
                      {&room_, of.widened_elements(kChunk * of.size)},
                      {&q_, kQueries * of.size},
                      {&weights_, kQueries * of.row()},
                      {&y_, kQueries * of.value_size},
                      {&line_, of.keys}},
                     &products_, of.product_bytes());
  }

  void operator()(const Block& block, std::int64_t begin, std::int64_t end) {
    const std::int64_t tiles = of_.tiles(), width = of_.value_size;
    const T* v = nullptr;
    for (std::int64_t unit = begin; unit < end; ++unit) {
      const std::int64_t item = unit / tiles, tile = unit % tiles, n = of_.rows(tile);
      if (unit == begin || tile == 0) {
        of_.transpose(block, kK, item, of_.size, room_, keys_);
        v = of_.widened(block, kV, item * of_.keys * width, of_.keys * width, values_);
      }
      const std::int64_t first = item * of_.queries + tile * kQueries;
      of_.scaled_queries(block, first, n, q_);
      of_.weights(block, item, tile, q_, keys_, weights_, line_, products_);
      of_.over_keys(n, of_.seen_in(tile), width, weights_, v, y_, products_);
      of_.store(block, 0, first * width, y_, n * width);
    }
  }

 private:
  const Attention<T>& of_;
  T *keys_, *values_, *room_, *q_, *weights_, *y_, *line_, *products_;
};

/// Gradients of items of one thread.
template <class T>
class Backward {
 public:
  explicit Backward(const Attention<T>& of) : of_(of) {
    const std::int64_t size = of.size, width = of.value_size;
    share_scratch<T>({{&keys_, of.transposed_elements(size)},
                      {&values_, of.transposed_elements(width)},
                      {&k_, of.widened_elements(of.keys * size)},
                      {&room_, of.widened_elements(kChunk * std::max(size, width))},
                      {&q_, kQueries * size},
                      {&dy_, of.widened_elements(kQueries * width)},
                      {&weights_, kQueries * of.row()},
                      {&scores_, kQueries * of.row()},
                      {&dq_, kQueries * size},
                      {&dk_, of.keys * size},
                      {&dv_, of.keys * width},
                      {&line_, of.keys}},
                     &products_, of.product_bytes());
  }

  void operator()(const Block& block, std::int64_t begin, std::int64_t end) {
    const std::int64_t keys = of_.keys, size = of_.size, width = of_.value_size;
    for (std::int64_t item = begin; item < end; ++item) {
      of_.transpose(block, kK, item, size, room_, keys_);
      of_.transpose(block, kV, item, width, room_, values_);
      const T* const k = of_.widened(block, kK, item * keys * size, keys * size, k_);
      std::fill(dk_, dk_ + keys * size, T{0});
      std::fill(dv_, dv_ + keys * width, T{0});
      for (std::int64_t tile = 0; tile < of_.tiles(); ++tile) add(block, item, tile, k);
      of_.store(block, kK, item * keys * size, dk_, keys * size);
      of_.store(block, kV, item * keys * width, dv_, keys * width);
    }
  }

 private:
  /// Gradients of the queries of a tile, and their parts of those of keys and values.
  void add(const Block& block, std::int64_t item, std::int64_t tile, const T* k) {
    const std::int64_t n = of_.rows(tile), seen = of_.seen_in(tile), size = of_.size, width = of_.value_size;
    const std::int64_t first = item * of_.queries + tile * kQueries;
    of_.scaled_queries(block, first, n, q_);
    const T* const dy = of_.widened(block, kDy, first * width, n * width, dy_);
    of_.weights(block, item, tile, q_, keys_, weights_, line_, products_);
    of_.over_queries(n, seen, width, weights_, dy, dv_, products_);
    of_.by_keys(n, seen, width, dy, values_, scores_, products_);
    of_.score_gradients(n, seen, weights_, scores_, line_);
    of_.over_keys(n, seen, size, scores_, k, dq_, products_);
    of_.scale(dq_, n * size);
    of_.store(block, kQ, first * size, dq_, n * size);
    of_.over_queries(n, seen, size, scores_, q_, dk_, products_);
  }

  const Attention<T>& of_;
  T *keys_, *values_;  ///< Transposed.
  T *k_, *room_, *q_, *dy_, *weights_, *scores_, *dq_, *dk_, *dv_, *line_, *products_;
};

template <class T>
BlockKernel forward_kernel(const EvalSpec& spec) {
  return [of = Attention<T>(spec, kMask)](const BlockRun& run) {
    const std::int64_t units = of.items * of.tiles();
    if (units * of.value_size == 0) return;
    const std::int64_t work = of.items * of.queries * of.keys * (of.size + of.value_size);
    for_each_range_with(run, {.units = units, .work = work}, [&of] { return Forward<T>(of); });
  };
}
template <class T>
BlockKernel backward_kernel(const EvalSpec& spec) {
  return [of = Attention<T>(spec, kGradMask)](const BlockRun& run) {
    if (of.items == 0) return;
    const std::int64_t work = of.items * of.queries * of.keys * 3 * (of.size + of.value_size);
    for_each_range_with(run, {.units = of.items, .work = work}, [&of] { return Backward<T>(of); });
  };
}
BlockKernel eval_attention(const EvalSpec& spec) {
  return spec.inputs[kQ]->dtype == DType::kFloat64 ? forward_kernel<double>(spec)
                                                   : forward_kernel<float>(spec);
}
BlockKernel eval_attention_grad(const EvalSpec& spec) {
  return spec.inputs[kQ]->dtype == DType::kFloat64 ? backward_kernel<double>(spec)
                                                   : backward_kernel<float>(spec);
}

// Types

/// ShapeError unless queries, keys and values fit; the shape of the scores.
Shape scores_shape(const InferContext& context) {
  const Shape &q = context.type(kQ).shape, &k = context.type(kK).shape, &v = context.type(kV).shape;
  const auto batch = [](const Shape& shape) { return Shape(shape.begin(), shape.end() - 2); };
  if (q.size() < 2 || k.size() != q.size() || v.size() != q.size() || batch(q) != batch(k) ||
      batch(q) != batch(v)) {
    raise<ShapeError>(
        "{}: operands have other batches, got {}, {} and {}, expected equal axes before the last two",
        context.name(), describe(context, kQ), describe(context, kK), describe(context, kV));
  }
  if (q.back() != k.back()) {
    raise<ShapeError>("{}: sizes of queries and keys differ, got {} and {}, expected equal last axes",
                      context.name(), describe(context, kQ), describe(context, kK));
  }
  if (k[k.size() - 2] != v[v.size() - 2]) {
    raise<ShapeError>(
        "{}: numbers of keys and values differ, got {} and {}, expected equal axes before the last",
        context.name(), describe(context, kK), describe(context, kV));
  }
  Shape scores = q;
  scores.back() = k[k.size() - 2];
  return scores;
}

void check_mask(const InferContext& context, std::size_t mask, const Shape& scores) {
  if (!context.has(mask)) return;
  if (context.type(mask).dtype != DType::kBool) require_equal_dtypes(context, kQ, mask);
  const Shape& shape = context.type(mask).shape;
  const bool fits = shape.size() <= scores.size() &&
                    std::equal(shape.rbegin(), shape.rend(), scores.rbegin(),
                               [](std::int64_t own, std::int64_t whole) { return own == whole || own == 1; });
  if (!fits) {
    raise<ShapeError>("{}: mask does not fit, got {}, expected a shape that broadcasts to {}", context.name(),
                      describe(context, mask), to_string(scores));
  }
}

std::vector<OutputDef> infer_attention(const InferContext& context) {
  require_equal_dtypes(context, kQ, kK);
  require_equal_dtypes(context, kQ, kV);
  check_mask(context, kMask, scores_shape(context));
  TensorType type = context.type(kQ);
  type.shape.back() = context.type(kV).shape.back();
  return {{type, {}}};
}

std::vector<OutputDef> infer_attention_grad(const InferContext& context) {
  check_mask(context, kGradMask, scores_shape(context));
  return {{context.type(kQ), {}}, {context.type(kK), {}}, {context.type(kV), {}}};
}

/// The gradient of all scores: no op leaves them out for a mask that is trained.
GradValue mask_gradient(Grad& g) {
  if (g.get(kIsCausal)) {
    raise<GraphError>(
        "autodiff: the mask of an attention that is causal has no gradient, got a mask that needs "
        "one, expected is_causal=False and a mask that hides later keys");
  }
  const auto axis = static_cast<std::int64_t>(g.in_type(kQ).shape.size()) - 1;
  const auto scores = [&](const GradValue& lhs, const GradValue& rhs) {
    return g.call("matmul", {lhs, rhs}, {kTransposeRhs(true)});
  };
  const GradValue weights =
      g.call("softmax", {g.scale(scores(g.x(kQ), g.x(kK)), g.get(kScoreScale)) + g.x(kMask)}, {kAxis(axis)});
  return g.sum_to_input(kMask, g.call("softmax_grad", {weights, scores(g.dy(), g.x(kV))}, {kAxis(axis)}));
}

void attention_grad(Grad& g) {
  if (!g.dy()) return;
  std::vector<GradValue> inputs = {g.x(kQ), g.x(kK), g.x(kV), g.dy()};
  if (g.x(kMask)) inputs.push_back(g.x(kMask));
  const std::vector<GradValue> gradients =
      g.call_all("attention_grad", inputs, {g.same(kIsCausal), g.same(kScoreScale)});
  for (const std::size_t i : {kQ, kK, kV}) g.set(i, gradients[i]);
  if (g.x(kMask) && g.differentiates(kMask)) g.set(kMask, mask_gradient(g));
}

/// Multiplications and additions of both products.
std::vector<FlopTerm> attention_flops(const Ir& ir, const Op& op) {
  const AttentionShape of(ir.tensor(op.inputs[kQ]).type.shape, ir.tensor(op.inputs[kK]).type.shape,
                          ir.tensor(op.inputs[kV]).type.shape);
  return {{of.items * of.queries * of.keys, 2 * (of.size + of.value_size) + 5}};
}

}  // namespace

std::vector<OpDef> attention_ops() {
  const std::vector<AttrDef> attrs = {optional(kIsCausal, false), required(kScoreScale)};
  const InputDef q{"q", kFloating}, k{"k", kFloating}, v{"v", kFloating}, dy{"dy", kFloating};
  const InputDef mask{.name = "mask", .dtypes = kFloating | DTypeSet{DType::kBool}, .optional = true};
  return {
      {.name = "attention",
       .inputs = {q, k, v, mask},
       .attrs = attrs,
       .infer = infer_attention,
       .kernel = {.eval = eval_attention, .flops = attention_flops},
       .grad = {.rule = attention_grad},
       .numerics = kRoundsOnce},
      {.name = "attention_grad",
       .inputs = {q, k, v, dy, mask},
       .attrs = attrs,
       .infer = infer_attention_grad,
       .kernel = {.eval = eval_attention_grad},
       .grad = {.missing = NoGrad::kThrows},
       .numerics = kRoundsOnce,
       .program = {.internal = true}},
  };
}

}  // namespace popsr
