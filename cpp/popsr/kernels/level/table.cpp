// The table of one level, a constant: loading the object runs no code.
//
// nullptr where an operation has no meaning for a compute type:
//   integers   exp, log, sqrt, tanh, gelu, ..., sin, cos and all gradients (unsigned: negate wraps, abs is
//   the
//              identity)
//   bool       everything but maximum (or), minimum (and), the comparisons, logical_not, and the reductions
//              max (any) and min (all)
// Scale and scaled_add of integers take their scalars truncated and saturated to the type, and wrap.
#include "popsr/kernels/contract/kernel_table.h"

#include "popsr/kernels/level/convert/bf16-inl.h"
#include "popsr/kernels/level/convert/bf16.h"
#include "popsr/kernels/level/convert/cast-inl.h"
#include "popsr/kernels/level/convert/convert.h"
#include "popsr/kernels/level/math/elementwise-inl.h"
#include "popsr/kernels/level/math/exact-inl.h"
#include "popsr/kernels/level/math/functions.h"
#include "popsr/kernels/level/math/math.h"
#include "popsr/kernels/level/move/gather.h"
#include "popsr/kernels/level/noise/ars.h"
#include "popsr/kernels/level/noise/dropout.h"
#include "popsr/kernels/level/product/conv.h"
#include "popsr/kernels/level/product/matmul.h"
#include "popsr/kernels/level/reduce/norm-inl.h"
#include "popsr/kernels/level/reduce/reduce-inl.h"
#include "popsr/kernels/level/round/sr.h"

namespace popsr::kernels {
namespace {

constexpr int index(Ew op) { return static_cast<int>(op); }
constexpr int index(Reduce op) { return static_cast<int>(op); }
constexpr int index(Compute type) { return static_cast<int>(type); }

/// What every number type has.
template <class T>
constexpr void fill_arithmetic(KernelTable& table, Compute type) {
  const int c = index(type);
  auto& ew = table.elementwise;
  ew[index(Ew::kAdd)][c] = sum_loop<T, PlainTerms<T>>;
  ew[index(Ew::kSub)][c] = sum_loop<T, NegatedTerms<T>>;
  ew[index(Ew::kMul)][c] = binary_loop<T, Multiply<T>>;
  ew[index(Ew::kDiv)][c] = binary_loop<T, Divide<T>>;
  ew[index(Ew::kMaximum)][c] = binary_loop<T, Maximum<T>>;
  ew[index(Ew::kMinimum)][c] = binary_loop<T, Minimum<T>>;
  ew[index(Ew::kNegate)][c] = unary_loop<T, Negate<T>>;
  ew[index(Ew::kAbs)][c] = unary_loop<T, Absolute<T>>;
  ew[index(Ew::kRelu)][c] = unary_loop<T, Relu<T>>;
  ew[index(Ew::kScaledAdd)][c] = sum_loop<T, ScaledTerms<T>>;
  ew[index(Ew::kScale)][c] = scale_loop<T>;
  ew[index(Ew::kEqualMask)][c] = binary_loop<T, EqualMask<T>>;
  ew[index(Ew::kGreater)][c] = binary_loop<T, Greater<T>>;
  ew[index(Ew::kLogicalNot)][c] = unary_loop<T, LogicalNot<T>>;
  ew[index(Ew::kIsNan)][c] = unary_loop<T, IsNan<T>>;
  ew[index(Ew::kIsInf)][c] = unary_loop<T, IsInf<T>>;
  ew[index(Ew::kIsFinite)][c] = unary_loop<T, IsFinite<T>>;
  ew[index(Ew::kSelect)][c] = select_loop<T>;
  ew[index(Ew::kFloor)][c] = unary_loop<T, Floor<T>>;
  ew[index(Ew::kCeil)][c] = unary_loop<T, Ceil<T>>;
  ew[index(Ew::kSign)][c] = unary_loop<T, Sign<T>>;
  ew[index(Ew::kClip)][c] = clip_loop<T>;
  ew[index(Ew::kFmod)][c] = fmod_loop<T>;
  ew[index(Ew::kIncrementMod)][c] = increment_mod_loop<T>;
  table.reduce[index(Reduce::kSum)][c] = sum_rows<T, false>;
  table.reduce[index(Reduce::kSumSquare)][c] = sum_rows<T, true>;
  table.reduce[index(Reduce::kProduct)][c] = product_rows<T>;
  table.reduce[index(Reduce::kMax)][c] = extreme_rows<T, true>;
  table.reduce[index(Reduce::kMin)][c] = extreme_rows<T, false>;
}

template <class T>
constexpr void fill_integer(KernelTable& table, Compute type) {
  fill_arithmetic<T>(table, type);
  table.elementwise[index(Ew::kPow)][index(type)] = binary_loop<T, IntegerPower<T>>;
}

template <class T>
constexpr void fill_float(KernelTable& table, Compute type) {
  fill_arithmetic<T>(table, type);
  const int c = index(type);
  auto& ew = table.elementwise;
  ew[index(Ew::kSqrt)][c] = unary_loop<T, Sqrt<T>>;
  ew[index(Ew::kReluGrad)][c] = binary_loop<T, ReluGrad<T>>;
  ew[index(Ew::kTanhGrad)][c] = binary_loop<T, TanhGrad<T>>;
  ew[index(Ew::kAbsGrad)][c] = binary_loop<T, AbsGrad<T>>;
  ew[index(Ew::kClipGrad)][c] = clip_grad_loop<T>;
  ew[index(Ew::kRsqrt)][c] = unary_loop<T, Rsqrt<T>>;
}

constexpr void fill_polynomials(KernelTable& table) {
  const int f = index(Compute::kF32);
  const int d = index(Compute::kF64);
  auto& ew = table.elementwise;
  ew[index(Ew::kExp)][f] = exp_f32;
  ew[index(Ew::kExp)][d] = exp_f64;
  ew[index(Ew::kLog)][f] = log_f32;
  ew[index(Ew::kLog)][d] = log_f64;
  ew[index(Ew::kTanh)][f] = tanh_f32;
  ew[index(Ew::kTanh)][d] = tanh_f64;
  ew[index(Ew::kGelu)][f] = gelu_f32;
  ew[index(Ew::kGelu)][d] = gelu_f64;
  ew[index(Ew::kGeluGrad)][f] = gelu_grad_f32;
  ew[index(Ew::kGeluGrad)][d] = gelu_grad_f64;
  ew[index(Ew::kPow)][f] = pow_f32;
  ew[index(Ew::kPow)][d] = pow_f64;
  ew[index(Ew::kPowGradBase)][f] = pow_grad_base_f32;
  ew[index(Ew::kPowGradBase)][d] = pow_grad_base_f64;
  ew[index(Ew::kPowGradExponent)][f] = pow_grad_exponent_f32;
  ew[index(Ew::kPowGradExponent)][d] = pow_grad_exponent_f64;
  ew[index(Ew::kSin)][f] = sin_f32;
  ew[index(Ew::kSin)][d] = sin_f64;
  ew[index(Ew::kCos)][f] = cos_f32;
  ew[index(Ew::kCos)][d] = cos_f64;
  ew[index(Ew::kLog2)][f] = log2_f32;
  ew[index(Ew::kLog2)][d] = log2_f64;
  ew[index(Ew::kSigmoid)][f] = sigmoid_f32;
  ew[index(Ew::kSigmoid)][d] = sigmoid_f64;
  ew[index(Ew::kSigmoidGrad)][f] = sigmoid_grad_f32;
  ew[index(Ew::kSigmoidGrad)][d] = sigmoid_grad_f64;
  ew[index(Ew::kSwish)][f] = swish_f32;
  ew[index(Ew::kSwish)][d] = swish_f64;
  ew[index(Ew::kSwishGrad)][f] = swish_grad_f32;
  ew[index(Ew::kSwishGrad)][d] = swish_grad_f64;
  ew[index(Ew::kGeluErf)][f] = geluerf_f32;
  ew[index(Ew::kGeluErf)][d] = geluerf_f64;
  ew[index(Ew::kGeluErfGrad)][f] = geluerf_grad_f32;
  ew[index(Ew::kGeluErfGrad)][d] = geluerf_grad_f64;
}

constexpr void fill_bf16(KernelTable& table) {
  auto& ew = table.elementwise_bf16;
  ew[index(Ew::kAdd)] = binary_bf16<Add<float>>;
  ew[index(Ew::kSub)] = binary_bf16<Subtract<float>>;
  ew[index(Ew::kMul)] = binary_bf16<Multiply<float>>;
  ew[index(Ew::kDiv)] = binary_bf16<Divide<float>>;
  ew[index(Ew::kSqrt)] = unary_bf16<Sqrt<float>>;
  ew[index(Ew::kExp)] = exp_bf16;
  ew[index(Ew::kGelu)] = gelu_bf16;
  ew[index(Ew::kSigmoid)] = sigmoid_bf16;
  ew[index(Ew::kSwish)] = swish_bf16;
  ew[index(Ew::kSin)] = sin_bf16;
  ew[index(Ew::kCos)] = cos_bf16;
}

constexpr void fill_bool(KernelTable& table) {
  const int c = index(Compute::kBool);
  table.elementwise[index(Ew::kMaximum)][c] = binary_loop<std::uint8_t, Maximum<std::uint8_t>>;
  table.elementwise[index(Ew::kMinimum)][c] = binary_loop<std::uint8_t, Minimum<std::uint8_t>>;
  table.elementwise[index(Ew::kEqualMask)][c] = binary_loop<std::uint8_t, EqualMask<std::uint8_t>>;
  table.elementwise[index(Ew::kGreater)][c] = binary_loop<std::uint8_t, Greater<std::uint8_t>>;
  table.elementwise[index(Ew::kLogicalNot)][c] = unary_loop<std::uint8_t, LogicalNot<std::uint8_t>>;
  table.reduce[index(Reduce::kMax)][c] = extreme_rows_bool<true>;
  table.reduce[index(Reduce::kMin)][c] = extreme_rows_bool<false>;
}

template <class From>
constexpr void fill_casts(KernelTable& table, Compute from) {
  auto& row = table.cast[index(from)];
  row[index(Compute::kF32)] = cast_loop<float, From>;
  row[index(Compute::kF64)] = cast_loop<double, From>;
  row[index(Compute::kI8)] = cast_loop<std::int8_t, From>;
  row[index(Compute::kI16)] = cast_loop<std::int16_t, From>;
  row[index(Compute::kI32)] = cast_loop<std::int32_t, From>;
  row[index(Compute::kI64)] = cast_loop<std::int64_t, From>;
  row[index(Compute::kU8)] = cast_loop<std::uint8_t, From>;
  row[index(Compute::kU16)] = cast_loop<std::uint16_t, From>;
  row[index(Compute::kU32)] = cast_loop<std::uint32_t, From>;
  row[index(Compute::kU64)] = cast_loop<std::uint64_t, From>;
  row[index(Compute::kBool)] = cast_loop<Bool, From>;
}

constexpr void fill_functions(KernelTable& table) {
  table.softmax_f32 = softmax_f32;
  table.softmax_f64 = softmax_f64;
  table.norm_f32 = kNorm<float>;
  table.norm_f64 = kNorm<double>;
  table.sum_bf16 = sum_float_rows<float, false, std::uint16_t>;
  table.widen = widen_floats;
  table.narrow = narrow_floats;
  table.split_f64 = split_f64;
  table.split_i64 = split_i64;
  table.split_u64 = split_u64;
  table.uniform_bits = uniform_bits;
  table.ars7 = ars7;
  table.keep_mask = keep_mask;
  table.keep_scaled_f32 = keep_scaled_f32;
  table.keep_scaled_f64 = keep_scaled_f64;
  table.gather_strided = gather_strided;
  table.sr_apply = sr_apply;
  table.sr_apply_tiles = sr_apply_tiles;
  table.sr_adamw = sr_adamw;
  table.sr_fold = sr_fold;
  table.sr_value_add = sr_value_add;
  table.sr_value_bits = sr_value_bits;
  table.matmul_f32 = matmul_f32;
  table.matmul_f64 = matmul_f64;
  table.matmul_scratch = matmul_scratch;
  table.conv_f32 = conv_f32;
  table.conv_f64 = conv_f64;
  table.pack_f32 = pack_f32;
  table.pack_f64 = pack_f64;
  table.conv_rows = kConvRows;
}

/// Everything one integer type has.
template <class T>
constexpr void fill_integer_and_casts(KernelTable& table, Compute type) {
  fill_integer<T>(table, type);
  fill_casts<T>(table, type);
}

constexpr KernelTable make_table() {
  KernelTable table = {};
  table.level = POPSR_LEVEL;
  fill_float<float>(table, Compute::kF32);
  fill_float<double>(table, Compute::kF64);
  fill_polynomials(table);
  fill_casts<float>(table, Compute::kF32);
  fill_casts<double>(table, Compute::kF64);
  fill_integer_and_casts<std::int8_t>(table, Compute::kI8);
  fill_integer_and_casts<std::int16_t>(table, Compute::kI16);
  fill_integer_and_casts<std::int32_t>(table, Compute::kI32);
  fill_integer_and_casts<std::int64_t>(table, Compute::kI64);
  fill_integer_and_casts<std::uint8_t>(table, Compute::kU8);
  fill_integer_and_casts<std::uint16_t>(table, Compute::kU16);
  fill_integer_and_casts<std::uint32_t>(table, Compute::kU32);
  fill_integer_and_casts<std::uint64_t>(table, Compute::kU64);
  fill_bf16(table);
  fill_bool(table);
  fill_casts<Bool>(table, Compute::kBool);
  fill_functions(table);
  return table;
}

constexpr KernelTable kTable = make_table();

}  // namespace
}  // namespace popsr::kernels

extern "C" __attribute__((visibility("default"))) const popsr::kernels::KernelTable* popsr_kernel_table() {
  return &popsr::kernels::kTable;
}
