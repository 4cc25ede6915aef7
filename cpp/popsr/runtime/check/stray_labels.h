// Texts about labels that are not among their op's classes.
#pragma once

#include <string>

#include "popsr/exec/stray_labels.h"

namespace popsr {

class Ir;
struct Op;
struct StrayLabel;

/// "label 7 in row 3 on replica 2 is outside the 3 classes"
std::string stray_text(const Ir& ir, const Op& op, const StrayLabel& stray);

/// Throws OutOfRangeError.
[[noreturn]] void raise_stray(const Ir& ir, const Op& op, const StrayLabel& stray);

}  // namespace popsr
