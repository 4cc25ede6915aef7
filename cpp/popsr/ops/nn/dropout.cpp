// dropout and shaped_dropout: elements are zero with chance p, the others are t * (1 / (1 - p)).
//
// Element i of the mask, counted in C order in its own shape, is dropped where U / 2^64 < p, with the 64 bits
// U that the seed draws for it (random.h). The gradient is the same op on the gradient: the seed is the mask.
#include <algorithm>
#include <array>
#include <cmath>
#include <memory>

#include "popsr/base/error.h"
#include "popsr/exec/block_kernel.h"
#include "popsr/ops/attributes.h"
#include "popsr/ops/flops.h"
#include "popsr/ops/infer.h"
#include "popsr/ops/loops/blocks.h"
#include "popsr/ops/loops/elementwise_walk.h"
#include "popsr/ops/random/random.h"
#include "popsr/ops/registry.h"

namespace popsr {

namespace {

using kernels::Compute;
using kernels::ElementwiseOp;
using kernels::KernelTable;

constexpr Attr<double> kP{"p"};
constexpr Attr<double> kRatio{"ratio"};

/// The chance: the last attribute of both ops, under another name.
double ratio_of(const Op& op) { return std::get<double>(op.attrs.back()); }

/// Elements of masks, by blocks of the op's seed.
class Masks {
 public:
  Masks(const KernelTable& kernels, double p)
      : kernels_(kernels), threshold_(static_cast<std::uint64_t>(std::ceil(p * 0x1p64))) {}

  /// kept[0 .. n-1] = 1 where elements first, first + 1, ... of the block's mask stay, else 0.
  void draw(const Block& block, std::int64_t first, std::int64_t n, std::uint8_t* kept) {
    if (block.index() != block_) {
      key_ = drawn_key(kernels_, read_seed(block.in(1)), Drawn::kMask);
      block_ = block.index();
    }
    kernels_.keep_mask(kept, n, key_, static_cast<std::uint64_t>(first), threshold_);
  }

 private:
  const KernelTable& kernels_;
  std::uint64_t threshold_;
  std::int64_t block_ = -1;
  kernels::NoiseKey key_ = {};  ///< Noise key of block_.
};

// Dropout

class Dropout {
 public:
  explicit Dropout(const EvalSpec& spec)
      : kernels_(spec.kernels),
        dtype_(spec.outputs[0].dtype),
        elements_(num_elements(spec.outputs[0].shape)),
        p_(ratio_of(spec.op)),
        stochastic_(spec.stochastic && is_narrow_float(dtype_)) {}

  void operator()(const BlockRun& run) const {
    for_each_tile_with(run, elements_, elements_ * 4, [this] {
      return [this, masks = Masks(kernels_, p_)](const Block& block, std::int64_t first,
                                                 std::int64_t n) mutable { tile(block, masks, first, n); };
    });
  }

 private:
  void tile(const Block& block, Masks& masks, std::int64_t first, std::int64_t n) const {
    const std::int64_t at = first * static_cast<std::int64_t>(size_of(dtype_));
    const std::byte* const in = block.in(0) + at;
    std::byte* const out = block.out() + at;
    alignas(64) std::array<std::uint8_t, kTile> kept;
    masks.draw(block, first, n, kept.data());
    const double scale = 1.0 / (1.0 - p_);
    if (dtype_ == DType::kFloat64) {
      return kernels_.keep_scaled_f64(reinterpret_cast<double*>(out), reinterpret_cast<const double*>(in),
                                      kept.data(), n, scale);
    }
    if (dtype_ == DType::kFloat32) {
      return kernels_.keep_scaled_f32(reinterpret_cast<float*>(out), reinterpret_cast<const float*>(in),
                                      kept.data(), n, static_cast<float>(scale));
    }
    alignas(64) std::array<float, kTile> values;
    load_tile(kernels_, dtype_, Compute::kF32, values.data(), in, n);
    kernels_.keep_scaled_f32(values.data(), values.data(), kept.data(), n, static_cast<float>(scale));
    store_tile(kernels_, Compute::kF32, dtype_, out, values.data(), nullptr, n, block.key(stochastic_),
               static_cast<std::uint64_t>(first));
  }

  const KernelTable& kernels_;
  DType dtype_;
  std::int64_t elements_;
  double p_;
  bool stochastic_;
};

BlockKernel eval_dropout(const EvalSpec& spec) {
  if (ratio_of(spec.op) == 0) return copy_kernel(spec);
  return Dropout(spec);
}

// shaped_dropout: the mask is drawn once, then broadcast

/// in[0] = t, in[1] = mask, p[0] = scale.
void masked(const TileArgs& args) {
  alignas(64) std::array<double, kTile> scaled;
  alignas(64) static constexpr std::array<double, kTile> kZeros = {};
  const auto apply = [&](ElementwiseOp op, void* to, const std::array<const void*, 3>& in) {
    args.kernels.elementwise(op, args.compute)(to, nullptr, in.data(), args.n, args.p);
  };
  apply(ElementwiseOp::kScale, scaled.data(), {args.in[0]});
  apply(ElementwiseOp::kSelect, args.hi, {args.in[1], scaled.data(), kZeros.data()});
}

const Shape& mask_shape(const Op& op) { return op.get(kShape); }

class ShapedDropout {
 public:
  explicit ShapedDropout(const EvalSpec& spec)
      : kernels_(spec.kernels), p_(ratio_of(spec.op)), elements_(num_elements(mask_shape(spec.op))) {
    EvalSpec masking = spec;
    masking.inputs[1] = TensorType{DType::kBool, mask_shape(spec.op)};
    apply_ = elementwise_kernel(masking, masked,
                                {.operands = {0, 1}, .params = {{.value = 1.0 / (1.0 - p_)}}, .work = 2});
  }

  void operator()(const BlockRun& run) const {
    const bool shared = run.in_stride[1] == 0;
    const std::int64_t masks = shared ? std::min<std::int64_t>(1, run.blocks) : run.blocks;
    const auto mask =
        std::make_unique_for_overwrite<std::byte[]>(static_cast<std::size_t>(masks * elements_));
    BlockRun drawing = run;
    drawing.blocks = masks;
    for_each_tile_with(drawing, elements_, elements_ * 4, [&] {
      return [this, &mask, masks = Masks(kernels_, p_)](const Block& block, std::int64_t first,
                                                        std::int64_t n) mutable {
        std::byte* const kept = mask.get() + block.index() * elements_ + first;
        masks.draw(block, first, n, reinterpret_cast<std::uint8_t*>(kept));
      };
    });
    const std::array<const std::byte*, 2> in = {run.in[0], mask.get()};
    const std::array<std::ptrdiff_t, 2> stride = {run.in_stride[0], shared ? 0 : elements_};
    BlockRun masking = run;
    masking.in = in.data();
    masking.in_stride = stride.data();
    apply_(masking);
  }

 private:
  const KernelTable& kernels_;
  double p_;
  std::int64_t elements_;  ///< Number of elements of the mask.
  BlockKernel apply_;
};

BlockKernel eval_shaped_dropout(const EvalSpec& spec) {
  if (ratio_of(spec.op) == 0) return copy_kernel(spec);
  return ShapedDropout(spec);
}

// Definitions

std::vector<OutputDef> infer_dropout(const InferContext& context) {
  check_seed(context, 1);
  const double p = ratio_of(context.op);
  if (!(p >= 0 && p < 1)) {
    raise<AttributeValueError>("{}: {} is not a chance below 1, got {}, expected 0 <= {} < 1", context.name(),
                               context.op.def->attrs.back().name, p, context.op.def->attrs.back().name);
  }
  return {{context.type(0), context.tensor(0).meta_shape}};
}

std::vector<OutputDef> infer_shaped_dropout(const InferContext& context) {
  const Shape& shape = mask_shape(context.op);
  const Shape& t = context.type(0).shape;
  if (std::ranges::any_of(shape, [](std::int64_t extent) { return extent < 0; }) ||
      broadcast_shapes(context.name(), t, shape) != t) {
    raise<ShapeError>(
        "{}: shape of the mask does not broadcast to the operand, got {} for {}, expected extents "
        "of the operand or 1",
        context.name(), to_string(shape), describe(context, 0));
  }
  return infer_dropout(context);
}

/// Without a chance the seed does not matter.
PartitionId dropout_rule(const RuleContext& context, std::size_t output) {
  if (ratio_of(context.op) == 0) return context.table.meet(context.inputs[0], context.exec);
  return meet_of_inputs(context, output);
}

GradValue dropout_grad(Grad& g) {
  constexpr std::size_t kSeed = 1;
  return g.call(g.op().def->name, {g.dy(), g.x(kSeed)}, g.same(g.op().def->attrs));
}

OpDef dropout_op(std::string_view name, std::vector<AttrDef> attrs, InferFn infer, EvalFn eval) {
  return {.name = name,
          .inputs = {{"t", kFloating}, seed_input("seed_tensor")},
          .attrs = std::move(attrs),
          .infer = infer,
          .kernel = {.eval = eval, .flops = flops_per_output<1>},
          .grad = per_input({dropout_grad}),
          .replicas = {.partition = dropout_rule,
                       .rule_text = "meet of inputs; partition of t where nothing is dropped"},
          .numerics = kRoundsOnce};
}

}  // namespace

std::vector<OpDef> dropout_ops() {
  return {
      dropout_op("dropout", {required(kP)}, infer_dropout, eval_dropout),
      dropout_op("shaped_dropout", {required(kShape), required(kRatio)}, infer_shaped_dropout,
                 eval_shaped_dropout),
  };
}

}  // namespace popsr
