// How a product is accumulated into what is there.
#pragma once

namespace popsr {

/// c = alpha * c + beta * product; or c = product, whatever c held.
struct FoldFactors {
  double alpha = 1.0, beta = 1.0;
  bool overwrites = false;
};

}  // namespace popsr
