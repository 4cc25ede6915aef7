// Ops of a registry that a random program can append with nothing but tensors, by their operands.
#pragma once

#include <string_view>
#include <vector>

#include "popsr/ir/op_def.h"

namespace popsr::test {

struct OpPools {
  using Names = std::vector<std::string_view>;

  Names unary = {}, binary = {};  ///< Element by element.
  Names over_axes = {};           ///< Reductions with attributes "axis" and "keepdims".
  Names others = {};              ///< Ops with one operand, without required attributes.
  Names collectives = {};         ///< Ops with one operand and attribute "group".
  Names in_place = {};            ///< Write their first operand; a second one is like it.
};
OpPools op_pools(const Registry& registry);

/// 1 for an op of one operand that must be given, and so on.
std::size_t required_operands(const OpDef& def);

}  // namespace popsr::test
