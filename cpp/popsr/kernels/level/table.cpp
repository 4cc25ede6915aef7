// The table of one level, a constant: loading the object runs no code.
#include "popsr/kernels/contract/kernel_table.h"

#include "popsr/kernels/level/convert/cast-inl.h"
#include "popsr/kernels/level/convert/convert.h"
#include "popsr/kernels/level/math/elementwise-inl.h"
#include "popsr/kernels/level/move/gather.h"
#include "popsr/kernels/level/noise/ars.h"
#include "popsr/kernels/level/noise/dropout_mask.h"
#include "popsr/kernels/level/product/conv.h"
#include "popsr/kernels/level/product/integer_matmul.h"
#include "popsr/kernels/level/product/matmul.h"
#include "popsr/kernels/level/reduce/column_sums.h"
#include "popsr/kernels/level/reduce/norm-inl.h"
#include "popsr/kernels/level/reduce/reduce-inl.h"
#include "popsr/kernels/level/reduce/softmax_rows.h"
#include "popsr/kernels/level/reduce/sort_words-inl.h"
#include "popsr/kernels/level/round/sr.h"

namespace popsr::kernels {
namespace {

constexpr int index(Reduce op) { return static_cast<int>(op); }
constexpr int index(Compute type) { return static_cast<int>(type); }

constexpr void fill_elementwise(KernelTable& table) {
#define POPSR_ROW(name, ...) \
  table.elementwise_kernels[static_cast<int>(ElementwiseOp::k##name)] = &k##name##Kernels;
#include "popsr/kernels/contract/elementwise.def"
}

template <class T>
constexpr void fill_reductions(KernelTable& table, Compute type) {
  const int c = index(type);
  table.reduce[index(Reduce::kSum)][c] = sum_rows<Unsigned<T>, false>;
  table.reduce[index(Reduce::kSumSquare)][c] = sum_rows<Unsigned<T>, true>;
  table.reduce[index(Reduce::kProduct)][c] = product_rows<Unsigned<T>>;
  table.reduce[index(Reduce::kMax)][c] = extreme_rows<T, true>;
  table.reduce[index(Reduce::kMin)][c] = extreme_rows<T, false>;
}

template <class From>
constexpr void fill_casts(KernelTable& table, Compute from) {
  auto& row = table.cast[index(from)];
  row[index(Compute::kF32)] = cast_of<float, From>();
  row[index(Compute::kF64)] = cast_of<double, From>();
  row[index(Compute::kI8)] = cast_of<std::int8_t, From>();
  row[index(Compute::kI16)] = cast_of<std::int16_t, From>();
  row[index(Compute::kI32)] = cast_of<std::int32_t, From>();
  row[index(Compute::kI64)] = cast_of<std::int64_t, From>();
  row[index(Compute::kU8)] = cast_of<std::uint8_t, From>();
  row[index(Compute::kU16)] = cast_of<std::uint16_t, From>();
  row[index(Compute::kU32)] = cast_of<std::uint32_t, From>();
  row[index(Compute::kU64)] = cast_of<std::uint64_t, From>();
  row[index(Compute::kBool)] = cast_of<Bool, From>();
}

constexpr void fill_functions(KernelTable& table) {
  table.softmax_f32 = &kSoftmaxF32;
  table.softmax_f64 = &kSoftmaxF64;
  table.softmax_bf16 = &kSoftmaxBf16;
  table.softmax_f16 = &kSoftmaxF16;
  table.columns_f32 = &kColumnsF32;
  table.columns_f64 = &kColumnsF64;
  table.columns_bf16 = &kColumnsBf16;
  table.norm_f32 = kNorm<float>;
  table.norm_f64 = kNorm<double>;
  table.reduce_bf16[index(Reduce::kSum)] = sum_float_rows<float, false, std::uint16_t>;
  table.reduce_bf16[index(Reduce::kMax)] = extreme_rows_bf16<true>;
  table.reduce_bf16[index(Reduce::kMin)] = extreme_rows_bf16<false>;
  table.sort_few_words = sort_few_words;
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
  table.sr_reduce = sr_reduce;
  table.sr_value_add = sr_value_add;
  table.sr_value_bits = sr_value_bits;
  table.matmul_f32 = matmul_f32;
  table.matmul_f64 = matmul_f64;
  table.matmul_scratch = matmul_scratch;
  table.matmul_integer = matmul_integer;
  table.matmul_integer_scratch = matmul_integer_scratch;
  table.conv_f32 = conv_f32;
  table.conv_f64 = conv_f64;
  table.conv_lines_f32 = conv_lines_f32;
  table.conv_lines_f64 = conv_lines_f64;
  table.conv_plane_f32 = conv_plane_f32;
  table.conv_plane_f64 = conv_plane_f64;
  table.fill_lines_f32 = fill_lines_f32;
  table.fill_lines_f64 = fill_lines_f64;
  table.pack_f32 = pack_f32;
  table.pack_f64 = pack_f64;
  table.conv_rows = kConvRows;
}

/// Kernels of every number type.
template <class T>
constexpr void fill_number(KernelTable& table, Compute type) {
  fill_reductions<T>(table, type);
  fill_casts<T>(table, type);
}

constexpr KernelTable make_table() {
  KernelTable table = {};
  table.level = POPSR_LEVEL;
  fill_elementwise(table);
  fill_number<float>(table, Compute::kF32);
  fill_number<double>(table, Compute::kF64);
  fill_number<std::int8_t>(table, Compute::kI8);
  fill_number<std::int16_t>(table, Compute::kI16);
  fill_number<std::int32_t>(table, Compute::kI32);
  fill_number<std::int64_t>(table, Compute::kI64);
  fill_number<std::uint8_t>(table, Compute::kU8);
  fill_number<std::uint16_t>(table, Compute::kU16);
  fill_number<std::uint32_t>(table, Compute::kU32);
  fill_number<std::uint64_t>(table, Compute::kU64);
  fill_casts<Bool>(table, Compute::kBool);
  table.reduce[index(Reduce::kMax)][index(Compute::kBool)] = extreme_rows_bool<true>;
  table.reduce[index(Reduce::kMin)][index(Compute::kBool)] = extreme_rows_bool<false>;
  fill_functions(table);
  return table;
}

constexpr KernelTable kTable = make_table();

}  // namespace
}  // namespace popsr::kernels

extern "C" __attribute__((visibility("default"))) const popsr::kernels::KernelTable* popsr_kernel_table() {
  return &popsr::kernels::kTable;
}
