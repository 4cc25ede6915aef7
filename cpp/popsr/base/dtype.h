// Element types: one DTypeInfo per type holds every fact about it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string_view>

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
};

enum class DTypeKind : std::uint8_t { kBool, kInt, kUInt, kFloat };

struct DTypeInfo {
  DType dtype;
  std::string_view name;        ///< PopXL and numpy name.
  std::string_view short_name;  ///< Used in messages: f32[4, 8].
  std::size_t size;             ///< Bytes of one element.
  DTypeKind kind;
  DType compute;  ///< Type in which arithmetic runs; narrow floats widen to float32.
};

inline constexpr std::array<DTypeInfo, 15> kDTypes = {{
    {DType::kBool, "bool", "bool", 1, DTypeKind::kBool, DType::kBool},
    {DType::kInt8, "int8", "i8", 1, DTypeKind::kInt, DType::kInt8},
    {DType::kInt16, "int16", "i16", 2, DTypeKind::kInt, DType::kInt16},
    {DType::kInt32, "int32", "i32", 4, DTypeKind::kInt, DType::kInt32},
    {DType::kInt64, "int64", "i64", 8, DTypeKind::kInt, DType::kInt64},
    {DType::kUInt8, "uint8", "u8", 1, DTypeKind::kUInt, DType::kUInt8},
    {DType::kUInt16, "uint16", "u16", 2, DTypeKind::kUInt, DType::kUInt16},
    {DType::kUInt32, "uint32", "u32", 4, DTypeKind::kUInt, DType::kUInt32},
    {DType::kUInt64, "uint64", "u64", 8, DTypeKind::kUInt, DType::kUInt64},
    {DType::kFloat16, "float16", "f16", 2, DTypeKind::kFloat, DType::kFloat32},
    {DType::kBFloat16, "bfloat16", "bf16", 2, DTypeKind::kFloat, DType::kFloat32},
    {DType::kFloat32, "float32", "f32", 4, DTypeKind::kFloat, DType::kFloat32},
    {DType::kFloat64, "float64", "f64", 8, DTypeKind::kFloat, DType::kFloat64},
    {DType::kFloat8_143, "float8_143", "f8_143", 1, DTypeKind::kFloat, DType::kFloat32},
    {DType::kFloat8_152, "float8_152", "f8_152", 1, DTypeKind::kFloat, DType::kFloat32},
}};
inline constexpr std::size_t kNumDTypes = kDTypes.size();

constexpr const DTypeInfo& info(DType dtype) { return kDTypes[static_cast<std::size_t>(dtype)]; }
constexpr std::size_t size_of(DType dtype) { return info(dtype).size; }
constexpr bool is_float(DType dtype) { return info(dtype).kind == DTypeKind::kFloat; }
/// True for floats that are widened to float32, computed, and narrowed once per op.
constexpr bool is_narrow_float(DType dtype) { return is_float(dtype) && info(dtype).compute != dtype; }

/// The type of that PopXL name; throws NameError with the accepted names otherwise.
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
  constexpr DTypeSet operator|(DTypeSet other) const {
    DTypeSet both;
    both.bits_ = bits_ | other.bits_;
    return both;
  }

 private:
  std::uint32_t bits_ = 0;
};

inline constexpr DTypeSet kFloating = {DType::kFloat16, DType::kBFloat16, DType::kFloat32, DType::kFloat64};
inline constexpr DTypeSet kIntegers = {DType::kInt8,  DType::kInt16,  DType::kInt32,  DType::kInt64,
                                       DType::kUInt8, DType::kUInt16, DType::kUInt32, DType::kUInt64};
inline constexpr DTypeSet kNumbers = kFloating | kIntegers;
inline constexpr DTypeSet kNumbersAndBool = kNumbers | DTypeSet{DType::kBool};
/// Sign, 4 or 5 bits of exponent, 3 or 2 of mantissa; one NaN, 0x80, no infinity, no negative zero. Their
/// values mean something together with a scale: ops move them, and those of ops/fp8.cpp convert them.
inline constexpr DTypeSet kFloat8 = {DType::kFloat8_143, DType::kFloat8_152};
/// What ops accept that only move elements. Ops that read values accept kNumbersAndBool at most.
inline constexpr DTypeSet kAnyDType = kNumbersAndBool | kFloat8;

}  // namespace popsr
