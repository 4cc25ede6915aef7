#include "popsr/runtime/check/label_errors.h"

#include <fmt/format.h>

#include <algorithm>

#include "popsr/analysis/explain/explanation.h"
#include "popsr/base/error.h"
#include "popsr/exec/invalid_labels.h"
#include "popsr/ir/op_def.h"

namespace popsr {
namespace {

/// "3", "[1, 3]": the place of an element of the op's labels.
std::string row_text(const Ir& ir, const Op& op, std::int64_t place) {
  const Shape& shape = ir.tensor(op.inputs[op.def->numerics.labels.value()]).type.shape;
  if (shape.size() <= 1) return fmt::format("{}", place);
  Shape index(shape.size());
  for (std::size_t d = shape.size(); d-- > 0;) {
    index[d] = place % shape[d];
    place /= shape[d];
  }
  return to_string(index);
}

}  // namespace

std::string invalid_label_text(const Ir& ir, const Op& op, const InvalidLabel& invalid) {
  return fmt::format("label {} in row {} on replica {} is outside the {} classes", invalid.label,
                     row_text(ir, op, invalid.place), invalid.replica, invalid.classes);
}

void raise_invalid_label(const Ir& ir, const Op& op, const InvalidLabel& invalid) {
  const bool may_ignore =
      std::ranges::find(op.def->attrs, "ignore_index", &AttrDef::name) != op.def->attrs.end();
  raise<OutOfRangeError>(
      "{}: label is outside its classes, got {} in row {} on replica {} at {}, expected 0 to {}{}",
      op.def->name, invalid.label, row_text(ir, op, invalid.place), invalid.replica,
      place_text(ir, op.origin.location), invalid.classes - 1, may_ignore ? " or ignore_index" : "");
}

}  // namespace popsr
