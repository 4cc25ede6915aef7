// Ops that add a product to an operand: alpha * target + beta * product.
#pragma once

#include <optional>

#include "popsr/exec/block_kernel.h"
#include "popsr/exec/product_kernel.h"
#include "popsr/ops/loops/elementwise_walk.h"

namespace popsr {

struct AccumulatedProduct {
  ScalarParam alpha = {.value = 1.0}, beta = {.value = 1.0};
  /// Function that changes (alpha, beta) before they are used.
  void (*prepare)(double* factors) = nullptr;
  bool zero_overwrites = false;  ///< True if the target counts as zeros when alpha is 0, whatever it holds.
  bool symmetric = false;
};

/// Fusion parameters of an op whose input 0 is the target and whose input 1 may be a product; in registers
/// if all are of one wide float type.
ProductFusion accumulated_product(const EvalSpec& spec, const AccumulatedProduct& how);

}  // namespace popsr
