// NumPy arrays as the kernels of stochastic rounding see them.
#pragma once

#include <vector>

#include "popsr/bindings/sr/key.h"
#include "popsr/sr/walk.h"

namespace popsr::bindings {

FloatFormat checked_format(int format);
/// `written`: the array must be writable.
kernels::SrArray sr_array(const py::array& array, int format, bool written);
kernels::SrShape shape_of(const py::array& array);

/// The key of the value form: numbers drawn by position never meet numbers drawn by value.
kernels::NoiseKey value_key(const SrKey& key);

void bind_sr_fast_calls(py::module_& m);
void bind_sr_steps(py::module_& m);

}  // namespace popsr::bindings
