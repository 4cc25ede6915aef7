#include "popsr/ops/loops/elementwise_walk.h"

#include <array>
#include <cstring>
#include <utility>

#include "popsr/base/error.h"
#include "popsr/base/loop_nest.h"
#include "popsr/exec/block_kernel.h"
#include "popsr/ops/loops/blocks.h"

namespace popsr {

using kernels::Compute;
using kernels::KernelTable;
using kernels::NoiseKey;

namespace {

constexpr std::size_t kTileBytes = kTile * sizeof(double);
/// Rows at least this long are walked one by one; shorter ones are gathered into tiles.
constexpr std::int64_t kLongRow = 512;

/// Bytes of a tile of an element that rows repeat. It is short, because it is filled for each row, except for
/// rows of kLongRepetition elements.
constexpr std::int64_t kRepeatedBytes = 512;
constexpr std::int64_t kLongRepetition = 4 * kTile;

struct Operand {
  std::size_t input = 0;
  DType dtype = DType::kFloat32;
  std::int64_t size = 4;  ///< Bytes of an element.
  bool direct = false;    ///< Of the compute type: no conversion.
  bool truth = false;     ///< Loaded as 0 or 1.
};

bool has_words(const ElementwiseOptions& options) { return options.words || options.condition.has_value(); }
/// The unsigned integer of that size.
DType word_of(DType dtype) {
  switch (popsr::size_of(dtype)) {
    case 1:
      return DType::kUInt8;
    case 2:
      return DType::kUInt16;
    case 4:
      return DType::kUInt32;
    default:
      return DType::kUInt64;
  }
}

DType output_of(const EvalSpec& spec, const ElementwiseOptions& options) {
  const DType dtype = spec.outputs[options.output].dtype;
  return has_words(options) ? word_of(dtype) : dtype;
}

/// Everything that is known when the plan is compiled.
class Walk {
 public:
  Walk(const EvalSpec& spec, kernels::ElementwiseFn loop, TileFn body, bool residual,
       ElementwiseOptions options);
  void operator()(const BlockRun& run) const;
  /// Computes what `loop` does where operand 1 is one number, or is null.
  Walk& with_number(kernels::ElementwiseFn loop) {
    number_loop_ = loop;
    return *this;
  }
  static Compute compute(const EvalSpec& spec, const ElementwiseOptions& options) {
    return compute_of(options.compute.value_or(output_of(spec, options)));
  }

 private:
  friend class Pass;

  std::optional<LoopNest> flat_nest(const BlockRun& run) const;
  void run_flat(const BlockRun& run, const LoopNest& nest) const;
  void run_blocks(const BlockRun& run) const;
  void read_params(const Block& block, double* p) const;

  const KernelTable& kernels_;
  kernels::ElementwiseFn loop_;
  kernels::ElementwiseFn number_loop_ = nullptr;
  TileFn body_;  ///< Neither: the operand itself is stored.
  Compute compute_;
  DType out_dtype_;
  bool stochastic_;
  bool needs_lo_;
  bool long_ranges_ = true;  ///< No tiles are needed except for elements that rows repeat.
  bool converts_ = false;    ///< The result is the operand as the output's type, which is the compute type.
  std::int64_t elements_;
  std::int64_t work_;  ///< Of one element, in additions.
  std::vector<Operand> operands_;
  std::vector<std::pair<ScalarParam, DType>> params_;
  std::function<void(double* p)> prepare_;
  std::size_t output_;
  LoopNest nest_{0};  ///< Of one block; strides in bytes.
};

Walk::Walk(const EvalSpec& spec, kernels::ElementwiseFn loop, TileFn body, bool residual,
           ElementwiseOptions options)
    : kernels_(spec.kernels),
      loop_(loop),
      body_(body),
      compute_(compute(spec, options)),
      out_dtype_(output_of(spec, options)),
      stochastic_(spec.stochastic && is_narrow_float(out_dtype_)),
      needs_lo_(residual && is_narrow_float(out_dtype_)),
      elements_(num_elements(spec.outputs[options.output].shape)),
      work_(options.work * (is_narrow_float(out_dtype_) ? 2 : 1)),
      prepare_(options.prepare),
      output_(options.output) {
  std::vector<bool> is_param(spec.inputs.size());
  for (const ScalarParam& param : options.params) {
    if (param.input) is_param[*param.input] = true;
    params_.emplace_back(param, param.input ? spec.inputs[*param.input]->dtype : DType::kFloat64);
  }
  if (options.operands.empty()) {
    options.operands.reserve(spec.inputs.size());
    for (std::size_t i = 0; i < spec.inputs.size(); ++i) {
      if (spec.inputs[i] && !is_param[i]) options.operands.push_back(i);
    }
  }
  POPSR_CHECK(options.operands.size() <= kMaxOperands && params_.size() <= kMaxParams);
  const Shape& shape = spec.outputs[output_].shape;
  std::vector<Shape> strides;
  strides.reserve(options.operands.size());
  operands_.reserve(options.operands.size());
  for (const std::size_t i : options.operands) {
    const TensorType& type = *spec.inputs[i];
    const bool truth = i == options.condition;
    const DType dtype = has_words(options) && !truth ? word_of(type.dtype) : type.dtype;
    const bool direct = !truth && !is_narrow_float(dtype) && compute_of(dtype) == compute_;
    operands_.push_back({i, dtype, static_cast<std::int64_t>(popsr::size_of(dtype)), direct, truth});
    strides.push_back(broadcast_strides(type.shape, shape));
    for (std::int64_t& stride : strides.back()) stride *= operands_.back().size;
    long_ranges_ = long_ranges_ && direct;
  }
  long_ranges_ = long_ranges_ && body_ == nullptr && loop_ != nullptr && !is_narrow_float(out_dtype_) &&
                 compute_of(out_dtype_) == compute_;
  converts_ = body_ == nullptr && loop_ == nullptr && !is_narrow_float(out_dtype_) &&
              compute_of(out_dtype_) == compute_;
  nest_ = LoopNest(shape, strides);
}

/// Runs a range of the output for one set of base pointers; owns the tiles of one thread.
class Pass {
 public:
  Pass(const Walk& walk, void* scratch, std::uint64_t first)
      : walk_(walk), tiles_(static_cast<std::byte*>(scratch)), first_(first) {}

  static std::size_t scratch_bytes(const Walk& walk) { return (walk.operands_.size() + 3) * kTileBytes; }

  void run(const LoopNest& nest, const std::byte* const* in, std::byte* out, std::int64_t begin,
           std::int64_t end, const double* p, const NoiseKey* key);

 private:
  void* tile(std::size_t j) { return tiles_ + j * kTileBytes; }
  std::size_t count() const { return walk_.operands_.size(); }
  void rows(const LoopNest& nest, const std::byte* const* in, std::int64_t begin, std::int64_t end);
  void direct_rows(const LoopNest& nest, const std::byte* const* in, std::int64_t begin, std::int64_t end);
  void some_rows(const LoopNest& nest, const std::byte* const* in, const NestPosition& at, std::int64_t begin,
                 std::int64_t rows, std::int64_t n, kernels::ElementwiseFn loop);
  void repeated_pieces(const LoopNest& nest, const std::byte* const* in, const NestPosition& at,
                       std::int64_t begin, std::int64_t n);
  void converted_rows(const LoopNest& nest, const std::byte* in, std::int64_t begin, std::int64_t end);
  void repeat(std::size_t j, const std::byte* src, std::int64_t n);
  void gathered(const LoopNest& nest, const std::byte* const* in, std::int64_t begin, std::int64_t end);
  void gather(std::size_t j, const LoopNest& nest, const std::byte* base, const NestPosition& start,
              std::int64_t n);
  void broadcast(std::size_t j, const std::byte* src, std::int64_t row);
  void load(std::size_t j, const std::byte* src, std::int64_t n);
  void convert(std::size_t j, void* dst, const std::byte* src, std::int64_t n) const;
  void compute(std::int64_t begin, std::int64_t n);

  const Walk& walk_;
  std::byte* tiles_;
  std::uint64_t first_;  ///< Noise index of element 0.
  std::byte* out_ = nullptr;
  const double* p_ = nullptr;
  const NoiseKey* key_ = nullptr;
  std::array<const void*, kMaxOperands> args_ = {};
  std::array<const std::byte*, kMaxOperands> filled_ = {};   ///< What repeats in an operand's tile,
  std::array<std::int64_t, kMaxOperands> filled_size_ = {};  ///< and how many elements of it are there.
};

void Pass::run(const LoopNest& nest, const std::byte* const* in, std::byte* out, std::int64_t begin,
               std::int64_t end, const double* p, const NoiseKey* key) {
  out_ = out;
  p_ = p;
  key_ = key;
  filled_ = {};
  if (nest.rank() > 1 && nest.extent(0) < kLongRow) {
    gathered(nest, in, begin, end);
  } else {
    rows(nest, in, begin, end);
  }
}

/// Row by row without conversions: the kernel writes the output. An element that a row repeats is one number
/// for the kernel, or fills a short tile, with which the kernel meets the row piece by piece.
void Pass::direct_rows(const LoopNest& nest, const std::byte* const* in, std::int64_t begin,
                       std::int64_t end) {
  const bool number = walk_.number_loop_ != nullptr && nest.stride(0, 1) == 0 && nest.stride(0, 0) != 0;
  bool repeats = false;
  for (std::size_t j = 0; j < count(); ++j) repeats = repeats || (nest.stride(0, j) == 0 && !number);
  const auto loop = number ? walk_.number_loop_ : walk_.loop_;
  NestPosition at(nest, begin);
  while (begin < end) {
    const std::int64_t row = nest.extent(0), rows = repeats ? 0 : at.rows_ahead((end - begin) / row);
    const std::int64_t n = rows > 0 ? rows * row : std::min(at.left_in_row(), end - begin);
    if (repeats)
      repeated_pieces(nest, in, at, begin, n);
    else
      some_rows(nest, in, at, begin, std::max<std::int64_t>(rows, 1), rows > 0 ? row : n, loop);
    begin += n;
    rows > 0 ? at.move_to(begin, n) : at.advance(n);
  }
}

/// n elements of rows that are one step apart.
void Pass::some_rows(const LoopNest& nest, const std::byte* const* in, const NestPosition& at,
                     std::int64_t begin, std::int64_t rows, std::int64_t n, kernels::ElementwiseFn loop) {
  const auto size = static_cast<std::int64_t>(popsr::size_of(walk_.out_dtype_));
  std::byte* out = out_ + begin * size;
  std::array<const std::byte*, kMaxOperands> from = {};
  std::array<std::int64_t, kMaxOperands> step = {};
  for (std::size_t j = 0; j < count(); ++j) {
    from[j] = in[j] + at.offset(j);
    step[j] = nest.rank() > 1 ? nest.stride(1, j) : 0;
  }
  for (std::int64_t r = 0; r < rows; ++r, out += n * size) {
    for (std::size_t j = 0; j < count(); ++j) args_[j] = std::exchange(from[j], from[j] + step[j]);
    loop(out, nullptr, args_.data(), n, p_);
  }
}

/// n elements of a row; an element that is repeated fills a tile.
void Pass::repeated_pieces(const LoopNest& nest, const std::byte* const* in, const NestPosition& at,
                           std::int64_t begin, std::int64_t n) {
  const auto size = static_cast<std::int64_t>(popsr::size_of(walk_.out_dtype_));
  const std::int64_t piece = nest.extent(0) < kLongRepetition ? kRepeatedBytes / size : kTile;
  for (std::size_t j = 0; j < count(); ++j) {
    const std::byte* const src = in[j] + at.offset(j);
    nest.stride(0, j) == 0 ? repeat(j, src, piece) : load(j, src, n);
  }
  for (std::int64_t i = 0; i < n; i += piece) {
    walk_.loop_(out_ + (begin + i) * size, nullptr, args_.data(), std::min(piece, n - i), p_);
    for (std::size_t j = 0; j < count(); ++j) {
      if (nest.stride(0, j) != 0) args_[j] = static_cast<const std::byte*>(args_[j]) + piece * size;
    }
  }
}

/// Row by row of the one operand, into the output.
void Pass::converted_rows(const LoopNest& nest, const std::byte* in, std::int64_t begin, std::int64_t end) {
  const auto size = static_cast<std::int64_t>(popsr::size_of(walk_.out_dtype_));
  NestPosition at(nest, begin);
  while (begin < end) {
    const std::int64_t n = std::min(at.left_in_row(), end - begin);
    convert(0, out_ + begin * size, in + at.offset(0), n);
    begin += n;
    at.advance(n);
  }
}

/// Fills n elements of an operand's tile with one as it is stored.
void Pass::repeat(std::size_t j, const std::byte* src, std::int64_t n) {
  if (filled_[j] == src) return;
  filled_[j] = src;
  args_[j] = tile(j);
  const auto fill = [&]<class Word>(Word value) {
    std::memcpy(&value, src, sizeof(Word));
    std::fill_n(static_cast<Word*>(tile(j)), n, value);
  };
  switch (walk_.operands_[j].size) {
    case 1:
      return fill(std::uint8_t{});
    case 2:
      return fill(std::uint16_t{});
    case 4:
      return fill(std::uint32_t{});
    default:
      return fill(std::uint64_t{});
  }
}

/// Row by row: operands are pointers into rows, or one element for the whole row.
void Pass::rows(const LoopNest& nest, const std::byte* const* in, std::int64_t begin, std::int64_t end) {
  if (walk_.long_ranges_) return direct_rows(nest, in, begin, end);
  if (walk_.converts_ && nest.stride(0, 0) == walk_.operands_[0].size)
    return converted_rows(nest, in[0], begin, end);
  NestPosition at(nest, begin);
  while (begin < end) {
    const std::int64_t n = std::min({at.left_in_row(), end - begin, kTile});
    for (std::size_t j = 0; j < count(); ++j) {
      const std::byte* src = in[j] + at.offset(j);
      nest.stride(0, j) == 0 ? broadcast(j, src, nest.extent(0)) : load(j, src, n);
    }
    compute(begin, n);
    begin += n;
    at.advance(n);
  }
}

/// Elements of a tile of short rows: whole rows, and where the next dimension is short all of it, so that
/// operands which it repeats are the same throughout.
std::int64_t tile_of(const LoopNest& nest) {
  const std::int64_t row = nest.extent(0), plane = row * nest.extent(1);
  return plane <= kTile && plane >= kTile / 4 ? plane : kTile / row * row;
}

/// Short rows: tiles of several, into which operands that are not in the output's order are gathered.
void Pass::gathered(const LoopNest& nest, const std::byte* const* in, std::int64_t begin, std::int64_t end) {
  std::array<bool, kMaxOperands> dense = {};
  for (std::size_t j = 0; j < count(); ++j) dense[j] = nest.contiguous(j, walk_.operands_[j].size);
  NestPosition at(nest, begin);
  const std::int64_t tile = tile_of(nest);
  for (std::int64_t n = std::min(tile - begin % tile, end - begin); begin < end;) {
    for (std::size_t j = 0; j < count(); ++j) {
      dense[j] ? load(j, in[j] + begin * walk_.operands_[j].size, n) : gather(j, nest, in[j], at, n);
    }
    compute(begin, n);
    begin += n;
    at.move_to(begin, n);
    n = std::min(tile, end - begin);
  }
}

void Pass::gather(std::size_t j, const LoopNest& nest, const std::byte* base, const NestPosition& start,
                  std::int64_t n) {
  const Operand& operand = walk_.operands_[j];
  auto* const staged = static_cast<std::byte*>(operand.direct ? tile(j) : tile(count() + 2));
  const std::int64_t step = nest.stride(0, j);
  const std::int64_t left = (nest.extent(1) - start.index(1)) * nest.extent(0);
  const bool regular = start.index(0) == 0 && n <= left;  // one step from row to row
  const bool repeats = regular && nest.stride(1, j) == 0;
  const std::byte* const first = base + start.offset(j);
  if (repeats && filled_[j] == first && filled_size_[j] >= n) return;  // from the tile before
  filled_[j] = repeats ? first : nullptr;
  filled_size_[j] = n;
  if (regular && step == 0 && n % nest.extent(0) == 0) {
    const std::array<std::int64_t, 2> shape = {n / nest.extent(0), nest.extent(0)};
    const std::array<std::int64_t, 2> strides = {nest.stride(1, j) / operand.size, 0};
    walk_.kernels_.gather_strided(staged, first, 2, shape.data(), strides.data(),
                                  static_cast<int>(operand.size));
    return load(j, staged, n);
  }
  copy_range(nest, staged, kContiguous, base, j, operand.size, start, n);
  load(j, staged, n);
}

void Pass::broadcast(std::size_t j, const std::byte* src, std::int64_t row) {
  if (filled_[j] == src) return;
  filled_[j] = src;
  args_[j] = tile(j);
  const std::int64_t n = std::min(kTile, row);
  std::uint64_t value = 0;
  convert(j, &value, src, 1);
  const std::int64_t step = 0;
  walk_.kernels_.gather_strided(tile(j), &value, 1, &n, &step,
                                static_cast<int>(popsr::size_of(walk_.compute_)));
}

void Pass::load(std::size_t j, const std::byte* src, std::int64_t n) {
  if (walk_.operands_[j].direct) {
    args_[j] = src;
    return;
  }
  convert(j, tile(j), src, n);
  args_[j] = tile(j);
}

/// Elements to the compute type; of truth at most kTile.
void Pass::convert(std::size_t j, void* dst, const std::byte* src, std::int64_t n) const {
  const Operand& operand = walk_.operands_[j];
  if (!operand.truth) return load_tile(walk_.kernels_, operand.dtype, walk_.compute_, dst, src, n);
  alignas(64) std::array<std::byte, kTile> truth;
  load_tile(walk_.kernels_, operand.dtype, Compute::kBool, truth.data(), src, n);
  load_tile(walk_.kernels_, DType::kBool, walk_.compute_, dst, truth.data(), n);
}

void Pass::compute(std::int64_t begin, std::int64_t n) {
  std::byte* const out = out_ + begin * static_cast<std::int64_t>(popsr::size_of(walk_.out_dtype_));
  const bool in_place = !is_narrow_float(walk_.out_dtype_) && compute_of(walk_.out_dtype_) == walk_.compute_;
  void* const hi = in_place ? static_cast<void*>(out) : tile(count());
  void* const lo = walk_.needs_lo_ ? tile(count() + 1) : nullptr;
  const void* result = hi;
  if (walk_.body_ != nullptr) {
    walk_.body_({walk_.kernels_, walk_.compute_, hi, lo, {args_.data(), count()}, n, p_});
  } else if (walk_.loop_ != nullptr) {
    walk_.loop_(hi, lo, args_.data(), n, p_);
  } else {
    result = args_[0];
  }
  store_tile(walk_.kernels_, walk_.compute_, walk_.out_dtype_, out, result, static_cast<const float*>(lo), n,
             key_, first_ + static_cast<std::uint64_t>(begin));
}

void Walk::read_params(const Block& block, double* p) const {
  for (std::size_t k = 0; k < params_.size(); ++k) {
    const auto& [param, dtype] = params_[k];
    p[k] = param.input ? read_scalar(kernels_, dtype, block.in(*param.input)) : param.value;
  }
  if (prepare_) prepare_(p);
}

/// The nest of all blocks, where they can run as one flat loop.
std::optional<LoopNest> Walk::flat_nest(const BlockRun& run) const {
  for (const auto& [param, dtype] : params_) {
    if (param.input && run.in_stride[*param.input] != 0) return std::nullopt;
  }
  std::array<RunInput, kMaxOperands> inputs;
  for (std::size_t j = 0; j < operands_.size(); ++j) {
    if (run.in_stride[operands_[j].input] % operands_[j].size != 0) return std::nullopt;
    inputs[j] = {operands_[j].input, 1};
  }
  const std::int64_t bytes = elements_ * static_cast<std::int64_t>(popsr::size_of(out_dtype_));
  std::optional<LoopNest> nest =
      merge_blocks(run, nest_, {inputs.data(), operands_.size()}, output_, bytes, stochastic_);
  if (!nest || elements_ > 1) return nest;
  // One element per block: the blocks are the row, whose elements are adjacent or all the same.
  for (std::size_t j = 0; j < operands_.size(); ++j) {
    if (nest->stride(0, j) != 0 && nest->stride(0, j) != operands_[j].size) return std::nullopt;
  }
  return nest;
}

void Walk::run_flat(const BlockRun& run, const LoopNest& nest) const {
  std::array<double, kMaxParams> p = {};
  read_params(Block(run, 0), p.data());
  std::array<const std::byte*, kMaxOperands> in = {};
  for (std::size_t j = 0; j < operands_.size(); ++j) in[j] = run.in[operands_[j].input];
  const NoiseKey* const key = Block(run, 0).key(stochastic_, output_);
  const std::int64_t total = run.blocks * elements_;
  parallel_for(run.pool, total, kTile, total * work_, [&](std::int64_t begin, std::int64_t end) {
    Pass pass(*this, thread_scratch(Pass::scratch_bytes(*this)), run.first);
    pass.run(nest, in.data(), run.out[output_], begin, end, p.data(), key);
  });
}

/// Block by block: the flat range of all blocks is what is split among threads.
void Walk::run_blocks(const BlockRun& run) const {
  for_each_range_with(run, {.units = elements_, .grain = kTile, .work = elements_ * work_}, [&] {
    return [this, pass = Pass(*this, thread_scratch(Pass::scratch_bytes(*this)), run.first)](
               const Block& block, std::int64_t begin, std::int64_t end) mutable {
      std::array<const std::byte*, kMaxOperands> in = {};
      std::array<double, kMaxParams> p = {};
      for (std::size_t j = 0; j < operands_.size(); ++j) in[j] = block.in(operands_[j].input);
      read_params(block, p.data());
      pass.run(nest_, in.data(), block.out(output_), begin, end, p.data(), block.key(stochastic_, output_));
    };
  });
}

void Walk::operator()(const BlockRun& run) const {
  if (elements_ == 0 || run.blocks == 0) return;
  if (run.blocks == 1) return run_flat(run, nest_);
  const std::optional<LoopNest> flat = flat_nest(run);
  flat ? run_flat(run, *flat) : run_blocks(run);
}

/// A kernel that takes and gives bfloat16, or null: it rounds to nearest and takes no parameters.
kernels::ElementwiseFn bf16_kernel(const EvalSpec& spec, kernels::ElementwiseOp op,
                                   const ElementwiseOptions& options) {
  bool fits = !spec.stochastic && options.params.empty() && !options.compute && !options.condition;
  fits = fits && spec.outputs[options.output].dtype == DType::kBFloat16;
  for (const auto& input : spec.inputs) fits = fits && input && input->dtype == DType::kBFloat16;
  return fits ? spec.kernels.elementwise_bf16(op) : nullptr;
}

}  // namespace

BlockKernel elementwise_kernel(const EvalSpec& spec, kernels::ElementwiseOp op, ElementwiseOptions options) {
  const kernels::ElementwiseRow row = kernels::row_of(op);
  options.work = row.work;
  if (const kernels::ElementwiseFn function = bf16_kernel(spec, op, options)) {
    options.words = true;
    const kernels::ElementwiseFn number =
        spec.kernels.elementwise_kernels[static_cast<int>(op)]->bf16_with_number;
    return Walk(spec, function, nullptr, false, std::move(options)).with_number(number);
  }
  const kernels::ElementwiseFn function = spec.kernels.elementwise(op, Walk::compute(spec, options));
  POPSR_CHECK(function != nullptr);
  const auto compute = static_cast<std::size_t>(Walk::compute(spec, options));
  const auto& numbers = spec.kernels.elementwise_kernels[static_cast<int>(op)]->with_number;
  return Walk(spec, function, nullptr, row.residual, std::move(options))
      .with_number(compute < std::size(numbers) ? numbers[compute] : nullptr);
}

BlockKernel elementwise_kernel(const EvalSpec& spec, TileFn body, ElementwiseOptions options) {
  const bool residual = options.residual;
  return Walk(spec, nullptr, body, residual, std::move(options));
}

BlockKernel convert_kernel(const EvalSpec& spec, std::size_t input, std::size_t output) {
  const DType from = spec.inputs[input]->dtype;
  if (from == spec.outputs[output].dtype) return copy_kernel(spec, input, output);
  return Walk(spec, nullptr, nullptr, false, {.operands = {input}, .output = output, .compute = from});
}

}  // namespace popsr
