// Products over images for convolutions; the contract is ConvArgs in popsr/kernels/contract/kernel_table.h.
#pragma once

#include "popsr/kernels/contract/kernel_table.h"
#include "popsr/kernels/level/product/matmul_vec-inl.h"

namespace popsr::kernels {

inline constexpr std::int64_t kConvRows = F32::kRows;
static_assert(F64::kRows == F32::kRows);

void conv_f32(const ConvArgs& args);
void conv_f64(const ConvArgs& args);
void conv_lines_f32(const ConvLinesArgs& args);
void conv_lines_f64(const ConvLinesArgs& args);
void conv_plane_f32(const ConvPlaneArgs& args);
void conv_plane_f64(const ConvPlaneArgs& args);
void fill_lines_f32(const FillLinesArgs& args);
void fill_lines_f64(const FillLinesArgs& args);
void pack_f32(void* to, std::int64_t width, const void* from, std::int64_t from_k, std::int64_t from_x,
              std::int64_t k, std::int64_t cols);
void pack_f64(void* to, std::int64_t width, const void* from, std::int64_t from_k, std::int64_t from_x,
              std::int64_t k, std::int64_t cols);

}  // namespace popsr::kernels
