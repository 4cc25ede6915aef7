// sum, mean, max over any axes.
//
// Order, part of the contract: axes of extent 1 do not count and adjacent reduced axes are one. When the
// innermost axis is reduced, each of its rows folds through 16 lanes and a fixed tree (kernels::ReduceFn).
// What is left, rows' results or elements, folds over the other reduced axes in ascending C order: acc =
// first, acc = acc + next, ... Narrow floats and f32 accumulate in float, f64 in double, integers wrap in
// their own type. A narrow sum is rounded once, with the remainder of the last addition; mean = sum / count,
// integers truncate.
#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <numeric>
#include <optional>
#include <vector>

#include "popsr/base/error.h"
#include "popsr/ops/infer.h"
#include "popsr/ops/registry.h"
#include "popsr/ops/tiles.h"

namespace popsr {

namespace {

using kernels::Compute;
using Ints = std::vector<std::int64_t>;

enum class Fold { kSum, kMean, kMax };

constexpr std::size_t kMaxDims = 16;
/// Threads get whole multiples of this many outputs.
constexpr std::int64_t kGrain = 16;

/// Reduced axes in ascending order; all without the attribute.
Ints reduced_axes(const Op& op, std::size_t rank) {
  const auto axes = op.optional_attr<Ints>("axis");
  if (axes) return normalize_axes(op.def->name, *axes, rank);
  Ints all(rank);
  std::iota(all.begin(), all.end(), 0);
  return all;
}

Shape reduced_shape(const Shape& shape, const Ints& axes, bool keepdims) {
  Shape result;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    const bool reduced = std::ranges::binary_search(axes, static_cast<std::int64_t>(d));
    if (!reduced) result.push_back(shape[d]);
    if (reduced && keepdims) result.push_back(1);
  }
  return result;
}

std::int64_t reduced_count(const Shape& shape, const Ints& axes) {
  std::int64_t count = 1;
  for (const std::int64_t axis : axes) count *= shape[static_cast<std::size_t>(axis)];
  return count;
}

/// A loop nest over the input, innermost dimension first; strides in elements.
struct Dims {
  std::size_t rank = 0;
  std::array<std::int64_t, kMaxDims> extent = {};
  std::array<std::int64_t, kMaxDims> stride = {};

  void add_outer(std::int64_t size, std::int64_t step) {
    if (rank > 0 && step == extent[rank - 1] * stride[rank - 1]) {
      extent[rank - 1] *= size;
      return;
    }
    POPSR_CHECK(rank < kMaxDims);
    extent[rank] = size;
    stride[rank++] = step;
  }
  std::int64_t count() const {
    return std::accumulate(extent.begin(), extent.begin() + static_cast<std::ptrdiff_t>(rank),
                           std::int64_t{1}, std::multiplies<>());
  }
  /// Offset of element `flat` in C order.
  std::int64_t offset(std::int64_t flat) const {
    std::int64_t sum = 0;
    for (std::size_t d = 0; d < rank; ++d) {
      sum += flat % extent[d] * stride[d];
      flat /= extent[d];
    }
    return sum;
  }
};

class Reduction {
 public:
  Reduction(const EvalSpec& spec, Fold fold);
  void operator()(const BlockRun& run) const;

 private:
  struct Tiles {
    std::byte *acc, *item, *lo, *rows;
  };
  /// `hi`: where the sum is; `lo`: its remainder or null.
  struct Partial {
    const void* hi;
    const float* lo;
  };

  bool merge_blocks(const BlockRun& run, Dims& kept) const;
  void range(const Dims& kept, const std::byte* in, std::byte* out, std::int64_t begin, std::int64_t end,
             const kernels::NoiseKey* key) const;
  Partial fold(const Tiles& tiles, const std::byte* in, void* acc, std::int64_t n, std::int64_t step) const;
  const void* item(const Tiles& tiles, const std::byte* in, void* to, void* lo, std::int64_t n,
                   std::int64_t step) const;
  void reduce_rows(const Tiles& tiles, const std::byte* in, void* to, void* lo, std::int64_t n,
                   std::int64_t step) const;
  void divide(void* acc, std::int64_t n) const;

  const kernels::KernelTable& kernels_;
  DType dtype_;
  Compute compute_;
  Fold fold_;
  bool narrow_;
  bool stochastic_;
  bool rows_ = false;        ///< Is the innermost axis reduced?
  std::int64_t length_ = 1;  ///< Its extent then.
  std::int64_t size_;
  std::int64_t acc_size_;
  std::int64_t outputs_;
  std::int64_t inputs_;
  std::int64_t count_;
  Dims kept_, reduced_;  ///< `reduced_` without the innermost axis.
  kernels::EwFn combine_;
  kernels::ReduceFn reduce_;
};

Reduction::Reduction(const EvalSpec& spec, Fold fold)
    : kernels_(spec.kernels),
      dtype_(spec.outputs[0].dtype),
      compute_(compute_of(dtype_)),
      fold_(fold),
      narrow_(is_narrow_float(dtype_)),
      stochastic_(spec.stochastic && narrow_),
      size_(static_cast<std::int64_t>(size_of(dtype_))),
      acc_size_(static_cast<std::int64_t>(size_of(compute_))),
      outputs_(num_elements(spec.outputs[0].shape)),
      inputs_(num_elements(spec.inputs[0]->shape)) {
  const Shape& shape = spec.inputs[0]->shape;
  const Ints axes = reduced_axes(spec.op, shape.size());
  const Shape strides = row_major_strides(shape);
  count_ = reduced_count(shape, axes);
  bool innermost = true;
  for (std::size_t d = shape.size(); d-- > 0;) {
    if (shape[d] == 1) continue;
    const bool reduced = std::ranges::binary_search(axes, static_cast<std::int64_t>(d));
    if (innermost) rows_ = reduced;
    innermost = false;
    (reduced ? reduced_ : kept_).add_outer(shape[d], strides[d]);
  }
  if (rows_) {
    length_ = reduced_.extent[0];
    std::shift_left(reduced_.extent.begin(), reduced_.extent.end(), 1);
    std::shift_left(reduced_.stride.begin(), reduced_.stride.end(), 1);
    --reduced_.rank;
  }
  const auto type = static_cast<std::size_t>(compute_);
  const bool max = fold == Fold::kMax;
  combine_ =
      kernels_.elementwise[static_cast<std::size_t>(max ? kernels::Ew::kMaximum : kernels::Ew::kAdd)][type];
  reduce_ =
      kernels_.reduce[static_cast<std::size_t>(max ? kernels::Reduce::kMax : kernels::Reduce::kSum)][type];
  POPSR_CHECK(combine_ != nullptr && reduce_ != nullptr);
}

/// The results of `n` rows, the first at `in`, `step` elements apart.
void Reduction::reduce_rows(const Tiles& tiles, const std::byte* in, void* to, void* lo, std::int64_t n,
                            std::int64_t step) const {
  if (!narrow_) return reduce_(to, lo, in, n, length_, step);
  const std::int64_t batch = std::max<std::int64_t>(1, kTile / std::max<std::int64_t>(1, length_));
  for (std::int64_t i = 0; i < n; i += batch) {
    const std::int64_t count = std::min(batch, n - i);
    auto* const wide = reinterpret_cast<float*>(tiles.rows);
    if (step == length_) {
      load_tile(kernels_, dtype_, compute_, wide, in + i * step * size_, count * length_);
    } else {
      for (std::int64_t r = 0; r < count; ++r) {
        load_tile(kernels_, dtype_, compute_, wide + r * length_, in + (i + r) * step * size_, length_);
      }
    }
    reduce_(static_cast<float*>(to) + i, lo == nullptr ? nullptr : static_cast<float*>(lo) + i, wide, count,
            length_, length_);
  }
}

/// What one position of the outer reduced axes adds to `n` outputs: in place at `in`, or written to `to`.
const void* Reduction::item(const Tiles& tiles, const std::byte* in, void* to, void* lo, std::int64_t n,
                            std::int64_t step) const {
  if (rows_) {
    reduce_rows(tiles, in, to, lo, n, step);
    return to;
  }
  if (!narrow_) return in;
  load_tile(kernels_, dtype_, compute_, to, in, n);
  return to;
}

/// Folds `n` outputs whose inputs start at `in`, `step` elements apart, into `acc`.
Reduction::Partial Reduction::fold(const Tiles& tiles, const std::byte* in, void* acc, std::int64_t n,
                                   std::int64_t step) const {
  const std::int64_t items = reduced_.count();
  if (items == 0) {
    std::memset(acc, 0, static_cast<std::size_t>(n * acc_size_));
    return {acc, nullptr};
  }
  void* const lo = narrow_ && fold_ == Fold::kSum ? tiles.lo : nullptr;
  const void* sum = item(tiles, in, acc, items == 1 ? lo : nullptr, n, step);
  for (std::int64_t i = 1; i < items; ++i) {
    const std::byte* next = in + reduced_.offset(i) * size_;
    const std::array<const void*, 2> operands = {sum, item(tiles, next, tiles.item, nullptr, n, step)};
    combine_(acc, i + 1 == items ? lo : nullptr, operands.data(), n, nullptr);
    sum = acc;
  }
  return {sum, items > 1 || rows_ ? static_cast<const float*>(lo) : nullptr};
}

/// acc = acc / count; integers in 64 bits, where every count fits.
void Reduction::divide(void* acc, std::int64_t n) const {
  if (is_float(dtype_)) {
    alignas(64) std::array<double, kTile> divisors;
    if (compute_ == Compute::kF64) {
      std::fill_n(divisors.data(), n, static_cast<double>(count_));
    } else {
      std::fill_n(reinterpret_cast<float*>(divisors.data()), n, static_cast<float>(count_));
    }
    const std::array<const void*, 2> operands = {acc, divisors.data()};
    const auto div = static_cast<std::size_t>(kernels::Ew::kDiv);
    return kernels_.elementwise[div][static_cast<std::size_t>(compute_)](acc, nullptr, operands.data(), n,
                                                                         nullptr);
  }
  alignas(64) std::array<std::int64_t, kTile> wide;
  const bool is_unsigned = info(dtype_).kind == DTypeKind::kUInt;
  load_tile(kernels_, dtype_, is_unsigned ? Compute::kU64 : Compute::kI64, wide.data(),
            static_cast<const std::byte*>(acc), n);
  for (std::int64_t i = 0; i < n && count_ != 0; ++i) {
    std::int64_t& value = wide[static_cast<std::size_t>(i)];
    value = is_unsigned ? static_cast<std::int64_t>(static_cast<std::uint64_t>(value) /
                                                    static_cast<std::uint64_t>(count_))
                        : value / count_;
  }
  load_tile(kernels_, is_unsigned ? DType::kUInt64 : DType::kInt64, compute_, acc,
            reinterpret_cast<const std::byte*>(wide.data()), n);
}

/// Outputs begin..end-1 of one nest of kept dimensions.
void Reduction::range(const Dims& kept, const std::byte* in, std::byte* out, std::int64_t begin,
                      std::int64_t end, const kernels::NoiseKey* key) const {
  constexpr auto kTileBytes = static_cast<std::size_t>(kTile) * sizeof(double);
  const auto row_bytes =
      static_cast<std::size_t>(narrow_ && rows_ ? std::max(kTile, length_) * acc_size_ : 0);
  auto* const scratch = static_cast<std::byte*>(thread_scratch(3 * kTileBytes + row_bytes));
  const Tiles tiles{scratch, scratch + kTileBytes, scratch + 2 * kTileBytes, scratch + 3 * kTileBytes};
  const std::int64_t run = kept.rank == 0 ? 1 : kept.extent[0];
  while (begin < end) {
    const std::int64_t n = std::min({run - begin % run, end - begin, kTile});
    std::byte* const to = out + begin * size_;
    void* const acc = narrow_ ? tiles.acc : to;
    Partial result = fold(tiles, in + kept.offset(begin) * size_, acc, n, kept.stride[0]);
    if (fold_ == Fold::kMean) {
      if (result.hi != acc) std::memcpy(acc, result.hi, static_cast<std::size_t>(n * acc_size_));
      divide(acc, n);
      result = {acc, nullptr};
    }
    store_tile(kernels_, compute_, dtype_, to, result.hi, result.lo, n, key,
               static_cast<std::uint64_t>(begin));
    begin += n;
  }
}

/// Tries to make the blocks the outermost kept dimension.
bool Reduction::merge_blocks(const BlockRun& run, Dims& kept) const {
  if (run.blocks == 1) return true;
  if (stochastic_ || kept.rank == kMaxDims) return false;
  if (run.out_stride[0] != outputs_ * size_ || run.in_stride[0] % size_ != 0) return false;
  if (kept.rank == 0 && !rows_) return false;  // One element per block: its stride may be anything.
  kept.add_outer(run.blocks, run.in_stride[0] / size_);
  return true;
}

void Reduction::operator()(const BlockRun& run) const {
  if (outputs_ == 0 || run.blocks == 0) return;
  Dims kept = kept_;
  const bool flat = merge_blocks(run, kept);
  const std::int64_t total = run.blocks * outputs_;
  parallel_for(run.pool, total, kGrain, run.blocks * inputs_, [&](std::int64_t begin, std::int64_t end) {
    if (flat) return range(kept, run.in[0], run.out[0], begin, end, noise_key(run, stochastic_, 0, 0));
    while (begin < end) {
      const std::int64_t block = begin / outputs_;
      const std::int64_t start = begin - block * outputs_;
      const std::int64_t stop = std::min(outputs_, start + end - begin);
      range(kept_, run.in[0] + block * run.in_stride[0], run.out[0] + block * run.out_stride[0], start, stop,
            noise_key(run, stochastic_, 0, block));
      begin += stop - start;
    }
  });
}

// ---- the ops

template <Fold fold>
BlockKernel eval_reduction(const EvalSpec& spec) {
  return Reduction(spec, fold);
}

std::vector<OutputDef> infer_reduction(const InferContext& context) {
  const TensorType& type = context.type(0);
  const Ints axes = reduced_axes(context.op, type.shape.size());
  return {{{type.dtype, reduced_shape(type.shape, axes, context.op.attr<bool>("keepdims"))}}};
}

std::vector<OutputDef> infer_max(const InferContext& context) {
  const Shape& shape = context.type(0).shape;
  if (reduced_count(shape, reduced_axes(context.op, shape.size())) == 0) {
    raise<ShapeError>("{}: there is no largest of no elements, got {}, expected reduced extents > 0",
                      context.name(), describe(context, 0));
  }
  return infer_reduction(context);
}

/// `t`, shaped as the output, with the reduced axes kept as extents of 1.
TensorId keep_reduced(GradContext& g, TensorId t) {
  const Shape& from = g.in_type(0).shape;
  Shape shape = reduced_shape(from, reduced_axes(g.op(), from.size()), true);
  return g.type(t).shape == shape ? t : g.emit("reshape", {t}, {{"shape", std::move(shape)}});
}

void sum_grad(GradContext& g) {
  if (!differentiates(g, 0)) return;
  g.set(0, g.emit("broadcast_to", {keep_reduced(g, g.cotangent(0))}, {{"shape", g.in_type(0).shape}}));
}

void mean_grad(GradContext& g) {
  if (!differentiates(g, 0)) return;
  const Shape& from = g.in_type(0).shape;
  const std::int64_t count = reduced_count(from, reduced_axes(g.op(), from.size()));
  const TensorId scaled = g.emit("scale", {g.cotangent(0)}, {{"factor", 1.0 / static_cast<double>(count)}});
  g.set(0, g.emit("broadcast_to", {keep_reduced(g, scaled)}, {{"shape", from}}));
}

/// Every element that equals the maximum receives the whole gradient, ties included.
void max_grad(GradContext& g) {
  if (!differentiates(g, 0)) return;
  const TensorId mask = g.emit("equal_mask", {g.in(0), keep_reduced(g, g.out(0))});
  g.set(0, g.emit("mul", {mask, keep_reduced(g, g.cotangent(0))}));
}

}  // namespace

std::vector<OpDef> reduction_ops() {
  const std::vector<AttrDef> attrs = {optional("axis", AttrType::kInts),
                                      optional("keepdims", AttrType::kBool, false)};
  std::vector<OpDef> ops = {
      {.name = "sum",
       .inputs = {{"t", kNumbers}},
       .attrs = attrs,
       .infer = infer_reduction,
       .eval = eval_reduction<Fold::kSum>,
       .grad = sum_grad,
       .rounding = Rounding::kOnce},
      {.name = "mean",
       .inputs = {{"t", kNumbers}},
       .attrs = attrs,
       .infer = infer_reduction,
       .eval = eval_reduction<Fold::kMean>,
       .grad = mean_grad,
       .rounding = Rounding::kOnce},
      {.name = "max",
       .inputs = {{"t", kNumbers}},
       .attrs = attrs,
       .infer = infer_max,
       .eval = eval_reduction<Fold::kMax>,
       .grad = max_grad},
  };
  for (OpDef& op : softmax_ops()) ops.push_back(std::move(op));
  return ops;
}

}  // namespace popsr
