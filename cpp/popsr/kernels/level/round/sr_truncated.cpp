// Results narrower than double, proportionally: one operation of doubles in the mode "towards zero" gives S
// cut to 53 bits, which hold the neighbour and more than 16 bits of p. Every operand is a double exactly, so
// this serves all formats.
#include "popsr/kernels/level/noise/ars.h"
#include "popsr/kernels/level/round/sr_exact.h"
#include "popsr/kernels/level/round/sr_fast.h"
#include "popsr/kernels/level/round/sr_guess-inl.h"
#include "popsr/kernels/level/round/sr_tiles-inl.h"

namespace popsr::kernels {
namespace {

#if defined(__SSE__)

struct Tile {
  alignas(64) double in[3][kSrTile];
  alignas(64) double t[kSrTile];
  alignas(64) std::uint16_t words[kSrTile + 8];
  alignas(64) std::uint8_t hard[kSrTile];
};

// T, in the mode "towards zero"

struct CastOp {
  [[gnu::always_inline]] static double apply(double x, double, double, double) { return x; }
};
struct AddOp {
  [[gnu::always_inline]] static double apply(double x, double y, double, double) { return x + y; }
};
/// y is the residual of x, whose sign a zero keeps.
struct ResidualOp {
  [[gnu::always_inline]] static double apply(double x, double y, double, double) {
    return with_sign(x + y, x);
  }
};
struct SubOp {
  [[gnu::always_inline]] static double apply(double x, double y, double, double) { return x - y; }
};
struct MulOp {
  [[gnu::always_inline]] static double apply(double x, double y, double, double) { return x * y; }
};
#if defined(__FMA__)
struct AxpyOp {
  [[gnu::always_inline]] static double apply(double x, double y, double, double s) {
    return __builtin_fma(s, x, y);
  }
};
struct FmaOp {
  [[gnu::always_inline]] static double apply(double x, double y, double z, double) {
    return __builtin_fma(x, y, z);
  }
};
#endif

using TruncateFn = void (*)(Tile& tile, double scalar, std::int64_t n);

template <class Op>
[[gnu::noinline]] void truncate_tile(Tile& tile, double scalar, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i)
    tile.t[i] = Op::apply(tile.in[0][i], tile.in[1][i], tile.in[2][i], scalar);
}

TruncateFn truncate_of(const SrCall& call) {
  switch (call.op) {
    case SrOp::kCast:
      return truncate_tile<CastOp>;
    case SrOp::kAdd:
      return call.residual ? truncate_tile<ResidualOp> : truncate_tile<AddOp>;
    case SrOp::kSub:
      return truncate_tile<SubOp>;
    case SrOp::kMul:
      return truncate_tile<MulOp>;
#if defined(__FMA__)
    case SrOp::kAxpy:
      return truncate_tile<AxpyOp>;
    case SrOp::kFma:
      return truncate_tile<FmaOp>;
#endif
    default:
      return nullptr;
  }
}

// Rounding

using RoundFn = bool (*)(void* out, Tile& tile, const std::uint16_t* words, std::int64_t n);

constexpr double power_of_two(int exponent) {
  return __builtin_bit_cast(double, static_cast<std::uint64_t>(1023 + exponent) << 52);
}

template <FloatFormat kFormat>
[[gnu::always_inline]] inline SrGuess<std::uint64_t> round_one(double t, std::uint64_t word) {
  constexpr FloatFormatInfo kLayout = info(kFormat);
  constexpr int kDrop = 53 - kLayout.precision - 16;
  constexpr std::uint64_t kLeastNormal = static_cast<std::uint64_t>(1024 - kLayout.bias) << 52;
  constexpr std::uint64_t kRebias = static_cast<std::uint64_t>(1023 - kLayout.bias)
                                    << (kLayout.precision + 15);
  constexpr double kScale = power_of_two(16 + kLayout.precision - 1 - (1 - kLayout.bias));
  const std::uint64_t a = bits_of(magnitude(t));
  // The code and 16 bits of p. Below the least normal the addition cuts off what is less than one.
  const std::uint64_t normal = (a >> kDrop) - kRebias;
  const std::uint64_t subnormal = bits_of(magnitude(t) * kScale + 0x1p52) - bits_of(0x1p52);
  const std::uint64_t fixed = a < kLeastNormal ? subnormal : normal;
  const std::uint64_t code = (fixed + 0xffffU - word) >> 16;
  const std::uint64_t sign = (bits_of(t) >> (64 - 8 * kLayout.size)) & kLayout.sign_bit;
  const bool bare = !kLayout.negative_zero && code == 0;
  return {bare ? code : code | sign, (fixed - word) & 0xffffU, a};
}

/// Of finite values: where the largest begins, of which the next may be infinity.
template <FloatFormat kFormat>
constexpr std::uint64_t largest() {
  constexpr FloatFormatInfo kLayout = info(kFormat);
  return (kLayout.max_code << (53 - kLayout.precision)) +
         (static_cast<std::uint64_t>(1023 - kLayout.bias) << 52);
}

template <FloatFormat kFormat>
[[gnu::noinline]] bool round_tile(void* out, Tile& tile, const std::uint16_t* words, std::int64_t n) {
  using Bits = Storage<kFormat>;
  auto* results = static_cast<Bits*>(out);
  std::uint64_t least = 1;
  std::uint64_t most = 0;
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) {
    const auto guess = round_one<kFormat>(tile.t[i], words[i]);
    results[i] = static_cast<Bits>(guess.bits);
    least = guess.difference < least ? guess.difference : least;
    most = guess.size > most ? guess.size : most;
  }
  if (least != 0 && most < largest<kFormat>()) return false;
  for (std::int64_t i = 0; i < n; ++i) {
    const auto guess = round_one<kFormat>(tile.t[i], words[i]);
    tile.hard[i] = guess.difference == 0 || guess.size >= largest<kFormat>() ? 1 : 0;
  }
  return true;
}

/// By format; doubles have no bits to spare.
constexpr auto kRound = per_format<RoundFn>([]<FloatFormat kFormat>() -> RoundFn {
  if constexpr (kFormat == FloatFormat::kF64) return nullptr;
  if constexpr (kFormat != FloatFormat::kF64) return round_tile<kFormat>;
});

[[gnu::noinline]] void round_hard(std::uint64_t* codes, const Tile& tile, const SrCall& call,
                                  std::uint64_t element, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    if (tile.hard[i] == 0) continue;
    const double in[3] = {tile.in[0][i], tile.in[1][i], tile.in[2][i]};
    const std::uint64_t u = noise_of(element + static_cast<std::uint64_t>(i), call.rounding.key);
    codes[i] = round_element(call, in, u);
  }
}

/// Redoes the marked elements of a tile that is in memory already; its operands are still in their buffers.
void round_hard_in(char* out, const Tile& tile, const SrCall& call, std::uint64_t element, std::int64_t n) {
  std::uint64_t codes[kSrTile];
  round_hard(codes, tile, call, element, n);
  const int size = size_of(call.rounding.format);
  for (std::int64_t i = 0; i < n; ++i) {
    if (tile.hard[i] != 0) kSrStore[call.rounding.format](out + i * size, codes + i, 1);
  }
}

void run_tile(Tile& tile, const SrCall& call, TruncateFn truncate, std::int64_t done, std::int64_t n) {
  const SrRounding& rounding = call.rounding;
  for (int operand = 0; operand < 3; ++operand) {
    if (call.in[operand] == nullptr) continue;
    const FloatFormat from = call.formats[operand];
    const char* data = static_cast<const char*>(call.in[operand]) + done * size_of(from);
    kSrLoad[from](tile.in[operand], data, n);
  }
  const std::uint64_t element = rounding.first + static_cast<std::uint64_t>(done);
  const auto skip = static_cast<std::int64_t>(element % 8);
  noise_words(tile.words, (skip + n + 7) / 8, element / 8, 0, rounding.key);
  char* out = static_cast<char*>(call.out) + done * size_of(rounding.format);
  bool hard = false;
  {
    const TowardZero mode;
    truncate(tile, call.scalar, n);
    hard = kRound[rounding.format](out, tile, tile.words + skip, n);
  }
  if (hard) round_hard_in(out, tile, call, element, n);
}

#endif

}  // namespace

bool sr_apply_truncated(const SrCall& call) {
#if defined(__SSE__)
  const TruncateFn truncate = truncate_of(call);
  const SrRounding& rounding = call.rounding;
  const bool fits = rounding.mode == SrMode::kProportional && rounding.uniform == nullptr;
  if (!fits || truncate == nullptr || rounding.format == FloatFormat::kF64) return false;
  Tile tile;
  for (std::int64_t done = 0; done < call.n; done += kSrTile) {
    run_tile(tile, call, truncate, done, call.n - done < kSrTile ? call.n - done : kSrTile);
  }
  return true;
#else
  (void)call;
  return false;
#endif
}

}  // namespace popsr::kernels
