// Adapts NumPy arrays to the kernels of stochastic rounding.
#pragma once

#include <cstdint>
#include <variant>
#include <vector>

#include "popsr/bindings/sr/key.h"
#include "popsr/sr/walk.h"

namespace popsr::bindings {

FloatFormat checked_format(int format);
/// Array for kernels; throws if `written` and the array is not writable.
kernels::SrArray sr_array(const py::array& array, int format, bool written);
kernels::SrShape shape_of(const py::array& array);

/// Number of the first element, or the runs of all: ends and shifts.
using Offset = std::variant<std::uint64_t, py::array_t<std::uint64_t, py::array::c_style>>;

/// Noise key of the value form, in which numbers drawn by position never coincide with numbers drawn by
/// value.
kernels::NoiseKey value_key(const SrKey& key);

void bind_sr_fast_calls(py::module_& m);
void bind_sr_steps(py::module_& m);

}  // namespace popsr::bindings
