#include "popsr/kernels/level/round/exact/sr_exact.h"
#include "popsr/kernels/level/round/exact/sr_expand-inl.h"
#include "popsr/kernels/level/round/fast/sr_fast.h"
#include "popsr/kernels/level/round/sr.h"
#include "popsr/kernels/level/round/sr_tiles-inl.h"

namespace popsr::kernels {
namespace {

/// hi, lo and rest of the tile; nonzero if some elements are for round_exactly.
using EvaluateFn = std::uint64_t (*)(SrTile& tile, std::int64_t n, double scalar);
using HardFn = std::uint64_t (*)(const double* in, double scalar);

template <class Op>
std::uint64_t evaluate_tile(SrTile& tile, std::int64_t n, double scalar) {
  std::uint64_t hard = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const double x = tile.in[0][i];
    const double y = Op::kOperands > 1 ? tile.in[1][i] : 0.0;
    const double z = Op::kOperands > 2 ? tile.in[2][i] : 0.0;
    const SrSum s = Op::apply(x, y, z, scalar);
    hard |= Op::hard(x, y, z, scalar);
    tile.hi[i] = s.hi;
    tile.lo[i] = s.lo;
    tile.rest[i] = s.rest;
  }
  return hard;
}

template <class Op>
std::uint64_t is_hard(const double* in, double scalar) {
  return Op::hard(in[0], in[1], in[2], scalar);
}

constexpr EvaluateFn kEvaluate[kNumSrOps] = {
    evaluate_tile<SrCast>, evaluate_tile<SrAdd>,     evaluate_tile<SrSub>,
    evaluate_tile<SrMul>,  evaluate_tile<SrAxpy>,    evaluate_tile<SrFma>,
    evaluate_tile<SrLerp>, evaluate_tile<SrAddcmul>, evaluate_tile<SrAddcdiv>};
constexpr HardFn kHard[kNumSrOps] = {is_hard<SrCast>, is_hard<SrAdd>,     is_hard<SrSub>,
                                     is_hard<SrMul>,  is_hard<SrAxpy>,    is_hard<SrFma>,
                                     is_hard<SrLerp>, is_hard<SrAddcmul>, is_hard<SrAddcdiv>};

/// Turns codes into the final bits. Arguments are passed by value and it is not inlined, so that constants
/// are in registers: among the lookups of its caller the loop does not vectorise.
[[gnu::noinline]] void decide(SrTile& tile, const std::uint64_t* u, std::int64_t n, SrRule rule,
                              FloatFormatInfo layout, SrLimits limits) {
  for (std::int64_t i = 0; i < n; ++i) {
    const std::uint64_t negative = bits_of(tile.hi[i]) >> 63;
    const SrBracket b = {tile.code[i], tile.p64[i], tile.sticky[i]};
    const std::uint64_t code = b.code + away_from_zero(rule, b, negative, u[i]);
    const std::uint64_t beyond = negative != 0 ? limits.overflow[1] : limits.overflow[0];
    tile.code[i] = signed_code(layout, code > limits.max_code ? beyond : code, negative);
  }
}

[[gnu::noinline]] void round_hard(SrTile& tile, const std::uint64_t* u, std::int64_t n, const SrCall& call) {
  const HardFn hard = kHard[static_cast<int>(call.op)];
  for (std::int64_t i = 0; i < n; ++i) {
    const double in[3] = {tile.in[0][i], tile.in[1][i], tile.in[2][i]};
    if (hard(in, call.scalar) == 0) continue;
    tile.code[i] = round_element(call, in, u[i]);
  }
}

const char* at(const void* base, FloatFormat format, std::int64_t i) {
  return static_cast<const char*>(base) + i * size_of(format);
}

}  // namespace

void sr_apply_tiles(const SrCall& call) {
  alignas(64) SrTile tile;
  const FloatFormat format = call.rounding.format;
  char* out = static_cast<char*>(call.out);
  for (int operand = 0; operand < 3; ++operand) {
    // The scalar factor of an interpolation; unused operands are read by nobody, but must be numbers.
    for (double& value : tile.in[operand]) value = operand == 2 ? call.scalar : 0.0;
  }
  for (std::int64_t done = 0; done < call.n; done += kSrTile) {
    const std::int64_t n = call.n - done < kSrTile ? call.n - done : kSrTile;
    for (int operand = 0; operand < 3; ++operand) {
      if (call.in[operand] == nullptr) continue;
      const FloatFormat from = call.formats[operand];
      kSrLoad[from](tile.in[operand], at(call.in[operand], from, done), n);
    }
    const std::uint64_t hard = kEvaluate[static_cast<int>(call.op)](tile, n, call.scalar);
    if (call.residual) {
      for (std::int64_t i = 0; i < n; ++i) tile.hi[i] = with_sign(tile.hi[i], tile.in[0][i]);
    }
    const std::uint64_t* u = sr_uniform(tile, call.rounding, done, n);
    kSrBracket[format](tile, n);
    decide(tile, u, n, rule_of(call.rounding.mode, call.rounding.bits), info(format),
           limits_of(info(format), call.rounding.mode, call.rounding.saturate));
    if (hard != 0) round_hard(tile, u, n, call);
    kSrStore[format](out + done * size_of(format), tile.code, n);
  }
}

void round_hard_elements(void* out, HardElements& hard, const SrCall& call) {
  std::uint64_t codes[HardElements::kMost];  // of 1 to 8 bytes each
  SrCall part = call;
  part.out = codes;
  part.n = hard.n;
  part.stream = false;
  part.rounding.uniform = hard.u;
  for (int operand = 0; operand < 3; ++operand) {
    if (call.in[operand] == nullptr) continue;
    part.in[operand] = hard.in[operand];
    part.formats[operand] = FloatFormat::kF64;
  }
  sr_apply_tiles(part);
  const auto size = static_cast<std::size_t>(size_of(call.rounding.format));
  for (int i = 0; i < hard.n; ++i) {
    __builtin_memcpy(static_cast<char*>(out) + static_cast<std::size_t>(hard.index[i]) * size,
                     reinterpret_cast<const char*>(codes) + static_cast<std::size_t>(i) * size, size);
  }
}

void sr_apply(const SrCall& call) {
  if (!sr_apply_fast(call) && !sr_apply_fused(call) && !sr_apply_truncated(call)) sr_apply_tiles(call);
}

}  // namespace popsr::kernels
