// Lints: probable mistakes in a program, judged by its facts. Programs run all the same.
// Each lint, and its cost:
//  - L1: a collective or stream whose groups need not run it together; groups that may diverge
//  - L2: a variable whose declared groups are not kept equal, unless every run overwrites it first; bytes of
//    additional copies
//  - L3: one value per group is read back although groups are unequal; replicas whose value is not read
//  - L4: call sites that pass inputs of different facts to a graph; values that a shared fact would lose
//  - L5: seeds that are coarser than the outputs need; seeds that could differ
//  - L6: a collective over data that is equal already; factor too large, or bytes moved for nothing
//  - L7: an update that is reduced over other groups than its variable's; replicas too many or too few
//  - L8: a read of memory that nothing was written to; bytes read
//  - L9: an op without a partition rule; values that are equal nowhere
//  - L10: gradients of one forward value that are sums over different replicas; replicas that share it
//  - L11: a variable updated with a sum over other replicas than the ones that hold it; replicas that hold it
//  - L12: writes in place whose order only the text of the program gives; pairs of such ops
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "popsr/analysis/explain/explain.h"
#include "popsr/effects/write_order.h"

namespace popsr {

struct Lint {
  int code = 0;
  OpId op = kNone;          ///< Op that the lint is about; kNone: a variable, and no single op.
  TensorId tensor = kNone;  ///< Tensor that the lint is about; kNone: no tensor in particular.
  LocationId location = {};
  std::int64_t cost = 0;
  std::string_view unit = {};
  std::string text = {};
};

/// All lints, by code and then in program order. Graphs in which `checked` found no unordered pair are not
/// searched for L12.
std::vector<Lint> find_lints(Explainer& explainer, const OrderCheck* checked = nullptr);

/// Number of groups whose members do not all certainly run a point together.
std::int64_t split_groups(const ReplicaGrouping& group, const PartitionTable& table, PartitionId exec);

// Passes of find_lints, by lint.
void lint_control(Explainer& explainer, std::vector<Lint>& lints);  ///< L1.
void lint_stores(Explainer& explainer, std::vector<Lint>& lints);   ///< L3 of streams.
/// L2, and L3 of variables (drift.h).
void lint_variables(Explainer& explainer, std::vector<Lint>& lints);
void lint_call_sites(Explainer& explainer, std::vector<Lint>& lints);  ///< L4.
void lint_ops(Explainer& explainer, std::vector<Lint>& lints);         ///< L5, L6, L9.
void lint_updates(Explainer& explainer, std::vector<Lint>& lints);     ///< L7.
void lint_reads(Explainer& explainer, std::vector<Lint>& lints);       ///< L8.
void lint_gradients(Explainer& explainer, std::vector<Lint>& lints);   ///< L10, L11.
/// Appends L12; returns the write order of each graph that the program reaches.
std::map<GraphId, WriteOrder> lint_order(Explainer& explainer, std::vector<Lint>& lints);

}  // namespace popsr
