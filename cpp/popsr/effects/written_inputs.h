// Inputs of a graph that its ops write, themselves or through the graphs they call.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "popsr/ir/ir.h"

namespace popsr {

/// Written inputs per graph, memoised. Copies of this object share the memo.
class WrittenInputs {
 public:
  explicit WrittenInputs(const Ir& ir) : ir_(ir) {}

  /// True per input of the graph that is written. The reference lives as long as this object.
  const std::vector<bool>& of(GraphId graph);
  /// True if `op`, a call, loop or conditional, changes the tensor passed as input `i`.
  bool by_call(const Op& op, std::uint32_t i);

 private:
  std::vector<bool> find(GraphId graph);

  const Ir& ir_;
  using Memo = std::map<GraphId, std::vector<bool>>;
  std::shared_ptr<Memo> memo_ = std::make_shared<Memo>();
};

}  // namespace popsr
