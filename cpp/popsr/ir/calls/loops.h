// Loops: a repeat counts its iterations, a while_loop evaluates a condition after each.
#pragma once

#include <cstdint>
#include <optional>

#include "popsr/ir/ids.h"
#include "popsr/ir/op_def.h"

namespace popsr {

class Ir;

/// Limit of the iterations of a while_loop: it is an error if the condition still holds after them.
inline constexpr Attr<std::int64_t> kMaxIterations{"max_iterations"};

/// True for a while_loop: it continues while the first carried value holds on some replica that runs it.
bool is_while_loop(const Op& op);

/// Iterations of a loop with a fixed count; nullopt for other ops.
std::optional<std::int64_t> counted_iterations(const Op& op);

/// Op that a conditional's condition comes from: the while_loop whose iteration it is, otherwise the
/// conditional itself. The condition of a loop is the output of the graph that is called for it.
struct ConditionSource {
  const Op* by = nullptr;
  TensorId condition = kNone;
};
ConditionSource condition_source(const Ir& ir, const Op& conditional);

/// True for the call that evaluates a while_loop's condition before its first iteration.
bool is_first_condition(const Ir& ir, const Op& call);

}  // namespace popsr
