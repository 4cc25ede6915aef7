#include "popsr/kernels/level/round/sr_fast.h"

#include "popsr/kernels/level/noise/ars.h"
#include "popsr/kernels/level/round/sr_exact.h"
#include "popsr/kernels/level/round/sr_flush-inl.h"
#include "popsr/kernels/level/round/sr_loop-inl.h"

namespace popsr::kernels {
namespace {

/// The first 16 bits of U of a tile.
struct NoiseTile {
  alignas(64) std::uint16_t words[kFastTile + 8];

  /// Returns the first of n elements' words.
  const std::uint16_t* draw(std::uint64_t element, std::int64_t n, NoiseKey key) {
    const std::int64_t skip = static_cast<std::int64_t>(element % 8);
    noise_words(words, (skip + n + 7) / 8, element / 8, 0, key);
    return words + skip;
  }
};

struct Drawn {
  const std::uint16_t* words;
  [[gnu::always_inline]] std::uint16_t operator()(std::int64_t i) const { return words[i]; }
};

template <class Step>
using OutputBits = typename FastTile<Step>::Output::Bits;

template <class Step>
[[gnu::noinline]] bool guess_tile(FastTile<Step>& tile, OutputBits<Step>* out,
                                  const typename Step::X::Bits* x, const typename Step::Y::Bits* y,
                                  typename Step::Word flip, Drawn noise, std::int64_t n) {
  const auto* wide_x = Step::X::open(tile.wide_x, x, n);
  const auto* wide_y = Step::Y::open(tile.wide_y, y, n);
  if constexpr (!FastTile<Step>::kConverts) return step_tile<Step>(out, wide_x, wide_y, flip, noise, n);
  const bool hard = step_tile<Step>(tile.results(), wide_x, wide_y, flip, noise, n);
  FastTile<Step>::Output::close(out, tile.results(), n);
  return hard;
}

template <class Step>
[[gnu::noinline]] void mark(FastTile<Step>& tile, const typename Step::X::Bits* x,
                            const typename Step::Y::Bits* y, typename Step::Word flip, Drawn noise,
                            std::int64_t n) {
  const auto* wide_x = Step::X::open(tile.wide_x, x, n);
  const auto* wide_y = Step::Y::open(tile.wide_y, y, n);
  mark_tile<Step>(tile.hard, wide_x, wide_y, flip, noise, n);
}

/// Redoes the marked elements.
template <class Step>
[[gnu::noinline]] void round_hard(FastTile<Step>& tile, OutputBits<Step>* out,
                                  const typename Step::X::Bits* x, const typename Step::Y::Bits* y,
                                  const SrCall& call, std::uint64_t element, std::int64_t n) {
  const auto* wide_x = Step::X::open(tile.wide_x, x, n);
  const auto* wide_y = Step::Y::open(tile.wide_y, y, n);
  for (std::int64_t i = 0; i < n; ++i) {
    if (tile.hard[i] == 0) continue;
    const double in[3] = {number_at<typename Step::X>(wide_x, i), number_at<typename Step::Y>(wide_y, i),
                          0.0};
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
              std::int64_t done, std::int64_t n) {
  using Word = typename Step::Word;
  const auto* x = static_cast<const typename Step::X::Bits*>(call.in[0]) + done;
  const auto* y = static_cast<const typename Step::Y::Bits*>(call.in[call.op == SrOp::kCast ? 0 : 1]) + done;
  const Word flip = flip_of<Word>(call);
  const std::uint64_t element = call.rounding.first + static_cast<std::uint64_t>(done);
  const Drawn drawn = {noise.draw(element, n, call.rounding.key)};
  bool hard = false;
  {
    [[maybe_unused]] const typename Step::Mode mode;
    hard = guess_tile<Step>(tile, out, x, y, flip, drawn, n);
    if (hard) mark<Step>(tile, x, y, flip, drawn, n);
  }
  if (hard) round_hard<Step>(tile, out, x, y, call, element, n);
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
    run_tile<Step>(tile, noise, tile.out, call, done, n);
    flush_tile(out + done, tile.out, n * static_cast<std::int64_t>(sizeof(Bits)), call.stream);
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

template <class To, class X, class Y>
constexpr RunFn kRunSum = run<TruncatedStep<To, X, Y, true, false>>;
template <class To>
constexpr RunFn kRunCast = run<TruncatedStep<To, FromF32, FromF32, false, false>>;

RunFn sum_kernel(FloatFormat to, FloatFormat x, FloatFormat y) {
  if (to != x || (y != x && (y != FloatFormat::kF32 || size_of(x) != 2))) return nullptr;
  switch (to) {
    case FloatFormat::kF64:
      return run<PairedStep<ToF64, FromF64, false>>;
    case FloatFormat::kF32:
      return run<PairedStep<ToF32, FromF32, false>>;
    case FloatFormat::kF16:
      return y == x ? kRunSum<ToF16Grid, FromF16, FromF16> : kRunSum<ToF16, FromF16, FromF32>;
    case FloatFormat::kBf16:
      return y == x ? kRunSum<ToBf16, FromBf16, FromBf16> : kRunSum<ToBf16, FromBf16, FromF32>;
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

}  // namespace

bool sr_apply_fast(const SrCall& call) {
  const SrRounding& rounding = call.rounding;
  if (rounding.mode != SrMode::kProportional || rounding.uniform != nullptr) return false;
  RunFn kernel = nullptr;
  if (call.residual) {
    kernel = residual_kernel(rounding.format, call.op == SrOp::kAdd);
  } else if (call.op == SrOp::kAdd || call.op == SrOp::kSub) {
    kernel = sum_kernel(rounding.format, call.formats[0], call.formats[1]);
  } else if (call.op == SrOp::kCast) {
    kernel = cast_kernel(rounding.format, call.formats[0]);
  } else if (call.op == SrOp::kAxpy) {
    const bool wide = call.formats[0] == FloatFormat::kF64 && call.formats[1] == FloatFormat::kF64;
    if (wide && rounding.format == FloatFormat::kF64) kernel = run<AxpyStep>;
  }
  if (kernel != nullptr) kernel(call);
  return kernel != nullptr;
}

}  // namespace popsr::kernels
