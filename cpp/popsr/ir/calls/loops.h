// Loops: a repeat counts its iterations, a while_loop asks a condition after each.
#pragma once

#include <cstdint>
#include <optional>

#include "popsr/ir/ids.h"
#include "popsr/ir/op_def.h"

namespace popsr {

class Ir;

/// Iterations of a while_loop from which on it is an error that its condition holds.
inline constexpr Attr<std::int64_t> kMaxIterations{"max_iterations"};

/// True for a loop that goes on while the first value that it carries holds on some replica that runs it.
bool is_while_loop(const Op& op);

/// Iterations of a loop that counts them; nullopt for other ops.
std::optional<std::int64_t> counted_iterations(const Op& op);

/// The op that asks a conditional's condition: a while_loop whose iteration it is, else itself. The condition
/// of a loop is the output of the graph that is called for it.
struct ConditionSource {
  const Op* by = nullptr;
  TensorId condition = kNone;
};
ConditionSource condition_source(const Ir& ir, const Op& conditional);

/// True for the call that asks a while_loop's condition before its first iteration.
bool is_first_condition(const Ir& ir, const Op& call);

}  // namespace popsr
