// Softmax of one row, see SoftmaxFn.
#pragma once

#include <cstdint>

namespace popsr::kernels {

void softmax_f32(void* out, const void* in, std::int64_t n);
void softmax_f64(void* out, const void* in, std::int64_t n);

}  // namespace popsr::kernels
