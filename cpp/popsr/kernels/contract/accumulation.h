// Factors of the accumulation of a product.
#pragma once

namespace popsr::kernels {

/// Factors of c = alpha * c + beta * product; or of c = product, whatever c held.
struct AccumulationFactors {
  double alpha = 1.0, beta = 1.0;
  bool overwrites = false;
};

}  // namespace popsr::kernels
