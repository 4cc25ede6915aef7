// Element types: one DTypeInfo per type holds every fact about it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string_view>

#include "popsr/base/float_format.h"

namespace popsr {

enum class DType : std::uint8_t {
  kBool,
  kInt8,
  kInt16,
  kInt32,
  kInt64,
  kUInt8,
  kUInt16,
  kUInt32,
  kUInt64,
  kFloat16,
  kBFloat16,
  kFloat32,
  kFloat64,
  kFloat8_143,
  kFloat8_152,
  kFloat8E4M3FN,
  kFloat8E5M2,
  kFloat8E8M0FNU,
  kFloat4E2M1FN,
};

/// Kind of an element type. A carrier holds codes of a number format: ops move it, and only `cast` reads
/// its values.
enum class DTypeKind : std::uint8_t { kBool, kInt, kUInt, kFloat, kCarrier };

struct DTypeInfo {
  DType dtype;
  std::string_view name;        ///< Name in PopXL and NumPy.
  std::string_view short_name;  ///< Name in messages, such as f32[4, 8].
  std::size_t size;             ///< Bytes of one element.
  DTypeKind kind;
  DType compute;                      ///< Type in which arithmetic runs; narrow floats widen to float32.
  std::optional<FloatFormat> format;  ///< Format of floats that ops compute with; nullopt for other types.
};

/// Row of a type that ops do not compute with as a float.
constexpr DTypeInfo exact_dtype(DType dtype, std::string_view name, std::string_view short_name,
                                std::size_t size, DTypeKind kind) {
  return {dtype, name, short_name, size, kind, dtype, std::nullopt};
}
constexpr DTypeInfo float_dtype(DType dtype, std::string_view name, std::string_view short_name,
                                FloatFormat format) {
  const auto size = static_cast<std::size_t>(size_of(format));
  return {dtype, name, short_name, size, DTypeKind::kFloat, size < 4 ? DType::kFloat32 : dtype, format};
}

inline constexpr std::array kDTypes = {
    exact_dtype(DType::kBool, "bool", "bool", 1, DTypeKind::kBool),
    exact_dtype(DType::kInt8, "int8", "i8", 1, DTypeKind::kInt),
    exact_dtype(DType::kInt16, "int16", "i16", 2, DTypeKind::kInt),
    exact_dtype(DType::kInt32, "int32", "i32", 4, DTypeKind::kInt),
    exact_dtype(DType::kInt64, "int64", "i64", 8, DTypeKind::kInt),
    exact_dtype(DType::kUInt8, "uint8", "u8", 1, DTypeKind::kUInt),
    exact_dtype(DType::kUInt16, "uint16", "u16", 2, DTypeKind::kUInt),
    exact_dtype(DType::kUInt32, "uint32", "u32", 4, DTypeKind::kUInt),
    exact_dtype(DType::kUInt64, "uint64", "u64", 8, DTypeKind::kUInt),
    float_dtype(DType::kFloat16, "float16", "f16", FloatFormat::kF16),
    float_dtype(DType::kBFloat16, "bfloat16", "bf16", FloatFormat::kBf16),
    float_dtype(DType::kFloat32, "float32", "f32", FloatFormat::kF32),
    float_dtype(DType::kFloat64, "float64", "f64", FloatFormat::kF64),
    float_dtype(DType::kFloat8_143, "float8_143", "f8_143", FloatFormat::kE4m3fnuz),
    float_dtype(DType::kFloat8_152, "float8_152", "f8_152", FloatFormat::kE5m2fnuz),
    float_dtype(DType::kFloat8E4M3FN, "float8_e4m3fn", "f8_e4m3fn", FloatFormat::kE4m3fn),
    float_dtype(DType::kFloat8E5M2, "float8_e5m2", "f8_e5m2", FloatFormat::kE5m2),
    exact_dtype(DType::kFloat8E8M0FNU, "float8_e8m0fnu", "f8_e8m0fnu", 1, DTypeKind::kCarrier),
    exact_dtype(DType::kFloat4E2M1FN, "float4_e2m1fn", "f4_e2m1fn", 1, DTypeKind::kCarrier),
};
inline constexpr std::size_t kNumDTypes = kDTypes.size();
static_assert(
    [] {
      for (std::size_t i = 0; i < kNumDTypes; ++i) {
        if (static_cast<std::size_t>(kDTypes[i].dtype) != i) return false;
      }
      return true;
    }(),
    "rows are in the order of DType");

constexpr const DTypeInfo& info(DType dtype) { return kDTypes[static_cast<std::size_t>(dtype)]; }
constexpr std::size_t size_of(DType dtype) { return info(dtype).size; }
constexpr bool is_float(DType dtype) { return info(dtype).format.has_value(); }
/// Format of a floating dtype.
constexpr FloatFormat format_of(DType dtype) { return info(dtype).format.value(); }
/// Code of the single NaN of a dtype without infinities and signed NaNs; nullopt for others.
constexpr std::optional<std::uint8_t> only_nan(DType dtype) {
  if (dtype == DType::kFloat8E8M0FNU) return std::uint8_t{0xff};
  if (!is_float(dtype) || info(format_of(dtype)).negative_zero) return std::nullopt;
  return static_cast<std::uint8_t>(info(format_of(dtype)).nan_code);
}
/// True for dtypes with values that are not finite.
constexpr bool has_nan(DType dtype) { return is_float(dtype) || only_nan(dtype).has_value(); }
/// True for floats that are widened to float32, computed, and narrowed once per op.
constexpr bool is_narrow_float(DType dtype) { return is_float(dtype) && info(dtype).compute != dtype; }

/// Type of that PopXL name; throws NameError with the accepted names otherwise.
DType dtype_from_name(std::string_view name);

/// Bit set of element types that an input accepts.
class DTypeSet {
 public:
  constexpr DTypeSet() = default;
  constexpr DTypeSet(std::initializer_list<DType> dtypes) {
    for (const DType dtype : dtypes)
      bits_ = static_cast<std::uint32_t>(bits_ | (1U << static_cast<unsigned>(dtype)));
  }
  constexpr bool contains(DType dtype) const { return ((bits_ >> static_cast<unsigned>(dtype)) & 1U) != 0; }
  constexpr bool intersects(DTypeSet other) const { return (bits_ & other.bits_) != 0; }
  constexpr DTypeSet operator|(DTypeSet other) const {
    DTypeSet both;
    both.bits_ = bits_ | other.bits_;
    return both;
  }

 private:
  std::uint32_t bits_ = 0;
};

/// Types whose row satisfies a predicate.
template <class Predicate>
constexpr DTypeSet dtypes_where(Predicate accepts) {
  DTypeSet set;
  for (const DTypeInfo& row : kDTypes) {
    if (accepts(row)) set = set | DTypeSet{row.dtype};
  }
  return set;
}

inline constexpr DTypeSet kFloating =
    dtypes_where([](const DTypeInfo& row) { return row.format && row.size > 1; });
inline constexpr DTypeSet kIntegers = dtypes_where(
    [](const DTypeInfo& row) { return row.kind == DTypeKind::kInt || row.kind == DTypeKind::kUInt; });
inline constexpr DTypeSet kNumbers = kFloating | kIntegers;
inline constexpr DTypeSet kNumbersAndBool = kNumbers | DTypeSet{DType::kBool};
/// Floats of 8 bits. Their values are used together with a scale: ops move them, and the ops of
/// ops/math/cast.cpp convert them.
inline constexpr DTypeSet kFloat8 =
    dtypes_where([](const DTypeInfo& row) { return row.format && row.size == 1; });
/// OCP's scales and 4-bit floats, one element per byte.
inline constexpr DTypeSet kCarriers =
    dtypes_where([](const DTypeInfo& row) { return row.kind == DTypeKind::kCarrier; });
/// Types of ops that only move elements. Ops that read values accept kNumbersAndBool at most.
inline constexpr DTypeSet kAnyDType = kNumbersAndBool | kFloat8 | kCarriers;

/// Reads an element of an integer dtype. 2^63 and above come out negative: out of range either way.
std::int64_t read_integer(const std::byte* data, DType dtype);

}  // namespace popsr
