// Lints of a program, reused for the same program with more ops: added ops that only read existing tensors
// leave all lints as they are and add their own. In a program with gradient graphs, so do ops that take no
// gradient, while all gradients are right.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "popsr/analysis/lint/lints.h"
#include "popsr/effects/write_order.h"

namespace popsr {

struct LintMemory {
  std::uint64_t epoch = 0;
  std::size_t ops = 0, graphs = 0;
  bool grown = false;                        ///< True if made from the lints of an earlier program.
  std::vector<Lint> lints = {};              ///< Lints, sorted.
  std::vector<bool> gradients = {};          ///< Flag per tensor: GradientFlow::holders().
  std::map<GraphId, WriteOrder> order = {};  ///< Write order of the graphs that the program reaches.
};

/// Appends the lints of one op: L1, L5, L6 and L9.
void lint_op(Explainer& explainer, const Op& op, std::vector<Lint>& lints);

/// Appends those of the lints of one op that need no other ops: L5, L6 and L9.
void lint_own(Explainer& explainer, const Op& op, std::vector<Lint>& lints);

/// Lints of a program that grew since `memory`, with a memory of their own; nullptr if all passes must be
/// made.
std::shared_ptr<LintMemory> grown_lints(Explainer& explainer, const LintMemory& memory);

}  // namespace popsr
