// Texts about labels that are not among their op's classes.
#pragma once

#include <string>

#include "popsr/exec/invalid_labels.h"

namespace popsr {

class Ir;
struct Op;
struct InvalidLabel;

/// "label 7 in row 3 on replica 2 is outside the 3 classes"
std::string invalid_label_text(const Ir& ir, const Op& op, const InvalidLabel& invalid);

/// Throws OutOfRangeError.
[[noreturn]] void raise_invalid_label(const Ir& ir, const Op& op, const InvalidLabel& invalid);

}  // namespace popsr
