// What the kernels of stochastic rounding are asked to do: plain data on contiguous buffers.
//
// One rule for every op, format and mode: let S be the exact real result. If the format has S, that is the
// result. Else one of its two neighbours, the one away from zero iff U / 2^64 < p, p = (|S| - |toward|) /
// (|away| - |toward|).
#pragma once

#include <cstdint>

#include "popsr/kernels/contract/noise_key.h"

namespace popsr::kernels {

enum class SrFormat : int { kF64, kF32, kF16, kBf16, kE4m3fn, kE5m2, kE4m3fnuz, kE5m2fnuz };
inline constexpr int kNumSrFormats = 8;

constexpr int size_of(SrFormat format) {
  return format == SrFormat::kF64 ? 8 : format == SrFormat::kF32 ? 4 : format <= SrFormat::kBf16 ? 2 : 1;
}

/// Operands in[0..2] = x, y, z and one scalar s.
enum class SrOp : int {
  kCast,     ///< x
  kAdd,      ///< x + y
  kSub,      ///< x - y
  kMul,      ///< x * y
  kAxpy,     ///< s*x + y
  kFma,      ///< x*y + z
  kLerp,     ///< x + t*(y - x), t = z, or s where in[2] is null
  kAddcmul,  ///< x + s*y*z
  kAddcdiv,  ///< x + s*y/z
};
inline constexpr int kNumSrOps = 9;

enum class SrMode : int {
  kProportional,  ///< away iff U / 2^64 < p
  kEqual,         ///< away iff inexact and U < 2^63
  kBits,          ///< the first `bits` bits of U and of p only: away iff floor(U / 2^(64-r)) < floor(p 2^r)
  kNearest,       ///< ties to even
  kUp,
  kDown,
  kZero,
};

/// How S becomes a value of `format`.
struct SrRounding {
  SrFormat format = SrFormat::kF32;
  SrMode mode = SrMode::kProportional;
  int bits = 0;           ///< Of kBits: 1 .. 32.
  bool saturate = false;  ///< Largest finite value where the result would be infinite (NaN without infinity).
  NoiseKey key;
  std::uint64_t first = 0;                 ///< Element i draws the noise of element first + i under `key`.
  const std::uint64_t* uniform = nullptr;  ///< If given, U of element i is uniform[i] instead.
};

struct SrCall {
  SrOp op = SrOp::kCast;
  SrRounding rounding;
  void* out = nullptr;  ///< Is an operand of its format element for element, or touches none.
  const void* in[3] = {};
  SrFormat formats[3] = {};
  double scalar = 1.0;
  std::int64_t n = 0;
  bool stream = false;  ///< Write around the caches; only where `out` is no operand.
};

/// One step of AdamW: w, m, v in place. Scalars are in double, rounded once to the compute type.
struct SrAdamw {
  void* w = nullptr;
  const void* g = nullptr;
  void* m = nullptr;
  void* v = nullptr;
  SrFormat formats[4] = {};  ///< of w, g, m, v
  double beta1 = 0, one_less_beta1 = 0;
  double beta2 = 0, one_less_beta2 = 0;
  double decay = 0;       ///< -lr * weight_decay
  double step_size = 0;   ///< -lr / (1 - beta1^step)
  double root_scale = 0;  ///< 1 / sqrt(1 - beta2^step)
  double eps = 0;
  NoiseKey keys[3];  ///< of w, m, v
  std::uint64_t first = 0;
  std::int64_t n = 0;
};

/// Several running sums over contiguous elements: s = round(s + x), one rounding a step.
struct SrFold {
  static constexpr int kLanes = 8;
  SrRounding rounding;
  SrFormat format = SrFormat::kF32;  ///< of x
  int lanes = 0;
  const void* x[kLanes] = {};
  std::uint64_t first[kLanes] = {};  ///< Element k of a lane draws the noise of element first + k.
  std::int64_t n = 0;
  double sums[kLanes] = {};          ///< In and out; -0 before the first step.
  std::uint64_t codes[kLanes] = {};  ///< The bits of `sums`.
};

/// x + y where U is a hash of key and operands; one format.
struct SrValueAdd {
  const void* x = nullptr;
  const void* y = nullptr;
  void* out = nullptr;
  SrFormat format = SrFormat::kF32;
  NoiseKey key;
  bool biased = true;  ///< kProportional, else kEqual
  std::int64_t n = 0;
  bool stream = false;
};

}  // namespace popsr::kernels
