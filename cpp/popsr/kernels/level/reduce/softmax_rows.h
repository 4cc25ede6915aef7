// Rows of softmax and of log_softmax, see SoftmaxKernels.
#pragma once

#include "popsr/kernels/contract/kernel_table.h"

namespace popsr::kernels {

extern const SoftmaxKernels kSoftmaxF32;
extern const SoftmaxKernels kSoftmaxF64;
extern const SoftmaxKernels kSoftmaxBf16;
extern const SoftmaxKernels kSoftmaxF16;

}  // namespace popsr::kernels
