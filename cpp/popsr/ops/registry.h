// Registry of all ops.
#pragma once

#include <memory>
#include <vector>

#include "popsr/ir/op_def.h"

namespace popsr {

#define POPSR_ROW(family) std::vector<OpDef> family##_ops();
#include "popsr/ops/families.def"

/// Registry of the product, built once. Each op knows its family.
std::shared_ptr<const Registry> default_registry();

}  // namespace popsr
