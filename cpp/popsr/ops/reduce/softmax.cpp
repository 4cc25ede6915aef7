// softmax and log_softmax over one axis, and their gradients; sums through the 16 lanes of kernels::ReduceFn.
#include <algorithm>
#include <array>

#include "popsr/exec/block_kernel.h"
#include "popsr/ops/attributes.h"
#include "popsr/ops/flops.h"
#include "popsr/ops/infer.h"
#include "popsr/ops/loops/axis_rows.h"
#include "popsr/ops/loops/tiles.h"
#include "popsr/ops/registry.h"

namespace popsr {

namespace {

using kernels::Compute;
using kernels::ElementwiseOp;
using kernels::KernelTable;

const kernels::SoftmaxKernels& wide_kernels(const KernelTable& kernels, Compute compute) {
  return compute == Compute::kF64 ? *kernels.softmax_f64 : *kernels.softmax_f32;
}
/// Kernels for rows as they are stored, or null.
const kernels::SoftmaxKernels* kernels_of(const KernelTable& kernels, DType dtype) {
  if (dtype == DType::kBFloat16) return kernels.softmax_bf16;
  if (dtype == DType::kFloat16) return kernels.softmax_f16;
  return is_narrow_float(dtype) ? nullptr : &wide_kernels(kernels, compute_of(dtype));
}

/// exp(x - max) / sum
void softmax_row(const KernelTable& kernels, Compute compute, std::byte* out, float*,
                 const std::byte* const* in, std::int64_t n) {
  wide_kernels(kernels, compute).softmax(out, nullptr, in[0], 1, n, nullptr);
}

/// (x - max) - log(sum of exp(x - max))
void log_softmax_row(const KernelTable& kernels, Compute compute, std::byte* out, float* lo,
                     const std::byte* const* in, std::int64_t n) {
  wide_kernels(kernels, compute).log_softmax(out, lo, in[0], 1, n, nullptr);
}

/// Tiles of a row.
class Row {
 public:
  Row(const KernelTable& kernels, Compute compute, std::int64_t n)
      : kernels_(kernels), type_(compute), size_(static_cast<std::int64_t>(size_of(compute))), n_(n) {}

  /// Computes to = ew(a, b), tile by tile; `lo` may be null. `b_is_tile`: b is one tile that is combined
  /// with every tile of `a`.
  void apply(ElementwiseOp ew, std::byte* to, float* lo, const std::byte* a, const std::byte* b,
             bool b_is_tile = false) const {
    for (std::int64_t i = 0; i < n_; i += kTile) {
      const std::array<const void*, 2> operands = {a + i * size_, b_is_tile ? b : b + i * size_};
      kernels_.elementwise(ew, type_)(to + i * size_, lo == nullptr ? nullptr : lo + i, operands.data(),
                                      std::min(kTile, n_ - i), nullptr);
    }
  }
  /// tile[0] = the reduction of a row.
  void reduce(kernels::Reduce reduce, std::byte* tile, const std::byte* row) const {
    kernels_.reduce[static_cast<std::size_t>(reduce)][static_cast<std::size_t>(type_)](tile, nullptr, row, 1,
                                                                                       n_, n_);
  }
  /// tile[i] = tile[0]
  void fill(std::byte* tile) const { repeat_first(tile, size_, std::min(kTile, n_)); }

 private:
  const KernelTable& kernels_;
  kernels::Compute type_;
  std::int64_t size_, n_;
};

using Tile = std::array<std::byte, kTile * sizeof(double)>;

/// y * (dy - sum(y * dy))
void softmax_grad_row(const KernelTable& kernels, Compute compute, std::byte* out, float*,
                      const std::byte* const* in, std::int64_t n) {
  const Row row(kernels, compute, n);
  alignas(64) Tile sum;
  row.apply(ElementwiseOp::kMul, out, nullptr, in[0], in[1]);
  row.reduce(kernels::Reduce::kSum, sum.data(), out);
  row.fill(sum.data());
  row.apply(ElementwiseOp::kSub, out, nullptr, in[1], sum.data(), true);
  row.apply(ElementwiseOp::kMul, out, nullptr, in[0], out);
}

/// dy - exp(y) * sum(dy)
void log_softmax_grad_row(const KernelTable& kernels, Compute compute, std::byte* out, float* lo,
                          const std::byte* const* in, std::int64_t n) {
  const Row row(kernels, compute, n);
  alignas(64) Tile sum;
  row.reduce(kernels::Reduce::kSum, sum.data(), in[1]);
  row.fill(sum.data());
  row.apply(ElementwiseOp::kExp, out, nullptr, in[0], in[0]);
  row.apply(ElementwiseOp::kMul, out, nullptr, out, sum.data(), true);
  row.apply(ElementwiseOp::kSub, out, lo, in[1], out);
}

std::vector<OutputDef> infer_softmax(const InferContext& context) {
  normalize_axis(context.name(), context.get(kAxis), context.type(0).shape.size());
  return {{context.type(0), {}}};
}

BlockKernel eval_softmax(const EvalSpec& spec) {
  const kernels::SoftmaxKernels* const stored = kernels_of(spec.kernels, spec.outputs[0].dtype);
  return AxisRows(spec, softmax_row, 1).with_stored_rows(stored == nullptr ? nullptr : stored->softmax);
}
BlockKernel eval_log_softmax(const EvalSpec& spec) {
  const kernels::SoftmaxKernels* const stored = kernels_of(spec.kernels, spec.outputs[0].dtype);
  return AxisRows(spec, log_softmax_row, 1, true)
      .with_stored_rows(stored == nullptr ? nullptr : stored->log_softmax);
}
BlockKernel eval_softmax_grad(const EvalSpec& spec) { return AxisRows(spec, softmax_grad_row, 2); }
BlockKernel eval_log_softmax_grad(const EvalSpec& spec) {
  return AxisRows(spec, log_softmax_grad_row, 2, true);
}

GradValue softmax_grad(Grad& g) { return g.call("softmax_grad", {g.y(), g.dy()}, {g.same(kAxis)}); }

GradValue log_softmax_grad(Grad& g) { return g.call("log_softmax_grad", {g.y(), g.dy()}, {g.same(kAxis)}); }

}  // namespace

std::vector<OpDef> softmax_ops() {
  const auto along_axis = [](std::string_view name, std::vector<InputDef> inputs, KernelAspect kernel,
                             InputGradFn grad) {
    return OpDef{.name = name,
                 .inputs = std::move(inputs),
                 .attrs = {required(kAxis)},
                 .infer = infer_softmax,
                 .kernel = kernel,
                 .grad = grad == nullptr ? GradAspect{} : per_input({grad}),
                 .numerics = kRoundsOnce,
                 .program = {.internal = grad == nullptr}};
  };
  const std::vector<InputDef> one = {{"t", kFloating}};
  const std::vector<InputDef> two = {{"y", kFloating}, {"dy", kFloating}};
  return {
      along_axis("softmax", one, {.eval = eval_softmax, .flops = flops_per_output<5>}, softmax_grad),
      along_axis("softmax_grad", two, {.eval = eval_softmax_grad}, nullptr),
      along_axis("log_softmax", one, {.eval = eval_log_softmax, .flops = flops_per_output<5>},
                 log_softmax_grad),
      along_axis("log_softmax_grad", two, {.eval = eval_log_softmax_grad}, nullptr),
  };
}

}  // namespace popsr
