// Products and quotients of float32 and the 16-bit formats, proportionally, in one pass over memory: each
// element is one estimate in double, see sr_estimate-inl.h, whose first 16 bits of p meet the first 16 of U.
#include "popsr/kernels/level/noise/ars.h"
#include "popsr/kernels/level/round/fast/sr_estimate-inl.h"
#include "popsr/kernels/level/round/fast/sr_fast.h"
#include "popsr/kernels/level/round/fast/sr_flush-inl.h"
#include "popsr/kernels/level/round/fast/sr_operand-inl.h"

namespace popsr::kernels {
namespace {

#if defined(__FMA__)

// Results. kBits: first bits of S that decide. guess: of an estimate; `difference` is at most 2 * margin if
// it does not decide.

struct RoundedF32 {
  using Bits = std::uint32_t;
  using Word = std::uint64_t;
  static constexpr int kBits = 40;
  static constexpr Word kLimit = largest<FloatFormat::kF32>() - 1;
  [[gnu::always_inline]] static SrGuess<Word> guess(double t, Word word, Word margin) {
    return round_one<FloatFormat::kF32>(t, word, margin);
  }
};

/// Uses the step of truncated sums of a 16-bit format, whose numbers are 2^-kScale of those here.
template <class Step, int kScale>
struct Rounded16 {
  using Bits = std::uint16_t;
  using Word = std::uint32_t;
  static constexpr int kBits = 24;
  static constexpr Word kLimit = Step::kLimit;
  [[gnu::always_inline]] static SrGuess<Word> guess(double t, Word word, Word margin) {
    const float cut = static_cast<float>(t * power_of_two(-kScale));
    SrGuess<Word> guess = Step::guess(cut, 1, word);
    guess.difference = (guess.difference + margin) & ((1U << Step::kKnownBits) - 1);
    return guess;
  }
};
using RoundedBf16 = Rounded16<ToBf16, 0>;
using RoundedF16 = Rounded16<ToScaledF16, 112>;

/// One element's operands, and the op on them.
template <class Operation, class Out, class FromX, class FromY, class FromZ>
struct Fused {
  using Op = Operation;
  using To = Out;
  using X = FromX;
  using Y = FromY;
  using Z = FromZ;
  using Word = typename To::Word;

  const typename X::Bits* x;
  const typename Y::Bits* y;
  const typename Z::Bits* z;
  double scalar;
  const std::uint16_t* words;

  double number(int operand, std::int64_t i) const {
    if (operand == 0) return X::number(x[i]);
    return operand == 1 ? Y::number(y[i]) : Z::number(z[i]);
  }
  [[gnu::always_inline]] SrGuess<Word> guess(std::int64_t i) const {
    const auto a = static_cast<double>(X::value(x[i], 0));
    const auto b = static_cast<double>(Y::value(y[i], 0));
    const auto c = static_cast<double>(Z::value(z[i], 0));
    const double estimate = Op::template apply<To::kBits, true>(a, b, c, scalar);
    return To::guess(estimate, words[i], static_cast<Word>(kMargin<Op>));
  }
};

template <class Step>
constexpr bool is_hard(SrGuess<typename Step::Word> guess) {
  return guess.difference <= 2 * kMargin<typename Step::Op> || guess.size > Step::To::kLimit;
}

/// True if some elements are hard.
template <class Step>
[[gnu::noinline]] bool guess_tile(typename Step::To::Bits* out, Step step, std::int64_t n) {
  typename Step::Word least = ~typename Step::Word{0};
  typename Step::Word most = 0;
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) {
    const auto guess = step.guess(i);
    out[i] = static_cast<typename Step::To::Bits>(guess.bits);
    least = guess.difference < least ? guess.difference : least;
    most = guess.size > most ? guess.size : most;
  }
  return is_hard<Step>({0, least, most});
}

template <class Step>
[[gnu::noinline]] void mark_tile(std::uint8_t* marks, Step step, std::int64_t n) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) {
    const auto guess = step.guess(i);
    marks[i] = static_cast<std::uint8_t>((guess.difference <= 2 * kMargin<typename Step::Op> ? 1 : 0) |
                                         (guess.size > Step::To::kLimit ? 1 : 0));
  }
}

template <class Bits>
const Bits* at(const void* data, std::int64_t i) {
  return static_cast<const Bits*>(data) + i;
}

template <class Step>
void run(const SrCall& call) {
  using Bits = typename Step::To::Bits;
  auto* out = static_cast<Bits*>(call.out);
  alignas(64) Bits tile[kFastTile];
  alignas(64) std::uint8_t marks[kFastTile];
  NoiseTile noise;
  // An operand that the op does not have is read and has no effect.
  const void* z = call.in[2] != nullptr ? call.in[2] : call.in[1];
  std::int64_t n = call.stream ? until_aligned(out, sizeof(Bits)) : 0;
  if (n == 0) n = kFastTile;
  for (std::int64_t done = 0; done < call.n; done += n, n = kFastTile) {
    if (n > call.n - done) n = call.n - done;
    const std::uint64_t element = call.rounding.first + static_cast<std::uint64_t>(done);
    const Step step = {at<typename Step::X::Bits>(call.in[0], done),
                       at<typename Step::Y::Bits>(call.in[1], done), at<typename Step::Z::Bits>(z, done),
                       call.scalar, noise.draw(element, n, call.rounding.key)};
    bool hard = false;
    {
      const TowardZero mode;
      hard = guess_tile(tile, step, n);
      if (hard) mark_tile(marks, step, n);
    }
    if (hard) {
      round_marked(tile, marks, call, element, n,
                   [&step](int operand, std::int64_t i) { return step.number(operand, i); });
    }
    flush_tile(out + done, tile, n * static_cast<std::int64_t>(sizeof(Bits)), call.stream);
  }
  if (call.stream) finish_stream();
}

using RunFn = void (*)(const SrCall& call);

/// The weight is the call's scalar.
struct LerpScalarOp {
  static constexpr bool kExact = false;
  template <int kBits, bool kBounded>
  [[gnu::always_inline]] static double apply(double x, double y, double, double s) {
    return LerpOp::apply<kBits, kBounded>(x, y, s, s);
  }
};

template <class To, class X, class Y, class Z>
RunFn kernel_of(const SrCall& call) {
  switch (call.op) {
    case SrOp::kMul:
      return run<Fused<MulOp, To, X, Y, Y>>;
    case SrOp::kFma:
      return run<Fused<FmaOp, To, X, Y, Z>>;
    case SrOp::kLerp:
      return call.in[2] != nullptr ? run<Fused<LerpOp, To, X, Y, Z>> : run<Fused<LerpScalarOp, To, X, Y, Y>>;
    case SrOp::kAddcmul:
      return run<Fused<AddcmulOp, To, X, Y, Z>>;
    case SrOp::kAddcdiv:
      return run<Fused<AddcdivOp, To, X, Y, Z>>;
    default:
      return nullptr;
  }
}

/// The formats (To, To, To), and (To, float32, float32); s*x + y has its addend last.
template <FloatFormat kTo, class To, class Narrow>
RunFn kernel_of_format(const SrCall& call) {
  const FloatFormat* from = call.formats;
  const FloatFormat z = call.in[2] != nullptr ? from[2] : from[1];
  if (call.op == SrOp::kAxpy) {
    if (from[1] != kTo) return nullptr;
    if (from[0] == kTo) return run<Fused<AxpyOp, To, Narrow, Narrow, Narrow>>;
    return from[0] == FloatFormat::kF32 ? run<Fused<AxpyOp, To, FromF32, Narrow, Narrow>> : nullptr;
  }
  if (from[0] != kTo || from[1] != z) return nullptr;
  if (z == kTo) return kernel_of<To, Narrow, Narrow, Narrow>(call);
  return z == FloatFormat::kF32 ? kernel_of<To, Narrow, FromF32, FromF32>(call) : nullptr;
}

RunFn fused_kernel(const SrCall& call) {
  switch (call.rounding.format) {
    case FloatFormat::kF32:
      return kernel_of_format<FloatFormat::kF32, RoundedF32, FromF32>(call);
    case FloatFormat::kF16:
      return kernel_of_format<FloatFormat::kF16, RoundedF16, FromF16>(call);
    case FloatFormat::kBf16:
      return kernel_of_format<FloatFormat::kBf16, RoundedBf16, FromBf16>(call);
    default:
      return nullptr;
  }
}

#endif

}  // namespace

bool sr_apply_fused(const SrCall& call) {
#if defined(__FMA__)
  const SrRounding& rounding = call.rounding;
  if (rounding.mode != SrMode::kProportional || rounding.uniform != nullptr) return false;
  const double scalar = magnitude(call.scalar);
  if (!(scalar >= 1 / kLargestScalar && scalar <= kLargestScalar)) return false;
  const RunFn kernel = fused_kernel(call);
  if (kernel != nullptr) kernel(call);
  return kernel != nullptr;
#else
  (void)call;
  return false;
#endif
}

}  // namespace popsr::kernels
