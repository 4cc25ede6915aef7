// Running sums over axes of an array, with a rounding at each step.
#pragma once

#include <vector>

#include "popsr/sr/walk.h"

namespace popsr::kernels {

/// Computes out, the sum of x over `axes` (ascending): along them in C order, s = round(x0), s = round(s +
/// x1), ... The step that adds element i of x (C order) draws the noise of element rounding.first + i.
/// `out` has the other axes; the sum of no elements is +0.
void sr_run_sum(const SrRounding& rounding, const SrShape& shape, const SrArray& out, const SrArray& x,
                const std::vector<std::size_t>& axes, int threads);

}  // namespace popsr::kernels
