// The products over images of float.
#include "popsr/kernels/level/product/conv_lines-inl.h"
#include "popsr/kernels/level/product/conv_product-inl.h"

namespace popsr::kernels {

void conv_f32(const ConvArgs& args) { conv<F32>(args); }
void conv_lines_f32(const ConvLinesArgs& args) { conv_lines<F32>(args); }
void conv_plane_f32(const ConvPlaneArgs& args) { conv_plane<F32>(args); }
void fill_lines_f32(const FillLinesArgs& args) { fill_lines<F32>(args); }

void pack_f32(void* to, std::int64_t width, const void* from, std::int64_t from_k, std::int64_t from_x,
              std::int64_t k, std::int64_t cols) {
  pack<F32>(to, width, from, from_k, from_x, k, cols);
}

}  // namespace popsr::kernels
