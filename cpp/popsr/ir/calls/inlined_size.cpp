#include "popsr/ir/calls/inlined_size.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "popsr/base/error.h"
#include "popsr/base/threads/deep_stack.h"
#include "popsr/ir/calls/called_graphs.h"
#include "popsr/ir/ir.h"

namespace popsr {
namespace {

/// Counts stop here, far above all that matter.
constexpr std::uint64_t kCountless = std::uint64_t{1} << 62;
std::uint64_t plus(std::uint64_t a, std::uint64_t b) { return std::min(a + b, kCountless); }
std::string text(std::uint64_t count) {
  return count == kCountless ? "more than 2**62" : fmt::format("{}", count);
}

class InlinedSize {
 public:
  InlinedSize(const Ir& ir, GraphId graph) : ir_(ir), root_(graph), all_(visit(graph)) {}

  std::uint64_t all() const { return all_; }

  /// The graph whose own ops are most of all, and how often it is inlined.
  std::pair<GraphId, std::uint64_t> most_inlined() const {
    std::unordered_map<GraphId, std::uint64_t> times{{root_, 1}};
    std::pair<GraphId, std::uint64_t> most{root_, 1};
    std::uint64_t most_ops = 0;
    for (auto it = callees_first_.rbegin(); it != callees_first_.rend(); ++it) {
      const Size& size = sizes_.at(*it);
      const std::uint64_t here = times[*it];
      for (const GraphId called : size.called) times[called] = plus(times[called], here);
      const std::uint64_t own = std::max<std::uint64_t>(size.own, 1);
      const std::uint64_t ops = here > kCountless / own ? kCountless : here * own;
      if (ops < most_ops) continue;
      most = {*it, here};
      most_ops = ops;
    }
    return most;
  }

 private:
  struct Size {
    std::uint64_t own = 0, inlined = 0;
    std::vector<GraphId> called = {};
  };

  /// Visits a graph and its callees, recursively as deep as calls nest.
  std::uint64_t visit(GraphId id) {
    if (const auto it = sizes_.find(id); it != sizes_.end()) return it->second.inlined;
    Size size;
    for (const OpId op_id : ir_.graph(id).ops) {
      const Op& op = ir_.op(op_id);
      size.own += std::max<std::size_t>(op.schedule.parts.size(), 1);
      for (const CalledGraph& called : called_graphs(ir_, op)) size.called.push_back(called.graph);
    }
    size.inlined = size.own;
    for (const GraphId called : size.called) size.inlined = plus(size.inlined, visit(called));
    callees_first_.push_back(id);
    return sizes_.emplace(id, std::move(size)).first->second.inlined;
  }

  const Ir& ir_;
  GraphId root_;
  std::unordered_map<GraphId, Size> sizes_;
  std::vector<GraphId> callees_first_;
  std::uint64_t all_;
};

}  // namespace

void check_inlined_size(const Ir& ir, GraphId graph, std::string_view what, std::string_view fix) {
  with_deep_stack([&] {
    const InlinedSize size(ir, graph);
    if (size.all() <= kMaxInlinedOps) return;
    const auto [most, times] = size.most_inlined();
    raise<GraphError>(
        "{} would have too many ops, got {} with calls inlined, expected at most {}: graph '{}' of {} ops is "
        "inlined {} times, {}",
        what, text(size.all()), kMaxInlinedOps, ir.graph(most).name, ir.graph(most).ops.size(), text(times),
        fix);
  });
}

}  // namespace popsr
