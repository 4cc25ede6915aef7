// Sort: several tensors along an axis by the first ones of them; its gradient puts elements back.
//
// Stable: of equal keys the first comes first, in descending order too. NaN is the largest, -0 equals +0.
#include <algorithm>
#include <limits>
#include <numeric>

#include "popsr/base/error.h"
#include "popsr/exec/block_kernel.h"
#include "popsr/ops/attributes.h"
#include "popsr/ops/infer.h"
#include "popsr/ops/loops/row_walk.h"
#include "popsr/ops/loops/tiles.h"
#include "popsr/ops/reduce/ordered_words.h"
#include "popsr/ops/registry.h"

namespace popsr {
namespace {

constexpr Attr<std::int64_t> kNumKeys{"num_keys"};
constexpr Attr<bool> kDescending{"descending"};

/// Calls f with a null pointer to the type of a row's elements; bool is stored in bytes.
template <class F>
auto with_element_type(DType dtype, const F& f) {
  if (dtype == DType::kBool) return f(static_cast<std::uint8_t*>(nullptr));
  return with_compute_type(compute_of(dtype), f);
}

/// -1, 0 or 1: how elements a and b of a row compare.
using CompareFn = int (*)(const std::byte* row, std::int32_t a, std::int32_t b);

template <class T>
int compare(const std::byte* row, std::int32_t a, std::int32_t b) {
  const T x = reinterpret_cast<const T*>(row)[a], y = reinterpret_cast<const T*>(row)[b];
  if (x < y) return -1;
  if (y < x) return 1;
  return static_cast<int>(x != x) - static_cast<int>(y != y);
}

using MoveFn = void (*)(std::byte* to, const std::byte* from, std::span<const std::int32_t> order, bool back);

template <class T>
void move_elements(std::byte* to, const std::byte* from, std::span<const std::int32_t> order, bool back) {
  auto* const out = reinterpret_cast<T*>(to);
  const auto* const in = reinterpret_cast<const T*>(from);
  for (std::size_t i = 0; i < order.size(); ++i) {
    const auto element = static_cast<std::size_t>(order[i]);
    back ? out[element] = in[i] : out[i] = in[element];
  }
}

MoveFn move_of_type(DType dtype) {
  return with_element_type(dtype, []<class T>(T*) -> MoveFn { return move_elements<T>; });
}

/// The order of the elements of one row.
using OrderFn = void (*)(const kernels::KernelTable& kernels, const RowArgs& args,
                         std::span<std::int32_t> order, bool descending);

template <class T>
void order_of_row(const kernels::KernelTable& kernels, const RowArgs& args, std::span<std::int32_t> order,
                  bool descending) {
  const auto n = static_cast<std::int64_t>(order.size());
  auto* const words = reinterpret_cast<OrderedWord<T>*>(args.room);
  WordsOfRow<T>(reinterpret_cast<const T*>(args.in[0]), descending).write(words, n);
  sort_words<T>(kernels, words, words + n, n);
  std::transform(words, words + n, order.begin(), index_of<OrderedWord<T>>);
}

/// The order of the rows of the first `keys` inputs.
class RowOrder {
 public:
  RowOrder(const EvalSpec& spec, std::size_t keys, std::size_t n)
      : kernels_(spec.kernels), descending_(spec.op.get(kDescending)) {
    if (keys == 1) {
      with_element_type(spec.inputs[0]->dtype, [&]<class T>(T*) {
        single_ = order_of_row<T>;
        room_ = ordered_bytes<T>(static_cast<std::int64_t>(n));
      });
    }
    for (std::size_t k = 0; k < keys; ++k) {
      compare_.push_back(
          with_element_type(spec.inputs[k]->dtype, []<class T>(T*) -> CompareFn { return compare<T>; }));
    }
  }
  /// Bytes that find() needs.
  std::int64_t room() const { return room_; }

  void find(const RowArgs& args, std::span<std::int32_t> order) const {
    if (single_ != nullptr) return single_(kernels_, args, order, descending_);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
      for (std::size_t k = 0; k < compare_.size(); ++k) {
        if (const int way = compare_[k](args.in[k], a, b); way != 0) return (way < 0) != descending_;
      }
      return false;
    });
  }

 private:
  const kernels::KernelTable& kernels_;
  OrderFn single_ = nullptr;  ///< Sort by a single key.
  std::int64_t room_ = 0;
  std::vector<CompareFn> compare_ = {};
  bool descending_;
};

std::int64_t sorted_axis(const Op& op, std::size_t rank) {
  return normalize_axis(op.def->name, op.get(kAxis), rank);
}

std::vector<OutputDef> infer_sort(const InferContext& context) {
  const std::size_t count = context.op.inputs.size();
  if (count == 0) raise<GraphError>("{}: no operands, expected at least one", context.name());
  for (std::size_t i = 1; i < count; ++i) require_equal_shapes(context, 0, i);
  const std::int64_t keys = context.get(kNumKeys);
  if (keys < 1 || keys > static_cast<std::int64_t>(count)) {
    raise<AttributeValueError>("{}: num_keys is out of range, got {}, expected 1 to {}", context.name(), keys,
                               count);
  }
  const Shape& shape = context.type(0).shape;
  const auto axis = static_cast<std::size_t>(sorted_axis(context.op, shape.size()));
  if (shape[axis] > std::numeric_limits<std::int32_t>::max()) {
    raise<ShapeError>("{}: too many elements to number with int32, got {}, expected an extent < 2^31",
                      context.name(), describe(context, 0));
  }
  std::vector<OutputDef> outputs;
  for (std::size_t i = 0; i < count; ++i) outputs.push_back({context.type(i), {}});
  return outputs;
}

BlockKernel eval_sort(const EvalSpec& spec) {
  const Shape& shape = spec.inputs[0]->shape;
  const std::int64_t axis = sorted_axis(spec.op, shape.size());
  const auto n = static_cast<std::size_t>(shape[static_cast<std::size_t>(axis)]);
  std::vector<MoveFn> moves;
  for (const auto& input : spec.inputs) moves.push_back(move_of_type(input->dtype));
  RowOrder order(spec, static_cast<std::size_t>(spec.op.get(kNumKeys)), n);
  const std::int64_t room = order.room();
  return row_kernel(
      spec, {axis},
      [order = std::move(order), moves = std::move(moves), n](const RowArgs& args) {
        const std::span<std::int32_t> found = args.order.first(n);
        order.find(args, found);
        for (std::size_t i = 0; i < moves.size(); ++i) moves[i](args.out[i], args.in[i], found, false);
      },
      room);
}

/// Input: the keys, then the gradient of an output.
BlockKernel eval_sort_grad(const EvalSpec& spec) {
  const Shape& shape = spec.outputs[0].shape;
  const std::int64_t axis = sorted_axis(spec.op, shape.size());
  const auto n = static_cast<std::size_t>(shape[static_cast<std::size_t>(axis)]);
  const std::size_t keys = spec.inputs.size() - 1;
  RowOrder order(spec, keys, n);
  const std::int64_t room = order.room();
  return row_kernel(
      spec, {axis},
      [order = std::move(order), move = move_of_type(spec.outputs[0].dtype), keys, n](const RowArgs& args) {
        const std::span<std::int32_t> found = args.order.first(n);
        order.find(args, found);
        move(args.out[0], args.in[keys], found, true);
      },
      room);
}

GradValue sort_grad(Grad& g, std::size_t i) {
  if (!g.dy(i)) return {};
  std::vector<GradValue> inputs;
  for (std::int64_t k = 0; k < g.get(kNumKeys); ++k) inputs.push_back(g.x(static_cast<std::size_t>(k)));
  inputs.push_back(g.dy(i));
  return g.call("sort_grad", std::move(inputs), {g.same(kAxis), g.same(kDescending)});
}

std::vector<OutputDef> infer_sort_grad(const InferContext& context) {
  return {{context.type(context.op.inputs.size() - 1), {}}};
}

}  // namespace

std::vector<OpDef> sort_ops() {
  const InputDef operands{.name = "ts", .dtypes = kNumbersAndBool, .variadic = true};
  return {
      {.name = "sort",
       .inputs = {operands},
       .attrs = {optional(kAxis, -1), optional(kNumKeys, 1), optional(kDescending, false)},
       .infer = infer_sort,
       .kernel = {.eval = eval_sort},
       .grad = {.each = sort_grad}},
      {.name = "sort_grad",
       .inputs = {operands},
       .attrs = {required(kAxis), required(kDescending)},
       .infer = infer_sort_grad,
       .kernel = {.eval = eval_sort_grad},
       .program = {.internal = true}},
  };
}

}  // namespace popsr
