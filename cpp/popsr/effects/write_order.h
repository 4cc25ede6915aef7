// Pairs of ops that use one allocation, of which one writes it in place, and that nothing orders.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "popsr/ir/ir.h"

namespace popsr {

/// Effect of one op on an allocation.
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

/// Allocations that a graph modifies, and the last ops of its schedule that depend on each other: enough to
/// see of most ops that are added that they make no pair.
class WriteOrder {
 public:
  /// Appends the pairs of the graph: by root, then in the order of the ops.
  WriteOrder(const Ir& ir, GraphId graph, std::vector<UnorderedPair>& pairs);

  /// False if ops were added since that may be of a pair; else nothing is unordered that was not before.
  bool grow(const Ir& ir);

 private:
  bool is_ordered(const Ir& ir, const Op& op) const;
  void add_modified(TensorId root);

  GraphId graph_;
  std::shared_ptr<const std::vector<TensorId>> modified_;  ///< Ascending.
  std::uint32_t ops_ = 0;                                  ///< Of the graph, that were looked at.
  std::uint32_t run_ = 0;  ///< From this position to the end each op depends on the one before.
};

/// Throws as verify_order does; for programs that only grew since the last time, for as much work as that.
class OrderCheck {
 public:
  void run(const Ir& ir);

  /// The graphs that a check of the program as it is now found ordered; nullptr if there was none.
  const std::map<GraphId, WriteOrder>* ordered(const Ir& ir) const;

 private:
  bool run_on_new_ops(const Ir& ir);

  const Ir* ir_ = nullptr;
  std::uint64_t epoch_ = 0;
  std::size_t ops_ = 0;
  std::map<GraphId, WriteOrder> orders_;  ///< Empty before the first time.
};

}  // namespace popsr
