// Float formats: one row per format. Codecs, limits, bit tests and Python's tables follow from the rows.
//
// Plain constants with internal linkage: the kernels of each instruction-set level include this header, and
// must define no symbol that a linker could merge across levels.
#pragma once

#include <cstdint>

namespace popsr {

enum class FloatFormat : int { kF64, kF32, kF16, kBf16, kE4m3fn, kE5m2, kE4m3fnuz, kE5m2fnuz };

/// Encoding of values that are not numbers.
enum class FloatSpecials : int {
  kIeee,         ///< Greatest exponent: infinity with mantissa 0, otherwise NaN (IEEE 754).
  kFinite,       ///< All ones is NaN; no infinity ("fn").
  kUnsignedNan,  ///< The bits of -0 are the one NaN; no infinity, no negative zero ("fnuz").
};

/// Facts of a format. "Code": the bits of a value without its sign. Codes ascend with the magnitude.
struct FloatFormatInfo {
  FloatFormat format;
  const char* name;  ///< Name in NumPy, ml_dtypes and torch.
  int exponent_bits;
  int mantissa_bits;  ///< Stored bits of the mantissa.
  int bias;           ///< Bias of the exponent; normal numbers start at 2^(1 - bias).
  FloatSpecials specials;

  int size;                ///< Size in bytes.
  int precision;           ///< Bits of the significand, including the hidden one.
  std::uint64_t max_code;  ///< Code of the greatest finite number.
  std::uint64_t inf_code;  ///< Code of infinity; nan_code if the format has none.
  std::uint64_t nan_code;  ///< Code of the NaN that conversions write.
  std::uint64_t sign_bit;
  bool negative_zero;
};

/// Makes a row of the table from the facts that define a format.
consteval FloatFormatInfo float_format(FloatFormat format, const char* name, int exponent_bits,
                                       int mantissa_bits, int bias, FloatSpecials specials) {
  const int bits = 1 + exponent_bits + mantissa_bits;
  const std::uint64_t sign = std::uint64_t{1} << (bits - 1);
  const std::uint64_t infinity = ((std::uint64_t{1} << exponent_bits) - 1) << mantissa_bits;
  FloatFormatInfo row = {format,
                         name,
                         exponent_bits,
                         mantissa_bits,
                         bias,
                         specials,
                         bits / 8,
                         1 + mantissa_bits,
                         infinity - 1,
                         infinity,
                         infinity | (std::uint64_t{1} << (mantissa_bits - 1)),
                         sign,
                         true};
  if (specials == FloatSpecials::kFinite) {
    row.max_code = sign - 2;
    row.inf_code = row.nan_code = sign - 1;
  }
  if (specials == FloatSpecials::kUnsignedNan) {
    row.max_code = sign - 1;
    row.inf_code = row.nan_code = sign;
    row.negative_zero = false;
  }
  return row;
}

constexpr FloatFormatInfo kFloatFormats[] = {
    float_format(FloatFormat::kF64, "float64", 11, 52, 1023, FloatSpecials::kIeee),
    float_format(FloatFormat::kF32, "float32", 8, 23, 127, FloatSpecials::kIeee),
    float_format(FloatFormat::kF16, "float16", 5, 10, 15, FloatSpecials::kIeee),
    float_format(FloatFormat::kBf16, "bfloat16", 8, 7, 127, FloatSpecials::kIeee),
    float_format(FloatFormat::kE4m3fn, "float8_e4m3fn", 4, 3, 7, FloatSpecials::kFinite),
    float_format(FloatFormat::kE5m2, "float8_e5m2", 5, 2, 15, FloatSpecials::kIeee),
    float_format(FloatFormat::kE4m3fnuz, "float8_e4m3fnuz", 4, 3, 8, FloatSpecials::kUnsignedNan),
    float_format(FloatFormat::kE5m2fnuz, "float8_e5m2fnuz", 5, 2, 16, FloatSpecials::kUnsignedNan),
};
constexpr int kNumFloatFormats = static_cast<int>(sizeof(kFloatFormats) / sizeof(kFloatFormats[0]));

static_assert(
    [] {
      for (int i = 0; i < kNumFloatFormats; ++i) {
        if (static_cast<int>(kFloatFormats[i].format) != i) return false;
      }
      return true;
    }(),
    "rows are in the order of FloatFormat");

[[gnu::always_inline]] constexpr const FloatFormatInfo& info(FloatFormat format) {
  return kFloatFormats[static_cast<int>(format)];
}
[[gnu::always_inline]] constexpr int size_of(FloatFormat format) { return info(format).size; }

/// True for the bits of a NaN.
constexpr bool is_nan(FloatFormat format, std::uint64_t bits) {
  const FloatFormatInfo& row = info(format);
  if (!row.negative_zero) return bits == row.nan_code;
  const std::uint64_t code = bits & (row.sign_bit - 1);
  return code > row.max_code && (code != row.inf_code || row.inf_code == row.nan_code);
}

/// Number with those bits; NaN keeps its sign.
double number_of(FloatFormat format, std::uint64_t bits);
/// Greatest finite number.
double greatest(FloatFormat format);
/// Exponent of the least positive number, the power of two 2^least_exponent.
constexpr int least_exponent(FloatFormat format) {
  return 1 - info(format).bias - info(format).mantissa_bits;
}

}  // namespace popsr
