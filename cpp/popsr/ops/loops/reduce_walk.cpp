#include "popsr/ops/loops/reduce_walk.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <optional>

#include "popsr/base/error.h"
#include "popsr/base/layout/loop_nest.h"
#include "popsr/exec/block_kernel.h"
#include "popsr/ops/loops/blocks.h"
#include "popsr/ops/loops/tiles.h"
#include "popsr/ops/reduce/axes.h"
#include "popsr/ops/reduce/integer_mean.h"

namespace popsr {

namespace {

using kernels::Compute;
using kernels::ElementwiseOp;
using kernels::Reduce;

/// The value that is reduced in place of an element x; m is the shift.
enum class Map : std::uint8_t {
  kElement,            ///< x
  kMagnitude,          ///< |x|
  kSquare,             ///< x * x
  kSquaredDifference,  ///< (x - m) * (x - m)
  kExpOfDifference,    ///< exp(x - m)
};
/// The result of a reduced value y.
enum class Finish : std::uint8_t {
  kNone,
  kDivide,        ///< y / (count - correction)
  kSquareRoot,    ///< sqrt(y)
  kLog,           ///< log(y)
  kLogPlusShift,  ///< m + log(y)
};

/// The columns of reductions.def.
struct Row {
  ReductionOp shift;
  Map map;
  Reduce kernel;
  Finish finish;
};
constexpr Row row_of(ReductionOp op) {
  constexpr Row kRows[] = {
      {},
#define POPSR_ROW(name, shift, map, kernel, finish, flops) \
  {ReductionOp::k##shift, Map::k##map, Reduce::k##kernel, Finish::k##finish},
#include "popsr/ops/reduce/reductions.def"
  };
  return kRows[static_cast<std::size_t>(op)];
}

/// Combination of the results of outer axes.
constexpr ElementwiseOp combine_of(Reduce kernel) {
  switch (kernel) {
    case Reduce::kMax:
      return ElementwiseOp::kMaximum;
    case Reduce::kMin:
      return ElementwiseOp::kMinimum;
    case Reduce::kProduct:
      return ElementwiseOp::kMul;
    default:
      return ElementwiseOp::kAdd;
  }
}

/// One walk over the elements.
struct Pass {
  explicit Pass(const Row& of)
      : combine(combine_of(of.kernel)),
        reduce(of.kernel),
        row(of.kernel == Reduce::kSumSquare ? Map::kElement : of.map),
        item(of.map),
        residual(kernels::row_of(combine).residual) {}

  ElementwiseOp combine;  ///< Operation that combines the outer axes.
  Reduce reduce;          ///< Reduction of a row.
  Map row, item;          ///< Before `reduce`; before `combine`, where no rows are reduced.
  bool residual;          ///< `combine` gives a residual.
};

class Reduction {
 public:
  Reduction(const EvalSpec& spec, ReductionOp op, ReductionOptions options);
  void operator()(const BlockRun& run) const;

 private:
  struct Tiles {
    std::byte *acc, *item, *shift, *lo, *rows;
  };
  /// `hi`: where the sum is; `lo`: its residual or null.
  struct Partial {
    const void* hi;
    const float* lo;
  };

  std::optional<LoopNest> flat_nest(const BlockRun& run) const;
  void range(const LoopNest& kept, const std::byte* in, std::byte* out, std::int64_t begin, std::int64_t end,
             const kernels::NoiseKey* key) const;
  Partial reduce(const Pass& pass, const Tiles& tiles, const std::byte* in, void* acc, std::int64_t n,
                 std::int64_t step) const;
  kernels::ColumnKernels::ReduceFn columns_kernel(const Pass& pass) const;
  Partial reduce_columns(kernels::ColumnKernels::ReduceFn kernel, const Tiles& tiles, const std::byte* in,
                         void* acc, float* lo, std::int64_t n) const;
  const void* item(const Pass& pass, const Tiles& tiles, const std::byte* in, void* to, void* lo,
                   std::int64_t n, std::int64_t step) const;
  void reduce_rows(const Pass& pass, const Tiles& tiles, const std::byte* in, void* to, void* lo,
                   std::int64_t n, std::int64_t step) const;
  void apply(ElementwiseOp op, void* to, void* lo, const void* a, const void* b, std::int64_t n) const;
  void map(Map map, void* to, const void* from, const void* shift, std::int64_t n) const;
  void map_row(Map map, std::byte* row, const std::byte* shift) const;
  void keep_finite(void* shift, std::int64_t n) const;
  Partial finish(Finish finish, Partial sum, const Tiles& tiles, void* acc, std::int64_t n,
                 double divisor) const;
  void shift(const Tiles& tiles, const std::byte* in, std::int64_t n, std::int64_t step) const;
  void divide(void* acc, std::int64_t n, double divisor) const;
  void integer_means(const std::byte* in, std::byte* out, std::int64_t n, std::int64_t step) const;

  const kernels::KernelTable& kernels_;
  DType dtype_;
  Compute compute_;
  Row row_;
  Pass pass_;
  bool narrow_;
  bool stochastic_;
  bool rows_ = false;        ///< True if the innermost axis is reduced.
  std::int64_t length_ = 1;  ///< Its extent then.
  std::int64_t size_;
  std::int64_t acc_size_;
  std::int64_t outputs_;
  std::int64_t inputs_;
  std::int64_t count_;
  double divisor_;
  IntegerMean integers_;
  LoopNest kept_{1}, reduced_{1};  ///< `reduced_` without the axis of the rows.
};

Reduction::Reduction(const EvalSpec& spec, ReductionOp op, ReductionOptions options)
    : kernels_(spec.kernels),
      dtype_(spec.outputs[0].dtype),
      compute_(compute_of(dtype_)),
      row_(row_of(op)),
      pass_(row_),
      narrow_(is_narrow_float(dtype_)),
      stochastic_(spec.stochastic && narrow_),
      size_(static_cast<std::int64_t>(size_of(dtype_))),
      acc_size_(static_cast<std::int64_t>(size_of(compute_))),
      outputs_(num_elements(spec.outputs[0].shape)),
      inputs_(num_elements(spec.inputs[0]->shape)),
      count_(reduced_count(spec.inputs[0]->shape, reduced_axes(spec.op, spec.inputs[0]->shape.size()))),
      divisor_(std::max(0.0, static_cast<double>(count_) - options.correction)),
      integers_(dtype_, count_) {
  const Shape& shape = spec.inputs[0]->shape;
  const std::vector<std::int64_t> axes = reduced_axes(spec.op, shape.size());
  const Shape strides = row_major_strides(shape);
  bool innermost = true;
  for (std::size_t d = shape.size(); d-- > 0;) {
    if (shape[d] == 1) continue;
    const bool reduced = std::ranges::binary_search(axes, static_cast<std::int64_t>(d));
    if (innermost) rows_ = reduced;
    innermost = false;
    (reduced ? reduced_ : kept_).add_outer(shape[d], strides[d]);
  }
  if (rows_) {
    length_ = reduced_.extent(0);
    reduced_ = reduced_.outer(1);
  }
}

void Reduction::apply(ElementwiseOp op, void* to, void* lo, const void* a, const void* b,
                      std::int64_t n) const {
  const std::array<const void*, 2> operands = {a, b};
  const auto kernel = kernels_.elementwise(op, compute_);
  POPSR_CHECK(kernel != nullptr);
  kernel(to, lo, operands.data(), n, nullptr);
}

void Reduction::map(Map map, void* to, const void* from, const void* shift, std::int64_t n) const {
  if (map == Map::kMagnitude) apply(ElementwiseOp::kAbs, to, nullptr, from, nullptr, n);
  if (map == Map::kSquare) apply(ElementwiseOp::kMul, to, nullptr, from, from, n);
  if (map != Map::kExpOfDifference && map != Map::kSquaredDifference) return;
  apply(ElementwiseOp::kSub, to, nullptr, from, shift, n);
  if (map == Map::kSquaredDifference) return apply(ElementwiseOp::kMul, to, nullptr, to, to, n);
  apply(ElementwiseOp::kExp, to, nullptr, to, nullptr, n);
}

/// Maps a row in place; `shift` is one number.
void Reduction::map_row(Map map, std::byte* row, const std::byte* shift) const {
  alignas(64) std::array<std::byte, kTile * sizeof(double)> shifts;
  if (row_.shift != ReductionOp::kNone) {
    std::memcpy(shifts.data(), shift, static_cast<std::size_t>(acc_size_));
    repeat_first(shifts.data(), acc_size_, std::min(kTile, length_));
  }
  for (std::int64_t i = 0; i < length_; i += kTile) {
    std::byte* const tile = row + i * acc_size_;
    this->map(map, tile, tile, shifts.data(), std::min(kTile, length_ - i));
  }
}

/// The results of `n` rows, the first at `in`, `step` elements apart.
void Reduction::reduce_rows(const Pass& pass, const Tiles& tiles, const std::byte* in, void* to, void* lo,
                            std::int64_t n, std::int64_t step) const {
  const auto reduce =
      kernels_.reduce[static_cast<std::size_t>(pass.reduce)][static_cast<std::size_t>(compute_)];
  if (!narrow_ && pass.row == Map::kElement) return reduce(to, lo, in, n, length_, step);
  const auto reduce_bf16 = kernels_.reduce_bf16[static_cast<std::size_t>(pass.reduce)];
  if (dtype_ == DType::kBFloat16 && pass.row == Map::kElement && reduce_bf16 != nullptr) {
    return reduce_bf16(to, lo, in, n, length_, step);
  }
  const std::int64_t batch = std::max<std::int64_t>(1, kTile / std::max<std::int64_t>(1, length_));
  for (std::int64_t i = 0; i < n; i += batch) {
    const std::int64_t count = std::min(batch, n - i);
    const bool dense = step == length_;
    for (std::int64_t r = 0; r < (dense ? 1 : count); ++r) {
      load_tile(kernels_, dtype_, compute_, tiles.rows + r * length_ * acc_size_, in + (i + r) * step * size_,
                dense ? count * length_ : length_);
    }
    for (std::int64_t r = 0; r < count && pass.row != Map::kElement; ++r) {
      map_row(pass.row, tiles.rows + r * length_ * acc_size_, tiles.shift + (i + r) * acc_size_);
    }
    reduce(static_cast<std::byte*>(to) + i * acc_size_, lo == nullptr ? nullptr : static_cast<float*>(lo) + i,
           tiles.rows, count, length_, length_);
  }
}

/// Operands that one position of the outer reduced axes adds to `n` outputs: at `in` itself, or written to
/// `to`.
const void* Reduction::item(const Pass& pass, const Tiles& tiles, const std::byte* in, void* to, void* lo,
                            std::int64_t n, std::int64_t step) const {
  if (rows_) {
    reduce_rows(pass, tiles, in, to, lo, n, step);
    return to;
  }
  if (!narrow_ && pass.item == Map::kElement) return in;
  if (narrow_) load_tile(kernels_, dtype_, compute_, to, in, n);
  map(pass.item, to, narrow_ ? to : in, tiles.shift, n);
  return to;
}

/// The kernel of columns, or null where elements are mapped, rows are reduced first, or there is none.
kernels::ColumnKernels::ReduceFn Reduction::columns_kernel(const Pass& pass) const {
  if (rows_ || pass.item != Map::kElement || reduced_.rank() != 1 || reduced_.count() < 3) return nullptr;
  const bool sums = pass.combine == ElementwiseOp::kAdd;
  if (dtype_ == DType::kBFloat16 && sums) return kernels_.columns_bf16->sum;
  if (dtype_ != DType::kFloat32 && dtype_ != DType::kFloat64) return nullptr;
  const kernels::ColumnKernels& columns =
      *(dtype_ == DType::kFloat64 ? kernels_.columns_f64 : kernels_.columns_f32);
  if (pass.combine == ElementwiseOp::kMaximum) return columns.max;
  if (pass.combine == ElementwiseOp::kMinimum) return columns.min;
  return sums ? columns.sum : nullptr;
}

/// Reduces `n` columns. The last addition is apart where it gives a residual.
Reduction::Partial Reduction::reduce_columns(kernels::ColumnKernels::ReduceFn kernel, const Tiles& tiles,
                                             const std::byte* in, void* acc, float* lo,
                                             std::int64_t n) const {
  const std::int64_t items = reduced_.count(), stride = reduced_.stride(0);
  load_tile(kernels_, dtype_, compute_, acc, in, n);
  kernel(acc, in + stride * size_, lo == nullptr ? items - 1 : items - 2, n, stride);
  if (lo == nullptr) return {acc, nullptr};
  load_tile(kernels_, dtype_, compute_, tiles.item, in + (items - 1) * stride * size_, n);
  apply(ElementwiseOp::kAdd, acc, lo, acc, tiles.item, n);
  return {acc, lo};
}

/// Reduces `n` outputs whose inputs start at `in`, `step` elements apart, into `acc`.
Reduction::Partial Reduction::reduce(const Pass& pass, const Tiles& tiles, const std::byte* in, void* acc,
                                     std::int64_t n, std::int64_t step) const {
  const std::int64_t items = reduced_.count();
  if (items == 0) {
    // Rows of nothing.
    kernels_.reduce[static_cast<std::size_t>(pass.reduce)][static_cast<std::size_t>(compute_)](acc, nullptr,
                                                                                               in, n, 0, 0);
    return {acc, nullptr};
  }
  void* const lo = narrow_ && pass.residual ? tiles.lo : nullptr;
  if (const auto columns = columns_kernel(pass)) {
    return reduce_columns(columns, tiles, in, acc, static_cast<float*>(lo), n);
  }
  const void* sum = item(pass, tiles, in, acc, items == 1 ? lo : nullptr, n, step);
  for (std::int64_t i = 1; i < items; ++i) {
    const std::byte* next = in + reduced_.offset(i) * size_;
    apply(pass.combine, acc, i + 1 == items ? lo : nullptr, sum,
          item(pass, tiles, next, tiles.item, nullptr, n, step), n);
    sum = acc;
  }
  return {sum, items > 1 || rows_ ? static_cast<const float*>(lo) : nullptr};
}

/// Infinities and NaN become 0: differences to them would be NaN.
void Reduction::keep_finite(void* shift, std::int64_t n) const {
  const auto replace = [n](auto* values) {
    std::replace_if(
        values, values + n, [](auto value) { return !std::isfinite(value); }, 0);
  };
  compute_ == Compute::kF64 ? replace(static_cast<double*>(shift)) : replace(static_cast<float*>(shift));
}

/// acc = acc / divisor
void Reduction::divide(void* acc, std::int64_t n, double divisor) const {
  alignas(64) std::array<double, kTile> divisors;
  if (compute_ == Compute::kF64) {
    std::fill_n(divisors.data(), n, divisor);
  } else {
    std::fill_n(reinterpret_cast<float*>(divisors.data()), n, static_cast<float>(divisor));
  }
  apply(ElementwiseOp::kDiv, acc, nullptr, acc, divisors.data(), n);
}

/// The means of `n` outputs whose inputs start at `in`, `step` elements apart.
void Reduction::integer_means(const std::byte* in, std::byte* out, std::int64_t n, std::int64_t step) const {
  void* const sums = thread_scratch(integers_.sum_bytes(kTile));
  std::memset(sums, 0, integers_.sum_bytes(n));
  for (std::int64_t i = 0; i < reduced_.count(); ++i) {
    integers_.add(sums, in + reduced_.offset(i) * size_, n, length_, step);
  }
  integers_.store(out, sums, n);
}

Reduction::Partial Reduction::finish(Finish finish, Partial sum, const Tiles& tiles, void* acc,
                                     std::int64_t n, double divisor) const {
  switch (finish) {
    case Finish::kDivide:
      if (sum.hi != acc) std::memcpy(acc, sum.hi, static_cast<std::size_t>(n * acc_size_));
      divide(acc, n, divisor);
      return {acc, nullptr};
    case Finish::kSquareRoot:
      apply(ElementwiseOp::kSqrt, acc, nullptr, sum.hi, nullptr, n);
      return {acc, nullptr};
    case Finish::kLog:
      apply(ElementwiseOp::kLog, acc, nullptr, sum.hi, nullptr, n);
      return {acc, nullptr};
    case Finish::kLogPlusShift:
      apply(ElementwiseOp::kLog, acc, nullptr, sum.hi, nullptr, n);
      apply(ElementwiseOp::kAdd, acc, tiles.lo, acc, tiles.shift, n);
      return {acc, narrow_ ? reinterpret_cast<const float*>(tiles.lo) : nullptr};
    case Finish::kNone:
      break;
  }
  return sum;
}

/// The numbers that the map subtracts, to tiles.shift.
void Reduction::shift(const Tiles& tiles, const std::byte* in, std::int64_t n, std::int64_t step) const {
  const Row row = row_of(row_.shift);
  const Partial result = finish(row.finish, reduce(Pass(row), tiles, in, tiles.shift, n, step), tiles,
                                tiles.shift, n, static_cast<double>(count_));
  if (result.hi != tiles.shift) {
    std::memcpy(tiles.shift, result.hi, static_cast<std::size_t>(n * acc_size_));
  }
  if (row_.map == Map::kExpOfDifference) keep_finite(tiles.shift, n);
}

/// Outputs begin..end-1 of one nest of kept dimensions.
void Reduction::range(const LoopNest& kept, const std::byte* in, std::byte* out, std::int64_t begin,
                      std::int64_t end, const kernels::NoiseKey* key) const {
  constexpr auto kTileBytes = static_cast<std::size_t>(kTile) * sizeof(double);
  const bool staged = rows_ && (narrow_ || pass_.row != Map::kElement);
  const auto row_bytes = static_cast<std::size_t>(staged ? std::max(kTile, length_) * acc_size_ : 0);
  auto* const scratch = static_cast<std::byte*>(thread_scratch(4 * kTileBytes + row_bytes));
  const Tiles tiles{scratch, scratch + kTileBytes, scratch + 2 * kTileBytes, scratch + 3 * kTileBytes,
                    scratch + 4 * kTileBytes};
  const std::int64_t run = kept.extent(0);
  while (begin < end) {
    const std::int64_t n = std::min({run - begin % run, end - begin, kTile});
    const std::byte* const from = in + kept.offset(begin) * size_;
    std::byte* const to = out + begin * size_;
    begin += n;
    if (row_.finish == Finish::kDivide && !is_float(dtype_)) {
      integer_means(from, to, n, kept.stride(0));
      continue;
    }
    void* const acc = narrow_ ? tiles.acc : to;
    if (row_.shift != ReductionOp::kNone) shift(tiles, from, n, kept.stride(0));
    const Partial result =
        finish(row_.finish, reduce(pass_, tiles, from, acc, n, kept.stride(0)), tiles, acc, n, divisor_);
    store_tile(kernels_, compute_, dtype_, to, result.hi, result.lo, n, key,
               static_cast<std::uint64_t>(begin - n));
  }
}

/// The kept dimensions of all blocks, where they can run as one flat loop.
std::optional<LoopNest> Reduction::flat_nest(const BlockRun& run) const {
  if (kept_.count() == 1 && !rows_)
    return std::nullopt;  // One element per block: its stride may be anything.
  const RunInput input{.input = 0, .size = size_};
  return merge_blocks(run, kept_, {&input, 1}, 0, outputs_ * size_, stochastic_);
}

void Reduction::operator()(const BlockRun& run) const {
  if (outputs_ == 0 || run.blocks == 0) return;
  const std::optional<LoopNest> merged = run.blocks > 1 ? flat_nest(run) : std::nullopt;
  if (!merged && run.blocks > 1) {
    return for_each_range(run, {.units = outputs_, .grain = kRowGrain, .work = inputs_},
                          [this](const Block& block, std::int64_t begin, std::int64_t end) {
                            range(kept_, block.in(0), block.out(), begin, end, block.key(stochastic_));
                          });
  }
  const LoopNest& kept = merged ? *merged : kept_;
  const Block first(run, 0);
  parallel_for(run.pool, run.blocks * outputs_, kRowGrain, run.blocks * inputs_,
               [&](std::int64_t begin, std::int64_t end) {
                 range(kept, first.in(0), first.out(), begin, end, first.key(stochastic_));
               });
}

}  // namespace

BlockKernel reduction_kernel(const EvalSpec& spec, ReductionOp op, ReductionOptions options) {
  return Reduction(spec, op, options);
}

}  // namespace popsr
