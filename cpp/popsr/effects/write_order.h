// Pairs of ops that use one allocation, of which one writes it in place, and that nothing orders.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "popsr/ir/flat/flat_schedule.h"

namespace popsr {

/// Access of one op to an allocation.
struct Use {
  OpId op = kNone;
  TensorId tensor = kNone;
  std::uint32_t position = 0;
  bool writes = false;
};

struct UnorderedPair {
  TensorId root = kNone;
  Use writer, other;
};

/// Allocations that a graph modifies, and the last run of ops in its schedule that depend on each other:
/// enough to see, for most ops that are added later, that they make no new pair.
class WriteOrder {
 public:
  /// Constructs the record and appends the unordered pairs of the graph to `pairs`, by root and then in the
  /// order of the ops.
  WriteOrder(const Ir& ir, GraphId graph, const FlatSchedule& schedule, std::vector<UnorderedPair>& pairs);

  /// Takes in ops that were added since; false if one of them may be in an unordered pair, true if there is
  /// no new pair.
  bool grow(const Ir& ir);

 private:
  bool is_ordered(const Ir& ir, const Op& op) const;
  void add_modified(TensorId root);

  GraphId graph_;
  std::shared_ptr<const std::vector<TensorId>> modified_;  ///< Modified roots, ascending.
  std::uint32_t ops_ = 0;                                  ///< Number of ops of the graph examined so far.
  std::uint32_t run_ = 0;  ///< Position from which on each op depends on the one before.
};

/// Incremental verify_order: for a program that only grew since the last run, the cost is proportional to
/// the ops added. Throws as verify_order does.
class OrderCheck {
 public:
  void run(const Ir& ir);

  /// Write orders of the graphs that a check of the present program found ordered; nullptr if there was no
  /// such check.
  const std::map<GraphId, WriteOrder>* ordered(const Ir& ir) const;

 private:
  bool run_on_new_ops(const Ir& ir);

  const Ir* ir_ = nullptr;
  std::uint64_t epoch_ = 0;
  std::size_t ops_ = 0;
  std::map<GraphId, WriteOrder> orders_;  ///< Write order per graph; empty before the first run.
};

}  // namespace popsr
