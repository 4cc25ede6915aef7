#include "popsr/ops/loops/elementwise_walk.h"

#include <array>
#include <utility>

#include "popsr/base/error.h"
#include "popsr/base/layout/loop_nest.h"
#include "popsr/exec/block_kernel.h"
#include "popsr/ops/loops/blocks.h"
#include "popsr/ops/loops/elementwise_pass.h"

namespace popsr {

using kernels::Compute;
using kernels::NoiseKey;

namespace {

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
  /// Sets the loop for the case that operand 1 is one number; may be null.
  Walk& with_number(kernels::ElementwiseFn loop) {
    loop_.number_loop = loop;
    return *this;
  }
  static Compute compute(const EvalSpec& spec, const ElementwiseOptions& options) {
    return compute_of(options.compute.value_or(output_of(spec, options)));
  }

 private:
  std::optional<LoopNest> flat_nest(const BlockRun& run) const;
  void run_flat(const BlockRun& run, const LoopNest& nest) const;
  void run_blocks(const BlockRun& run) const;
  void read_params(const Block& block, double* p) const;

  ElementwiseLoop loop_;
  std::int64_t elements_;
  std::int64_t work_;  ///< Work of one element, in additions.
  std::vector<std::pair<ScalarParam, DType>> params_;
  std::function<void(double* p)> prepare_;
  std::size_t output_;
  LoopNest nest_{0};  ///< Nest of one block; strides in bytes.
};

Walk::Walk(const EvalSpec& spec, kernels::ElementwiseFn loop, TileFn body, bool residual,
           ElementwiseOptions options)
    : loop_{.kernels = spec.kernels,
            .loop = loop,
            .body = body,
            .compute = compute(spec, options),
            .out_dtype = output_of(spec, options)},
      elements_(num_elements(spec.outputs[options.output].shape)),
      work_(options.work * (is_narrow_float(loop_.out_dtype) ? 2 : 1)),
      prepare_(options.prepare),
      output_(options.output) {
  ElementwiseForm& form = loop_.form;
  form.stochastic = spec.stochastic && is_narrow_float(loop_.out_dtype);
  form.needs_lo = residual && is_narrow_float(loop_.out_dtype);
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
  loop_.operands.reserve(options.operands.size());
  for (const std::size_t i : options.operands) {
    const TensorType& type = *spec.inputs[i];
    const bool truth = i == options.condition;
    const DType dtype = has_words(options) && !truth ? word_of(type.dtype) : type.dtype;
    const bool direct = !truth && !is_narrow_float(dtype) && compute_of(dtype) == loop_.compute;
    loop_.operands.push_back({i, dtype, static_cast<std::int64_t>(popsr::size_of(dtype)), direct, truth});
    strides.push_back(broadcast_strides(type.shape, shape));
    for (std::int64_t& stride : strides.back()) stride *= loop_.operands.back().size;
    form.long_ranges = form.long_ranges && direct;
  }
  form.long_ranges = form.long_ranges && loop_.body == nullptr && loop_.loop != nullptr &&
                     !is_narrow_float(loop_.out_dtype) && compute_of(loop_.out_dtype) == loop_.compute;
  form.converts = loop_.body == nullptr && loop_.loop == nullptr && !is_narrow_float(loop_.out_dtype) &&
                  compute_of(loop_.out_dtype) == loop_.compute;
  nest_ = LoopNest(shape, strides);
}

void Walk::read_params(const Block& block, double* p) const {
  for (std::size_t k = 0; k < params_.size(); ++k) {
    const auto& [param, dtype] = params_[k];
    p[k] = param.input ? read_scalar(loop_.kernels, dtype, block.in(*param.input)) : param.value;
  }
  if (prepare_) prepare_(p);
}

/// The nest of all blocks, where they can run as one flat loop.
std::optional<LoopNest> Walk::flat_nest(const BlockRun& run) const {
  for (const auto& [param, dtype] : params_) {
    if (param.input && run.in_stride[*param.input] != 0) return std::nullopt;
  }
  std::array<RunInput, kMaxOperands> inputs;
  for (std::size_t j = 0; j < loop_.operands.size(); ++j) {
    if (run.in_stride[loop_.operands[j].input] % loop_.operands[j].size != 0) return std::nullopt;
    inputs[j] = {loop_.operands[j].input, 1};
  }
  const std::int64_t bytes = elements_ * static_cast<std::int64_t>(popsr::size_of(loop_.out_dtype));
  std::optional<LoopNest> nest =
      merge_blocks(run, nest_, {inputs.data(), loop_.operands.size()}, output_, bytes, loop_.form.stochastic);
  if (!nest || elements_ > 1) return nest;
  // One element per block: the blocks are the row, whose elements are adjacent or all the same.
  for (std::size_t j = 0; j < loop_.operands.size(); ++j) {
    if (nest->stride(0, j) != 0 && nest->stride(0, j) != loop_.operands[j].size) return std::nullopt;
  }
  return nest;
}

void Walk::run_flat(const BlockRun& run, const LoopNest& nest) const {
  std::array<double, kMaxParams> p = {};
  read_params(Block(run, 0), p.data());
  std::array<const std::byte*, kMaxOperands> in = {};
  for (std::size_t j = 0; j < loop_.operands.size(); ++j) in[j] = run.in[loop_.operands[j].input];
  const NoiseKey* const key = Block(run, 0).key(loop_.form.stochastic, output_);
  const std::int64_t total = run.blocks * elements_;
  parallel_for(run.pool, total, kTile, total * work_, [&](std::int64_t begin, std::int64_t end) {
    ElementwisePass pass(loop_, thread_scratch(ElementwisePass::scratch_bytes(loop_)), run.first);
    pass.run(nest, in.data(), run.out[output_], begin, end, p.data(), key);
  });
}

/// Runs the blocks one by one; the flat range of all blocks is split among threads.
void Walk::run_blocks(const BlockRun& run) const {
  for_each_range_with(run, {.units = elements_, .grain = kTile, .work = elements_ * work_}, [&] {
    return [this,
            pass = ElementwisePass(loop_, thread_scratch(ElementwisePass::scratch_bytes(loop_)), run.first)](
               const Block& block, std::int64_t begin, std::int64_t end) mutable {
      std::array<const std::byte*, kMaxOperands> in = {};
      std::array<double, kMaxParams> p = {};
      for (std::size_t j = 0; j < loop_.operands.size(); ++j) in[j] = block.in(loop_.operands[j].input);
      read_params(block, p.data());
      pass.run(nest_, in.data(), block.out(output_), begin, end, p.data(),
               block.key(loop_.form.stochastic, output_));
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
