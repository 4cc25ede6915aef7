// Softmax of rows: the maximum, the exponentials with their sum, the quotients. Narrow floats are widened and
// rounded inside these passes.
#include "popsr/kernels/level/reduce/softmax_rows.h"

#include "popsr/kernels/level/convert/codecs-inl.h"
#include "popsr/kernels/level/convert/half_tile-inl.h"
#include "popsr/kernels/level/math/functions/functions_f32-inl.h"
#include "popsr/kernels/level/math/functions/functions_f64-inl.h"
#include "popsr/kernels/level/simd/lanes-inl.h"

namespace popsr::kernels {
namespace {

/// A row of floats as it is stored.
struct F32 {
  using Stored = float;
  static constexpr bool kResidual = false;  ///< Rounding always needs residuals.
  [[gnu::always_inline]] static float widen(float x) { return x; }
  [[gnu::always_inline]] static void load(FloatVector& to, const float* x) {
    __builtin_memcpy(&to, x, sizeof(to));
  }
  static float largest(const float* x, std::int64_t n) { return extreme_of<float, true>(x, n); }
  [[gnu::always_inline]] static float narrow(float hi) { return hi; }
  [[gnu::always_inline]] static float narrow_sum(float hi, float) { return hi; }
};

/// 16 bits: magnitudes are ordered as their codes are, NaN above infinity.
template <FloatFormat kFormat>
struct Half {
  using Stored = std::uint16_t;
  static constexpr bool kResidual = kFormat != FloatFormat::kBf16;
  [[gnu::always_inline]] static float widen(std::uint16_t x) { return Codec<kFormat>::widen(x); }
  [[gnu::always_inline]] static void load(FloatVector& to, const std::uint16_t* x) {
    if constexpr (kFormat == FloatFormat::kBf16)
      to = bf16_to_floats(x);
    else
      to = half_to_floats(x);
  }
  static float largest(const std::uint16_t* x, std::int64_t n) {
    constexpr auto kInf = static_cast<std::int16_t>(info(kFormat).inf_code);
    std::int16_t best = ~kInf;
    std::int16_t above = 0;
    for (std::int64_t i = 0; i < n; ++i) {
      const auto bits = static_cast<std::int16_t>(x[i]);
      const auto code = static_cast<std::int16_t>(bits & 0x7fff);
      const auto key = static_cast<std::int16_t>(bits ^ ((bits >> 15) & 0x7fff));
      best = key > best ? key : best;
      above = code > above ? code : above;
    }
    const auto code = static_cast<std::uint16_t>(best < 0 ? best ^ 0x7fff : best);
    return above > kInf ? kNanF32 : widen(code);
  }
  [[gnu::always_inline]] static std::uint16_t narrow(float hi) {
    return static_cast<std::uint16_t>(signed_as<kFormat>(hi, Codec<kFormat>::narrow(bits_of(magnitude(hi)))));
  }
  [[gnu::always_inline]] static std::uint16_t narrow_sum(float hi, float lo) {
    return static_cast<std::uint16_t>(signed_as<kFormat>(hi, Codec<kFormat>::narrow(odd_bits(hi, lo))));
  }
};

/// Elements of a step: whole packs, and whole groups of the 16 lanes.
inline constexpr int kStep = kFloats > kLanes ? kFloats : kLanes;
inline constexpr int kPerFloatVector = kFloats / kPack;
inline constexpr int kSums = kLanes / kPerFloatVector;

/// e[i] = exp(x[i] - largest) of one step.
template <class Format>
[[gnu::always_inline]] inline void exp_step(FloatVector* e, const typename Format::Stored* x, float largest) {
  for (int pack = 0; pack < kStep / kFloats; ++pack) {
    Floats values;
    for (int k = 0; k < kPack; ++k) Format::load(values.v[k], x + (pack * kPack + k) * kPerFloatVector);
    values = exp_of(values - Floats(largest));
    for (int k = 0; k < kPack; ++k) e[pack * kPack + k] = values.v[k];
  }
}

/// exp(x - largest) to `e`, unless it is null, and their sums to the 16 lanes.
template <class Format, bool kKeep>
[[gnu::always_inline]] inline void exp_and_sum(float* lanes, float* e, const typename Format::Stored* x,
                                               std::int64_t n, float largest) {
  FloatVector sums[kSums];
  FloatVector step[kStep / kPerFloatVector];
  for (FloatVector& sum : sums) sum = -0.0F - FloatVector{};
  std::int64_t i = 0;
  for (; i + kStep <= n; i += kStep) {
    exp_step<Format>(step, x + i, largest);
    for (int k = 0; k < kStep / kPerFloatVector; ++k) sums[k % kSums] += step[k];
    if constexpr (kKeep) __builtin_memcpy(e + i, step, sizeof(step));
  }
  if (i < n) {
    const auto left = static_cast<std::size_t>(n - i);
    typename Format::Stored rest[kStep] = {};
    float padded[kStep];
    __builtin_memcpy(rest, x + i, left * sizeof(rest[0]));
    exp_step<Format>(step, rest, largest);
    __builtin_memcpy(padded, step, sizeof(step));
    if constexpr (kKeep) __builtin_memcpy(e + i, padded, left * sizeof(float));
    for (std::size_t k = left; k < kStep; ++k) padded[k] = -0.0F;  // the identity of addition
    __builtin_memcpy(step, padded, sizeof(step));
    for (int k = 0; k < kStep / kPerFloatVector; ++k) sums[k % kSums] += step[k];
  }
  __builtin_memcpy(lanes, sums, sizeof(sums));
}

/// out = (x - largest) - log_sum
template <class Format>
[[gnu::always_inline]] inline void subtract(typename Format::Stored* out, float* lo,
                                            const typename Format::Stored* x, std::int64_t n, float largest,
                                            float log_sum) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) {
    const float difference = Format::widen(x[i]) - largest;
    const float hi = difference - log_sum;
    const float rest = sum_residual(hi, difference, -log_sum);
    if constexpr (sizeof(*out) == sizeof(float)) lo[i] = rest;
    out[i] = Format::narrow_sum(hi, rest);
  }
}
/// Variant without residuals; true if one of them may decide how a result is rounded: bfloat16 are the
/// upper halves of floats, so a float's residual matters where its lower half is a tie.
template <class Format>
[[gnu::always_inline]] inline bool subtract_unless_ties(typename Format::Stored* out,
                                                        const typename Format::Stored* x, std::int64_t n,
                                                        float largest, float log_sum) {
  std::uint32_t ties = 0;
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) {
    const float hi = (Format::widen(x[i]) - largest) - log_sum;
    ties |= (bits_of(hi) & 0xffffU) == 0x8000U ? 1U : 0U;
    out[i] = Format::narrow(hi);
  }
  return sizeof(*out) == sizeof(std::uint16_t) && ties != 0;
}

template <class Format>
[[gnu::always_inline]] inline void finish_log(typename Format::Stored* out, float* lo,
                                              const typename Format::Stored* x, std::int64_t n, float largest,
                                              float log_sum) {
  if (Format::kResidual || lo != nullptr) return subtract<Format>(out, lo, x, n, largest, log_sum);
  constexpr std::int64_t kPiece = 256;
  for (std::int64_t i = 0; i < n; i += kPiece) {
    const std::int64_t count = n - i < kPiece ? n - i : kPiece;
    if (!subtract_unless_ties<Format>(out + i, x + i, count, largest, log_sum)) continue;
    subtract<Format>(out + i, lo, x + i, count, largest, log_sum);
  }
}

/// Rows that do not wait for each other's maxima and sums.
template <class Format, bool kLog, int kRows>
[[gnu::always_inline]] inline void rows_together(typename Format::Stored* out, float* lo,
                                                 const typename Format::Stored* x, std::int64_t n,
                                                 float* room) {
  float largest[kRows];
  float sums[kRows];
  alignas(64) float lanes[kRows * kLanes];
  float* e = room;
  if constexpr (sizeof(*out) == sizeof(float) && !kLog) e = out;
  for (int r = 0; r < kRows; ++r) largest[r] = Format::largest(x + r * n, n);
  for (int r = 0; r < kRows; ++r)
    exp_and_sum<Format, !kLog>(lanes + r * kLanes, e + r * n, x + r * n, n, largest[r]);
  if constexpr (kRows == 4)
    reduce_four_lanes<float>(sums, nullptr, lanes);
  else
    sums[0] = reduce_lanes(lanes).hi;
  if constexpr (kLog) {
    for (float& sum : sums) sum = log_of(sum);
    for (int r = 0; r < kRows; ++r) {
      finish_log<Format>(out + r * n, lo == nullptr ? nullptr : lo + r * n, x + r * n, n, largest[r],
                         sums[r]);
    }
  } else {
    for (int r = 0; r < kRows; ++r) {
#pragma GCC ivdep
      for (std::int64_t i = 0; i < n; ++i) out[r * n + i] = Format::narrow(e[r * n + i] / sums[r]);
    }
  }
}

template <class Format, bool kLog>
void softmax_rows(void* out, float* lo, const void* in, std::int64_t rows, std::int64_t n, void* room) {
  constexpr std::int64_t kShort = 512;
  if (n == 0) return;
  const auto* x = static_cast<const typename Format::Stored*>(in);
  auto* y = static_cast<typename Format::Stored*>(out);
  auto* e = static_cast<float*>(room);
  const auto at = [&](std::int64_t r) { return lo == nullptr ? nullptr : lo + r * n; };
  std::int64_t r = 0;
  for (; n <= kShort && r + 4 <= rows; r += 4)
    rows_together<Format, kLog, 4>(y + r * n, at(r), x + r * n, n, e);
  for (; r < rows; ++r) rows_together<Format, kLog, 1>(y + r * n, at(r), x + r * n, n, e);
}

template <bool kLog>
void softmax_rows_f64(void* out, float*, const void* in, std::int64_t rows, std::int64_t n, void*) {
  if (n == 0) return;
  for (std::int64_t r = 0; r < rows; ++r) {
    const double* x = static_cast<const double*>(in) + r * n;
    double* y = static_cast<double*>(out) + r * n;
    const double largest = extreme_of<double, true>(x, n);
#pragma GCC ivdep
    for (std::int64_t i = 0; i < n; ++i) y[i] = exp_of(x[i] - largest);
    const double sum = lane_sum<double, false>(y, n).hi;
    const double log_sum = kLog ? log_of(sum) : 0.0;
#pragma GCC ivdep
    for (std::int64_t i = 0; i < n; ++i) y[i] = kLog ? (x[i] - largest) - log_sum : y[i] / sum;
  }
}

}  // namespace

constexpr SoftmaxKernels kSoftmaxF32 = {softmax_rows<F32, false>, softmax_rows<F32, true>};
constexpr SoftmaxKernels kSoftmaxF64 = {softmax_rows_f64<false>, softmax_rows_f64<true>};
constexpr SoftmaxKernels kSoftmaxBf16 = {softmax_rows<Half<FloatFormat::kBf16>, false>,
                                         softmax_rows<Half<FloatFormat::kBf16>, true>};
constexpr SoftmaxKernels kSoftmaxF16 = {softmax_rows<Half<FloatFormat::kF16>, false>,
                                        softmax_rows<Half<FloatFormat::kF16>, true>};

}  // namespace popsr::kernels
