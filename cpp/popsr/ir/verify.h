// Checks of a whole program before it is analysed and run.
#pragma once

#include "popsr/ir/ir.h"

namespace popsr {

/// Throws GraphError when a tensor is modified in place and read by another op whose order relative to the
/// modifier is fixed neither by data nor by in_sequence ("Inplacing ambiguity detected."), in any graph the
/// main graph reaches; also when an op modifies a tensor through two of its inputs.
void verify(const Ir& ir);

}  // namespace popsr
