// Texts about labels outside the classes of their op.
#pragma once

#include <string>

#include "popsr/exec/invalid_labels.h"

namespace popsr {

class Ir;
struct Op;
struct InvalidLabel;

/// Text such as "label 7 in row 3 on replica 2 is outside the 3 classes".
std::string invalid_label_text(const Ir& ir, const Op& op, const InvalidLabel& invalid);

/// Throws OutOfRangeError for the label.
[[noreturn]] void raise_invalid_label(const Ir& ir, const Op& op, const InvalidLabel& invalid);

}  // namespace popsr
