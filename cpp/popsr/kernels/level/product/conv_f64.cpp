// The products over images of double.
#include "popsr/kernels/level/product/conv_lines-inl.h"
#include "popsr/kernels/level/product/conv_product-inl.h"

namespace popsr::kernels {

void conv_f64(const ConvArgs& args) { conv<F64>(args); }
void conv_lines_f64(const ConvLinesArgs& args) { conv_lines<F64>(args); }
void conv_plane_f64(const ConvPlaneArgs& args) { conv_plane<F64>(args); }
void fill_lines_f64(const FillLinesArgs& args) { fill_lines<F64>(args); }

void pack_f64(void* to, std::int64_t width, const void* from, std::int64_t from_k, std::int64_t from_x,
              std::int64_t k, std::int64_t cols) {
  pack<F64>(to, width, from, from_k, from_x, k, cols);
}

}  // namespace popsr::kernels
