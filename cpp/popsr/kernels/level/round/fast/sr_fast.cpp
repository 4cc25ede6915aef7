#include "popsr/kernels/level/round/fast/sr_fast.h"

#include "popsr/kernels/level/round/exact/sr_exact.h"
#include "popsr/kernels/level/round/fast/sr_flush-inl.h"
#include "popsr/kernels/level/round/fast/sr_vector_sums-inl.h"

namespace popsr::kernels {
namespace {

template <bool kEven>
struct Drawn {
  const std::uint16_t* words;
  [[gnu::always_inline]] std::uint16_t operator()(std::int64_t i) const {
    return kEven ? static_cast<std::uint16_t>((words[i] >> 15) ^ 1) : words[i];
  }
};

template <class Step>
using OutputBits = typename Step::To::Bits;

/// Operands of a tile.
template <class Step>
struct Operands {
  const typename Step::X::Bits* x;
  const typename Step::Y::Bits* y;
  typename Step::Word flip;
};

/// True if some elements are hard. `stream`: around the caches, of vector sums only.
template <class Step>
[[gnu::noinline]] bool guess_tile(OutputBits<Step>* out, Operands<Step> in, Drawn<Step::kEven> noise,
                                  std::int64_t n, [[maybe_unused]] bool stream) {
  if constexpr (kHasVectorSums<Step>) {
    return add_vectors<typename VectorSumsOf<Step>::Sums>(out, in.x, in.y, in.flip, noise.words, n, stream);
  } else {
    return step_tile<Step>(out, in.x, in.y, in.flip, noise, n);
  }
}
template <class Step>
struct GuessMode {
  using type = typename Step::Mode;
};
template <class Step>
requires kHasVectorSums<Step>
struct GuessMode<Step> {
  using type = TowardZero;
};

template <class Step>
[[gnu::noinline]] void mark(FastTile<Step>& tile, Operands<Step> in, Drawn<Step::kEven> noise,
                            std::int64_t n) {
  mark_tile<Step>(tile.hard, in.x, in.y, in.flip, noise, n);
}

/// Redoes the marked elements.
template <class Step>
[[gnu::noinline]] void round_hard(FastTile<Step>& tile, OutputBits<Step>* out, Operands<Step> operands,
                                  const SrCall& call, std::uint64_t element, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    if (tile.hard[i] == 0) continue;
    const double in[3] = {Step::X::number(operands.x[i]), Step::Y::number(operands.y[i]), 0.0};
    const std::uint64_t u = noise_of(element + static_cast<std::uint64_t>(i), call.rounding.key);
    out[i] = static_cast<OutputBits<Step>>(round_element(call, in, u));
  }
}

/// Operation of a step on y, or its factor.
template <class Word>
Word flip_of(const SrCall& call) {
  if (call.op == SrOp::kAxpy) return static_cast<Word>(bits_of(call.scalar));
  return call.op == SrOp::kSub ? Word{1} << (8 * sizeof(Word) - 1) : 0;
}

/// One tile of the call, with results to `out`.
template <class Step>
void run_tile(FastTile<Step>& tile, NoiseTile& noise, OutputBits<Step>* out, const SrCall& call,
              std::int64_t done, std::int64_t n, bool stream = false) {
  const void* second = call.in[call.op == SrOp::kCast ? 0 : 1];
  const Operands<Step> in = {static_cast<const typename Step::X::Bits*>(call.in[0]) + done,
                             static_cast<const typename Step::Y::Bits*>(second) + done,
                             flip_of<typename Step::Word>(call)};
  const std::uint64_t element = call.rounding.first + static_cast<std::uint64_t>(done);
  const Drawn<Step::kEven> drawn = {noise.draw(element, n, call.rounding.key)};
  bool hard = false;
  {
    [[maybe_unused]] const typename GuessMode<Step>::type mode;
    hard = guess_tile<Step>(out, in, drawn, n, stream);
  }
  if (hard) {
    [[maybe_unused]] const typename Step::Mode mode;
    mark<Step>(tile, in, drawn, n);
  }
  if (hard) round_hard<Step>(tile, out, in, call, element, n);
}

template <class Step>
void run(const SrCall& call) {
  using Bits = OutputBits<Step>;
  auto* out = static_cast<Bits*>(call.out);
  FastTile<Step> tile;
  NoiseTile noise;
  std::int64_t n = call.stream ? until_aligned(out, sizeof(Bits)) : 0;
  if (n == 0) n = tile.kElements;
  for (std::int64_t done = 0; done < call.n; done += n, n = tile.kElements) {
    if (n > call.n - done) n = call.n - done;
    const std::int64_t bytes = n * static_cast<std::int64_t>(sizeof(Bits));
    if (kHasVectorSums<Step> && can_stream(out + done, bytes, call.stream)) {
      run_tile<Step>(tile, noise, out + done, call, done, n, true);
    } else {
      run_tile<Step>(tile, noise, tile.out, call, done, n);
      flush_tile(out + done, tile.out, bytes, call.stream);
    }
  }
  if (call.stream) finish_stream();
}

/// A call with a residual: results go straight to memory, which no operand shares.
template <class Step>
void run_direct(const SrCall& call) {
  auto* out = static_cast<OutputBits<Step>*>(call.out);
  FastTile<Step> tile;
  NoiseTile noise;
  for (std::int64_t done = 0; done < call.n; done += tile.kElements) {
    const std::int64_t n = tile.kElements < call.n - done ? tile.kElements : call.n - done;
    run_tile<Step>(tile, noise, out + done, call, done, n);
  }
}

using RunFn = void (*)(const SrCall& call);

template <class To, class X, class Y, bool kEven>
constexpr RunFn kRunSum = run<TruncatedStep<To, X, Y, true, kEven>>;
template <class To>
constexpr RunFn kRunCast = run<TruncatedStep<To, FromF32, FromF32, false, false>>;

template <bool kEven>
RunFn sum_kernel(FloatFormat to, FloatFormat x, FloatFormat y) {
  if (to != x || (y != x && (y != FloatFormat::kF32 || size_of(x) != 2))) return nullptr;
  switch (to) {
    case FloatFormat::kF64:
      return run<PairedStep<ToF64, FromF64, kEven>>;
    case FloatFormat::kF32:
      return run<PairedStep<ToF32, FromF32, kEven>>;
    case FloatFormat::kF16:
      return y == x ? kRunSum<ToScaledF16, FromScaledF16, FromScaledF16, kEven>
                    : (kEven ? nullptr : kRunSum<ToF16, FromF16, FromF32, false>);
    case FloatFormat::kBf16:
      return y == x ? kRunSum<ToBf16, FromBf16, FromBf16, kEven> : kRunSum<ToBf16, FromBf16, FromF32, kEven>;
    default:
      return nullptr;
  }
}

RunFn cast_kernel(FloatFormat to, FloatFormat x) {
  if (x != FloatFormat::kF32) return nullptr;
  if (to == FloatFormat::kF16) return kRunCast<ToF16>;
  return to == FloatFormat::kBf16 ? kRunCast<ToBf16> : nullptr;
}

RunFn residual_kernel(FloatFormat to, bool sum) {
  switch (to) {
    case FloatFormat::kF16:
      return sum ? run_direct<ResidualStep<ToF16, GuessF16, true>>
                 : run_direct<ResidualStep<ToF16, GuessF16, false>>;
    case FloatFormat::kBf16:
      return sum ? run_direct<ResidualStep<ToBf16, GuessBf16, true>>
                 : run_direct<ResidualStep<ToBf16, GuessBf16, false>>;
    default:
      return nullptr;
  }
}

bool is_sum(const SrCall& call) { return call.op == SrOp::kAdd || call.op == SrOp::kSub; }

/// Kernel of a proportional call.
RunFn kernel_of(const SrCall& call) {
  const FloatFormat to = call.rounding.format;
  if (call.residual) return residual_kernel(to, call.op == SrOp::kAdd);
  if (is_sum(call)) return sum_kernel<false>(to, call.formats[0], call.formats[1]);
  if (call.op == SrOp::kCast) return cast_kernel(to, call.formats[0]);
  const bool wide = call.formats[0] == FloatFormat::kF64 && call.formats[1] == FloatFormat::kF64;
  return call.op == SrOp::kAxpy && wide && to == FloatFormat::kF64 ? run<AxpyStep> : nullptr;
}

RunFn even_kernel_of(const SrCall& call) {
  if (call.rounding.mode != SrMode::kEqual || call.residual || !is_sum(call)) return nullptr;
  return sum_kernel<true>(call.rounding.format, call.formats[0], call.formats[1]);
}

}  // namespace

bool sr_apply_fast(const SrCall& call) {
  const SrRounding& rounding = call.rounding;
  if (rounding.uniform != nullptr) return false;
  const RunFn kernel = rounding.mode == SrMode::kProportional ? kernel_of(call) : even_kernel_of(call);
  if (kernel != nullptr) kernel(call);
  return kernel != nullptr;
}

}  // namespace popsr::kernels
