// Ops that add a product to an operand: alpha * target + beta * product.
#pragma once

#include <optional>

#include "popsr/exec/block_kernel.h"
#include "popsr/exec/product_kernel.h"
#include "popsr/ops/loops/elementwise_walk.h"

namespace popsr {

struct AccumulatedProduct {
  ScalarParam alpha = {.value = 1.0}, beta = {.value = 1.0};
  void (*prepare)(double* factors) = nullptr;  ///< Changes (alpha, beta) before they are used.
  bool zero_overwrites = false;  ///< With an alpha of 0 the target counts as zeros, whatever it holds.
  bool symmetric = false;
};

/// The fusion of an op whose input 0 is the target and whose input 1 may be a product: in registers where
/// all are of one wide float type.
ProductFusion accumulated_product(const EvalSpec& spec, const AccumulatedProduct& how);

}  // namespace popsr
