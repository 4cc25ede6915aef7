// fft: discrete Fourier transforms along an axis of pairs of real and imaginary parts. They are
// computed as float64 and rounded once: to float32 and from there, as all ops, to narrow floats.
#include <memory>
#include <utility>

#include "popsr/base/error.h"
#include "popsr/exec/block_kernel.h"
#include "popsr/ops/attributes.h"
#include "popsr/ops/infer.h"
#include "popsr/ops/linalg/fft_plan.h"
#include "popsr/ops/loops/blocks.h"
#include "popsr/ops/loops/tiles.h"
#include "popsr/ops/registry.h"

namespace popsr {
namespace {

constexpr Attr<bool> kFftInverse{"inverse"};
constexpr Attr<bool> kFftRealPart{"real_part"};
/// The factor 1 / n is the forward transform's, in gradients.
constexpr Attr<bool> kFftTransposed{"transposed"};

std::size_t fft_axis(const Op& op, const Shape& t) {
  return static_cast<std::size_t>(normalize_axis(op.def->name, op.get(kAxis), t.size()));
}

std::vector<OutputDef> infer_fft(const InferContext& context) {
  const TensorType& t = context.type(0);
  const std::size_t axis = fft_axis(context.op, t.shape);
  if (axis + 1 == t.shape.size() || (t.shape.back() != 1 && t.shape.back() != 2)) {
    raise<ShapeError>(
        "{}: operand has no parts, got {} and axis {}, expected 1 or 2 on another axis, the last one",
        context.name(), describe(context, 0), axis);
  }
  Shape shape = t.shape;
  shape.back() = context.get(kFftRealPart) ? 1 : 2;
  return {{{t.dtype, std::move(shape)}, {}}};
}

template <class T>
class Fft {
 public:
  explicit Fft(const EvalSpec& spec)
      : kernels_(spec.kernels),
        dtype_(spec.outputs[0].dtype),
        inverse_(spec.op.get(kFftInverse)),
        narrow_(is_narrow_float(dtype_)),
        stochastic_(spec.stochastic && narrow_) {
    const Shape& t = spec.inputs[0]->shape;
    const auto at = t.begin() + static_cast<std::ptrdiff_t>(fft_axis(spec.op, t));
    outer_ = num_elements(Shape(t.begin(), at));
    n_ = *at;
    inner_ = num_elements(Shape(at + 1, t.end() - 1));
    parts_ = t.back();
    results_ = spec.outputs[0].shape.back();
    if (inverse_ != spec.op.get(kFftTransposed))
      factor_ = 1 / static_cast<double>(std::max<std::int64_t>(n_, 1));
    plan_ = std::make_shared<const FftPlan>(kernels_, std::max<std::int64_t>(n_, 1));
  }

  void operator()(const BlockRun& run) const {
    const std::int64_t lines = outer_ * inner_;
    if (lines * n_ == 0) return;
    std::vector<T> in_room, out_room(static_cast<std::size_t>(narrow_ ? lines * n_ * results_ : 0));
    for_each_block(run, [&](const Block& block) {
      const T* const in = widened(kernels_, dtype_, block.in(0), lines * n_ * parts_, in_room);
      T* const out = narrow_ ? out_room.data() : reinterpret_cast<T*>(block.out());
      parallel_for(run.pool, lines, 1, lines * n_ * 32, [&](std::int64_t begin, std::int64_t end) {
        std::vector<Complex> data(static_cast<std::size_t>(n_)),
            room(static_cast<std::size_t>(plan_->room()));
        for (std::int64_t line = begin; line < end; ++line) {
          const std::int64_t first = line / inner_ * n_ * inner_ + line % inner_;
          load(in + first * parts_, data);
          plan_->run(data.data(), room.data());
          store(data, out + first * results_);
        }
      });
      if (!narrow_) return;
      store_tile(kernels_, kernels::Compute::kF32, dtype_, block.out(), out, nullptr, lines * n_ * results_,
                 block.key(stochastic_), 0);
    });
  }

 private:
  /// The inverse is the transform between exchanges of the parts.
  Complex exchanged(Complex x) const { return inverse_ ? Complex{x.im, x.re} : x; }
  void load(const T* from, std::vector<Complex>& data) const {
    for (Complex& x : data) {
      x = exchanged({from[0], parts_ == 2 ? from[1] : 0});
      from += inner_ * parts_;
    }
  }
  void store(const std::vector<Complex>& data, T* to) const {
    for (const Complex& x : data) {
      const Complex result = exchanged(x) * factor_;
      to[0] = static_cast<T>(result.re);
      if (results_ == 2) to[1] = static_cast<T>(result.im);
      to += inner_ * results_;
    }
  }

  const kernels::KernelTable& kernels_;
  DType dtype_;
  bool inverse_, narrow_, stochastic_;
  std::int64_t outer_ = 1, n_ = 1, inner_ = 1, parts_ = 2, results_ = 2;
  double factor_ = 1;
  std::shared_ptr<const FftPlan> plan_ = nullptr;
};

BlockKernel eval_fft(const EvalSpec& spec) {
  if (spec.outputs[0].dtype == DType::kFloat64) return Fft<double>(spec);
  return Fft<float>(spec);
}

/// The conjugate transform.
GradValue fft_grad(Grad& g) {
  return g.call("fft", {g.dy()},
                {g.same(kAxis), kFftInverse(!g.get(kFftInverse)),
                 kFftRealPart(g.in_type(0).shape.back() == 1), kFftTransposed(!g.get(kFftTransposed))});
}

}  // namespace

std::vector<OpDef> fft_ops() {
  return {{.name = "fft",
           .inputs = {{"t", kFloating}},
           .attrs = {optional(kAxis, -2), optional(kFftInverse, false), optional(kFftRealPart, false),
                     internal(kFftTransposed, false)},
           .infer = infer_fft,
           .kernel = {.eval = eval_fft},
           .grad = per_input({fft_grad}),
           .numerics = kRoundsOnce}};
}

}  // namespace popsr
