#include "popsr/ops/math/carriers.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "popsr/base/dtype.h"
#include "popsr/base/layout/shape.h"

namespace popsr {
namespace {

constexpr std::uint32_t kSign = 0x80000000U;
constexpr std::uint32_t kInfinity = 0x7f800000U;
constexpr int kMantissaBits = 23;

constexpr std::array<float, 8> kE2m1 = {0, 0.5F, 1, 1.5F, 2, 3, 4, 6};

template <class From, class To, To (*convert)(From)>
BlockKernel each_element(std::int64_t n) {
  return [n](const BlockRun& run) {
    for (std::int64_t b = 0; b < run.blocks; ++b) {
      const std::byte* in = run.in[0] + b * run.in_stride[0];
      std::byte* out = run.out[0] + b * run.out_stride[0];
      for (std::int64_t i = 0; i < n; ++i) {
        From from;
        std::memcpy(&from, in + static_cast<std::size_t>(i) * sizeof(From), sizeof(From));
        const To to = convert(from);
        std::memcpy(out + static_cast<std::size_t>(i) * sizeof(To), &to, sizeof(To));
      }
    }
  };
}

}  // namespace

std::uint8_t encode_e8m0(float value) {
  constexpr std::uint32_t kNan = 255;
  constexpr std::uint32_t kHalf = 1U << (kMantissaBits - 1);
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (bits == 0 || bits >= kInfinity) return kNan;
  if (bits < (1U << kMantissaBits)) return bits > kHalf ? 1 : 0;  // The subnormal 2^-127 is kHalf.
  return static_cast<std::uint8_t>((bits + kHalf) >> kMantissaBits);
}

float decode_e8m0(std::uint8_t code) {
  if (code == 255) return std::numeric_limits<float>::quiet_NaN();
  const std::uint32_t subnormal = 1U << (kMantissaBits - 1);
  return std::bit_cast<float>(code == 0 ? subnormal : std::uint32_t{code} << kMantissaBits);
}

std::uint8_t encode_e2m1(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint8_t sign = (bits & kSign) != 0 ? 8 : 0;
  if ((bits & ~kSign) > kInfinity) return static_cast<std::uint8_t>(sign ^ 8U);
  const float magnitude = std::bit_cast<float>(bits & ~kSign);
  std::uint8_t code = 0;
  for (std::uint8_t next = 1; next < kE2m1.size(); ++next) {
    const float middle = (kE2m1[next - 1U] + kE2m1[next]) / 2;
    if (magnitude > middle || (magnitude == middle && next % 2 == 0)) code = next;
  }
  return static_cast<std::uint8_t>(sign | code);
}

float decode_e2m1(std::uint8_t code) {
  const float magnitude = kE2m1[code & 7U];
  return (code & 8U) != 0 ? -magnitude : magnitude;
}

BlockKernel carrier_cast(const EvalSpec& spec) {
  const std::int64_t n = num_elements(spec.outputs[0].shape);
  const DType from = spec.inputs[0]->dtype;
  const DType to = spec.outputs[0].dtype;
  if (to == DType::kFloat8E8M0FNU) return each_element<float, std::uint8_t, encode_e8m0>(n);
  if (to == DType::kFloat4E2M1FN) return each_element<float, std::uint8_t, encode_e2m1>(n);
  return from == DType::kFloat8E8M0FNU ? each_element<std::uint8_t, float, decode_e8m0>(n)
                                       : each_element<std::uint8_t, float, decode_e2m1>(n);
}

}  // namespace popsr
