// Calls of the kernels of stochastic rounding: plain data on contiguous buffers.
//
// One rule for every op, format and mode: let S be the exact real result. If the format has S, that is the
// result. Otherwise the result is one of its two neighbours, the one away from zero iff U / 2^64 < p,
// p = (|S| - |toward|) / (|away| - |toward|).
#pragma once

#include <cstdint>

#include "popsr/base/float_format.h"
#include "popsr/kernels/contract/noise_key.h"

namespace popsr::kernels {

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

/// Rounding of S to a value of `format`.
struct SrRounding {
  FloatFormat format = FloatFormat::kF32;
  SrMode mode = SrMode::kProportional;
  int bits = 0;  ///< Bits that kBits compares: 1 .. 32.
  /// True: the largest finite value where the result would be infinite (NaN without infinity).
  bool saturate = false;
  NoiseKey key;
  std::uint64_t first = 0;  ///< Noise index: element i draws the noise of element first + i under `key`.
  const std::uint64_t* uniform = nullptr;  ///< Given U per element, or null.
};

struct SrCall {
  SrOp op = SrOp::kCast;
  SrRounding rounding;
  void* out = nullptr;  ///< Output; is an operand of its format element for element, or overlaps none.
  const void* in[3] = {};
  FloatFormat formats[3] = {};
  double scalar = 1.0;
  std::int64_t n = 0;
  bool stream = false;  ///< True to write around the caches; only if `out` is not an operand.
  /// True for kCast and kAdd of floats, mode kProportional, with y the residual of x: at most half of x's
  /// last bit and 0 where x is not finite. The result has the sign of x, also as zero and NaN if the format
  /// has both signs of them.
  bool residual = false;
};

/// One step of AdamW: w, m, v in place. Scalars are in double, rounded once to the compute type.
struct SrAdamw {
  void* w = nullptr;
  const void* g = nullptr;
  void* m = nullptr;
  void* v = nullptr;
  FloatFormat formats[4] = {};  ///< Formats of w, g, m and v.
  double beta1 = 0, one_less_beta1 = 0;
  double beta2 = 0, one_less_beta2 = 0;
  double decay = 0;       ///< Factor -lr * weight_decay.
  double step_size = 0;   ///< Factor -lr / (1 - beta1^step).
  double root_scale = 0;  ///< Factor 1 / sqrt(1 - beta2^step).
  double eps = 0;
  NoiseKey keys[3];  ///< Noise keys of w, m and v.
  std::uint64_t first = 0;
  std::int64_t n = 0;
};

/// Running sums over contiguous elements, several at a time: s = round(s + x), one rounding per step.
struct SrReduction {
  static constexpr int kLanes = 8;
  SrRounding rounding;
  FloatFormat format = FloatFormat::kF32;  ///< Format of x.
  int lanes = 0;
  const void* x[kLanes] = {};
  /// Noise index: element k of a lane draws the noise of element first + k.
  std::uint64_t first[kLanes] = {};
  std::int64_t n = 0;
  double sums[kLanes] = {};          ///< Sums, in and out; -0 before the first step.
  std::uint64_t codes[kLanes] = {};  ///< Bits of `sums`.
};

/// Sum x + y in which U is a hash of key and operands; one format.
struct SrValueAdd {
  const void* x = nullptr;
  const void* y = nullptr;
  void* out = nullptr;
  FloatFormat format = FloatFormat::kF32;
  NoiseKey key;
  bool biased = true;  ///< True: mode kProportional; false: kEqual.
  std::int64_t n = 0;
  bool stream = false;
};

}  // namespace popsr::kernels
