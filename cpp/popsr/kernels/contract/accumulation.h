// Accumulation of a product.
#pragma once

namespace popsr::kernels {

/// c = alpha * c + beta * product; or c = product, whatever c held.
struct AccumulationFactors {
  double alpha = 1.0, beta = 1.0;
  bool overwrites = false;
};

}  // namespace popsr::kernels
