// Optimiser steps: adam_updater, lamb_updater and adamax_updater give the step, adam_var_update takes it.
//
// All compute in float32, or in float64 where an operand of the result is one; narrow floats are rounded
// once. Each formula is a fixed sequence of roundings in that type:
//   adam, lamb  m' = m / c1, v' = v / c2;  x = m' / (sqrt(v') + eps)
//   adamax      m' = m / c1;               x = m' / (v + eps)
// and x + wd*w where a weight is given. c = 1 - beta^t, rounded to the dtype of its moment, or 1 without a
// time step. t counts this step too: it is increased, in its own dtype, before anything else.
#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <utility>

#include "popsr/base/error.h"
#include "popsr/exec/block_kernel.h"
#include "popsr/ops/registry.h"
#include "popsr/ops/scalar_params.h"

namespace popsr {
namespace {

using kernels::Compute;
using kernels::ElementwiseOp;

constexpr std::size_t kFirst = 0, kSecond = 1, kWeight = 2, kTimeStep = 3;
constexpr ScalarOperand kDecay{{"weight_decay"}, 4}, kBeta1{{"beta1"}, 5};
constexpr std::size_t kUpdaterInputs = 8;

bool is_wide(const EvalSpec& spec, std::size_t input) {
  return input < spec.inputs.size() && spec.inputs[input] && spec.inputs[input]->dtype == DType::kFloat64;
}
bool has(const EvalSpec& spec, std::size_t input) {
  return input < spec.inputs.size() && spec.inputs[input].has_value();
}

/// args.hi = a kernel of two operands.
void apply(const TileArgs& args, ElementwiseOp ew, void* hi, const void* a, const void* b,
           const double* p = nullptr, void* lo = nullptr) {
  const void* const in[] = {a, b};
  args.kernels.elementwise(ew, args.compute)(hi, lo, in, args.n, p);
}

using Tile = std::array<std::byte, kTile * sizeof(double)>;

/// A tile of one number.
const void* filled(const TileArgs& args, Tile& tile, double value) {
  load_tile(args.kernels, DType::kFloat64, args.compute, tile.data(),
            reinterpret_cast<const std::byte*>(&value), 1);
  repeat_first(tile.data(), static_cast<std::int64_t>(size_of(args.compute)), args.n);
  return tile.data();
}

/// Operands m, v and perhaps w; p: c1, c2, eps, wd.
template <bool kRoot>
void update_tile(const TileArgs& args) {
  alignas(64) Tile first, second, number;
  const void* m = args.in[0];
  const void* v = args.in[1];
  if (args.p[0] != 1.0) {
    apply(args, ElementwiseOp::kDiv, first.data(), m, filled(args, number, args.p[0]));
    m = first.data();
  }
  if constexpr (kRoot) {
    if (args.p[1] != 1.0) {
      apply(args, ElementwiseOp::kDiv, second.data(), v, filled(args, number, args.p[1]));
      v = second.data();
    }
    apply(args, ElementwiseOp::kSqrt, second.data(), v, nullptr);
    v = second.data();
  }
  apply(args, ElementwiseOp::kAdd, second.data(), v, filled(args, number, args.p[2]));
  if (args.in.size() < 3) return apply(args, ElementwiseOp::kDiv, args.hi, m, second.data());
  apply(args, ElementwiseOp::kDiv, first.data(), m, second.data());
  const double factors[] = {1.0, args.p[3]};
  apply(args, ElementwiseOp::kScaledAdd, args.hi, first.data(), args.in[2], factors, args.lo);
}

void count_tile(const TileArgs& args) {
  alignas(64) Tile one;
  apply(args, ElementwiseOp::kAdd, args.hi, args.in[0], filled(args, one, 1.0));
}

/// beta^t: by squaring in float64 from the highest bit of a whole t down; other t by the kernel for powers.
double power(const kernels::KernelTable& kernels, double beta, double t) {
  if (t >= 0 && t <= 0x1p53 && std::trunc(t) == t) {
    const auto exponent = static_cast<std::uint64_t>(t);
    double result = 1.0;
    for (int bit = 53; bit >= 0; --bit) {
      result *= result;
      if ((exponent >> bit & 1U) != 0) result *= beta;
    }
    return result;
  }
  double result = 0;
  const void* const in[] = {&beta, &t};
  kernels.elementwise(ElementwiseOp::kPow, Compute::kF64)(&result, nullptr, in, 1, nullptr);
  return result;
}

/// The factor 1 - beta^t of one moment.
struct Correction {
  const kernels::KernelTable& kernels;
  DType moment;
  bool wide;  ///< The power in float64; else it is rounded to float32, and beta is.

  double operator()(double beta, double t) const {
    double result = 0;
    if (wide) {
      result = 1.0 - power(kernels, beta, t);
    } else {
      const double single = static_cast<double>(static_cast<float>(beta));
      result = static_cast<double>(1.0F - static_cast<float>(power(kernels, single, t)));
    }
    std::array<std::byte, sizeof(double)> rounded = {};
    store_tile(kernels, Compute::kF64, moment, rounded.data(), &result, nullptr, 1, nullptr, 0);
    return read_scalar(kernels, moment, rounded.data());
  }
};

/// p from (beta1, beta2, eps, wd, t) to (c1, c2, eps, wd).
std::function<void(double*)> corrections(const EvalSpec& spec) {
  if (!has(spec, kTimeStep)) return [](double* p) { p[0] = p[1] = 1.0; };
  const bool wide = is_wide(spec, kFirst) || is_wide(spec, kSecond);
  const Correction first{spec.kernels, spec.inputs[kFirst]->dtype, wide};
  const Correction second{spec.kernels, spec.inputs[kSecond]->dtype, wide};
  return [first, second](double* p) {
    p[0] = first(p[0], p[4]);
    p[1] = second(p[1], p[4]);
  };
}

/// Differences between the three updaters.
struct Rule {
  bool adamax = false;

  ScalarOperand beta2() const { return {{"beta2"}, kBeta1.input + 1}; }  ///< Not of adamax.
  ScalarOperand epsilon() const { return {{"epsilon"}, kBeta1.input + (adamax ? 1 : 2)}; }
};

std::vector<OutputDef> infer_updater(const InferContext& context, Rule rule) {
  require_equal_shapes(context, kFirst, kSecond);
  const bool has_weight = context.has(kWeight), counts = context.has(kTimeStep);
  if (has_weight) require_equal_shapes(context, kFirst, kWeight);
  if (rule.adamax && !counts) {
    raise<AttributeValueError>("{}: time_step is missing, got none, expected a tensor", context.name());
  }
  check_scalar(context, kDecay, false);
  if (!has_weight && may_be_nonzero(context, kDecay)) {
    raise<AttributeValueError>("{}: weight is missing, got a weight_decay, expected the weight that decays",
                               context.name());
  }
  check_scalar(context, kBeta1, counts);
  if (!rule.adamax) check_scalar(context, rule.beta2(), counts);
  check_scalar(context, rule.epsilon(), true);
  std::vector<OutputDef> outputs = {
      {context.type(has_weight ? kWeight : kFirst), common_meta_shape(context)}};
  if (counts) {
    if (num_elements(context.type(kTimeStep).shape) != 1) {
      raise<ShapeError>("{}: time_step is not a scalar, got {}, expected one element", context.name(),
                        describe(context, kTimeStep));
    }
    outputs.push_back({context.type(kTimeStep), context.tensor(kTimeStep).meta_shape});
  }
  return outputs;
}

template <bool kAdamax>
std::vector<OutputDef> infer_updater(const InferContext& context) {
  return infer_updater(context, Rule{kAdamax});
}

BlockKernel updater_kernel(const EvalSpec& spec, Rule rule) {
  const bool has_weight = has(spec, kWeight), counts = has(spec, kTimeStep);
  ElementwiseOptions options{.operands = {kFirst, kSecond},
                             .prepare = corrections(spec),
                             .residual = has_weight,
                             .compute = spec.outputs[0].dtype,
                             .work = 16};
  if (has_weight) options.operands.push_back(kWeight);
  if (is_wide(spec, kFirst) || is_wide(spec, kSecond)) options.compute = DType::kFloat64;
  options.params = {counts ? scalar_param(spec, kBeta1, 0.0) : ScalarParam{},
                    counts && !rule.adamax ? scalar_param(spec, rule.beta2(), 0.0) : ScalarParam{},
                    scalar_param(spec, rule.epsilon(), 0.0), scalar_param(spec, kDecay, 0.0)};
  if (counts) options.params.push_back({.input = kTimeStep});
  return elementwise_kernel(spec, rule.adamax ? update_tile<false> : update_tile<true>, std::move(options));
}

/// Reads the step after it was counted, as the updater does.
template <bool kAdamax>
BlockKernel eval_updater(const EvalSpec& spec) {
  BlockKernel update = updater_kernel(spec, Rule{kAdamax});
  if (!has(spec, kTimeStep)) return update;
  BlockKernel count = elementwise_kernel(spec, count_tile, {.operands = {kTimeStep}, .output = 1});
  return [update = std::move(update), count = std::move(count),
          inputs = spec.inputs.size()](const BlockRun& run) {
    count(run);
    std::array<const std::byte*, kUpdaterInputs> in = {};
    std::array<std::ptrdiff_t, kUpdaterInputs> in_stride = {};
    std::copy_n(run.in, inputs, in.begin());
    std::copy_n(run.in_stride, inputs, in_stride.begin());
    in[kTimeStep] = run.out[1];
    in_stride[kTimeStep] = run.out_stride[1];
    BlockRun counted = run;
    counted.in = in.data();
    counted.in_stride = in_stride.data();
    update(counted);
  };
}

/// The step is counted from itself alone.
PartitionId updater_partition(const RuleContext& context, std::size_t output) {
  if (output == 1) return context.table.meet(context.inputs[kTimeStep], context.exec);
  return meet_of_inputs(context, output);
}

// adam_var_update

constexpr std::size_t kSquaredNorm = 2, kSquaredStep = 3;
constexpr ScalarOperand kRate{{"learning_rate"}, 4}, kMaxNorm{{"max_weight_norm"}, 5};

std::vector<OutputDef> infer_var_update(const InferContext& context) {
  require_equal_shapes(context, 0, 1);
  check_scalar(context, kRate, true);
  check_scalar(context, kMaxNorm, false);
  for (const std::size_t norm : {kSquaredNorm, kSquaredStep}) {
    if (num_elements(context.type(norm).shape) == 1) continue;
    raise<ShapeError>("{}: {} is not a scalar, got {}, expected one element", context.name(),
                      context.op.def->inputs[norm].name, describe(context, norm));
  }
  return {{context.type(0), context.tensor(0).meta_shape}};
}

/// p from (r1, r2, rate, greatest norm) to the factors of t and x.
template <class T, bool kBounded>
void step_factors(double* p) {
  const auto r1 = static_cast<T>(p[0]), r2 = static_cast<T>(p[1]), rate = static_cast<T>(p[2]);
  const auto bound = static_cast<T>(p[3]);
  T ratio = 1;
  if (kBounded && r1 != 0 && r2 != 0 && bound != 0) {
    const T norm = std::sqrt(r1);
    ratio = (bound < norm ? bound : norm) / std::sqrt(r2);
  }
  p[0] = 1.0;
  p[1] = -static_cast<double>(static_cast<T>(rate * ratio));
}

/// t = t - (rate * ratio) * x.
BlockKernel eval_var_update(const EvalSpec& spec) {
  const bool wide = info(spec.outputs[0].dtype).compute == DType::kFloat64;
  const bool bounded = has(spec, kMaxNorm.input) || spec.op.find(kMaxNorm.attr).has_value();
  ElementwiseOptions options{.operands = {0, 1},
                             .params = {{.input = kSquaredNorm},
                                        {.input = kSquaredStep},
                                        scalar_param(spec, kRate, 0.0),
                                        scalar_param(spec, kMaxNorm, 0.0)}};
  if (wide) {
    options.prepare = bounded ? step_factors<double, true> : step_factors<double, false>;
  } else {
    options.prepare = bounded ? step_factors<float, true> : step_factors<float, false>;
  }
  return elementwise_kernel(spec, ElementwiseOp::kScaledAdd, std::move(options));
}

/// Without a greatest norm the ratio is 1, whatever the norms are.
PartitionId var_update_partition(const RuleContext& context, std::size_t) {
  const bool bounded =
      context.op.inputs.size() > kMaxNorm.input && context.op.inputs[kMaxNorm.input] != kNone;
  const auto bound = context.op.find(kMaxNorm.attr);
  const bool reads_norms = bounded || (bound && *bound != 0.0);
  PartitionId fact = context.exec;
  for (std::size_t i = 0; i < context.inputs.size(); ++i) {
    const bool is_norm = i == kSquaredNorm || i == kSquaredStep;
    if (!is_norm || reads_norms) fact = context.table.meet(fact, context.inputs[i]);
  }
  return fact;
}

/// Types of the step counter; a counter of a narrow float would soon stop counting.
constexpr DTypeSet kCounts = kIntegers | DTypeSet{DType::kFloat32, DType::kFloat64};

OpDef updater(std::string_view name, bool adamax) {
  OpDef def{.name = name,
            .inputs = {{"acc_first_order", kFloating},
                       {"acc_second_order", kFloating},
                       {.name = "weight", .dtypes = kFloating, .optional = true},
                       {.name = "time_step", .dtypes = kCounts, .optional = true}},
            .infer = adamax ? infer_updater<true> : infer_updater<false>,
            .kernel = {.eval = adamax ? eval_updater<true> : eval_updater<false>},
            .replicas = {.partition = updater_partition,
                         .rule_text = "meet of inputs; of the step, partition of time_step"},
            .memory = {.effects = {{.input = kTimeStep, .output = 1, .in_popart = false}}},
            .numerics = kPointwise};
  const Rule rule{adamax};
  std::vector<ScalarOperand> scalars = {kDecay, kBeta1};
  if (!adamax) scalars.push_back(rule.beta2());
  scalars.push_back(rule.epsilon());
  for (const ScalarOperand& scalar : scalars) {
    def.inputs.push_back(scalar_input(scalar));
    def.attrs.push_back(scalar_attr(scalar));
  }
  return def;
}

}  // namespace

std::vector<OpDef> optimisers_ops() {
  return {
      updater("adam_updater", false),
      updater("lamb_updater", false),
      updater("adamax_updater", true),
      {.name = "adam_var_update",
       .inputs = {{"t", kFloating},
                  {"x", kNumbers},
                  {"r1", kNumbers},
                  {"r2", kNumbers},
                  scalar_input(kRate),
                  scalar_input(kMaxNorm)},
       .attrs = {scalar_attr(kRate), scalar_attr(kMaxNorm)},
       .infer = infer_var_update,
       .kernel = {.eval = eval_var_update},
       .replicas = {.partition = var_update_partition,
                    .rule_text = "meet of inputs; without r1 and r2 where max_weight_norm is 0 or absent"},
       .memory = {.effects = {{.input = 0, .output = 0}}},
       .numerics = kPointwise}};
}

}  // namespace popsr
