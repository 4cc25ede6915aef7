// Results narrower than double, proportionally, of operands of any format: tiles of doubles, whose estimates
// (see sr_estimate-inl.h) hold the neighbour and 16 bits of p.
#include "popsr/kernels/level/noise/ars.h"
#include "popsr/kernels/level/round/fast/sr_estimate-inl.h"
#include "popsr/kernels/level/round/fast/sr_fast.h"

namespace popsr::kernels {
namespace {

#if defined(__SSE__)

struct Tile {
  alignas(64) double in[3][kSrTile];
  alignas(64) double t[kSrTile];
  NoiseTile noise;
  alignas(64) std::uint8_t hard[kSrTile];
};

/// Bits of the widest format here: float32, and 16 bits of p.
constexpr int kMostBits = 40;

using TruncateFn = void (*)(Tile& tile, double scalar, std::int64_t n);

template <class Op>
[[gnu::noinline]] void truncate_tile(Tile& tile, double scalar, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i)
    tile.t[i] = Op::template apply<kMostBits, false>(tile.in[0][i], tile.in[1][i], tile.in[2][i], scalar);
}

/// An op on a tile; margin: units of p by which its results may be off. fn is null for an op without one.
struct Estimate {
  TruncateFn fn = nullptr;
  std::uint64_t margin = 0;
};

template <class Op>
constexpr Estimate kEstimate = {truncate_tile<Op>, kMargin<Op>};

Estimate estimate_of(const SrCall& call) {
  switch (call.op) {
    case SrOp::kCast:
      return kEstimate<CastOp>;
    case SrOp::kAdd:
      return call.residual ? kEstimate<ResidualOp> : kEstimate<AddOp>;
    case SrOp::kSub:
      return kEstimate<SubOp>;
    case SrOp::kMul:
      return kEstimate<MulOp>;
#if defined(__FMA__)
    case SrOp::kAxpy:
      return kEstimate<AxpyOp>;
    case SrOp::kFma:
      return kEstimate<FmaOp>;
    case SrOp::kLerp:
      return kEstimate<LerpOp>;
    case SrOp::kAddcmul:
      return kEstimate<AddcmulOp>;
    case SrOp::kAddcdiv:
      return kEstimate<AddcdivOp>;
#endif
    default:
      return {};
  }
}

// Rounding

using RoundFn = bool (*)(void* out, Tile& tile, const std::uint16_t* words, std::uint64_t margin,
                         std::int64_t n);

template <FloatFormat kFormat>
[[gnu::noinline]] bool round_tile(void* out, Tile& tile, const std::uint16_t* words, std::uint64_t margin,
                                  std::int64_t n) {
  using Bits = Storage<kFormat>;
  auto* results = static_cast<Bits*>(out);
  std::uint64_t least = 0xffff;
  std::uint64_t most = 0;
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) {
    const auto guess = round_one<kFormat>(tile.t[i], words[i], margin);
    results[i] = static_cast<Bits>(guess.bits);
    least = guess.difference < least ? guess.difference : least;
    most = guess.size > most ? guess.size : most;
  }
  if (least > 2 * margin && most < largest<kFormat>()) return false;
  for (std::int64_t i = 0; i < n; ++i) {
    const auto guess = round_one<kFormat>(tile.t[i], words[i], margin);
    tile.hard[i] = guess.difference <= 2 * margin || guess.size >= largest<kFormat>() ? 1 : 0;
  }
  return true;
}

/// Rounding function by format; doubles have no bits to spare.
constexpr auto kRound = per_format<RoundFn>([]<FloatFormat kFormat>() -> RoundFn {
  if constexpr (kFormat == FloatFormat::kF64) return nullptr;
  if constexpr (kFormat != FloatFormat::kF64) return round_tile<kFormat>;
});

void run_tile(Tile& tile, const SrCall& call, Estimate estimate, std::int64_t done, std::int64_t n) {
  const SrRounding& rounding = call.rounding;
  for (int operand = 0; operand < 3; ++operand) {
    if (call.in[operand] == nullptr) continue;
    const FloatFormat from = call.formats[operand];
    const char* data = static_cast<const char*>(call.in[operand]) + done * size_of(from);
    kSrLoad[from](tile.in[operand], data, n);
  }
  const std::uint64_t element = rounding.first + static_cast<std::uint64_t>(done);
  const std::uint16_t* const words = tile.noise.draw(element, n, rounding.key);
  char* out = static_cast<char*>(call.out) + done * size_of(rounding.format);
  bool hard = false;
  {
    const TowardZero mode;
    estimate.fn(tile, call.scalar, n);
    hard = kRound[rounding.format](out, tile, words, estimate.margin, n);
  }
  if (!hard) return;
  // The tile is in memory already; its operands are still in their buffers.
  round_marked(out, tile.hard, call, element, n,
               [&tile](int operand, std::int64_t i) { return tile.in[operand][i]; });
}

#endif

}  // namespace

bool sr_apply_truncated(const SrCall& call) {
#if defined(__SSE__)
  const Estimate estimate = estimate_of(call);
  const SrRounding& rounding = call.rounding;
  const bool fits = rounding.mode == SrMode::kProportional && rounding.uniform == nullptr;
  if (!fits || estimate.fn == nullptr || rounding.format == FloatFormat::kF64) return false;
  Tile tile;
  for (double& weight : tile.in[2]) weight = call.scalar;  // of an interpolation by one number
  for (std::int64_t done = 0; done < call.n; done += kSrTile) {
    run_tile(tile, call, estimate, done, call.n - done < kSrTile ? call.n - done : kSrTile);
  }
  return true;
#else
  (void)call;
  return false;
#endif
}

}  // namespace popsr::kernels
