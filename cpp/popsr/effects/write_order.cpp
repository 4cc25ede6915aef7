#include "popsr/effects/write_order.h"

#include <algorithm>
#include <span>

#include "popsr/effects/memory.h"
#include "popsr/effects/reachability.h"
#include "popsr/effects/verify.h"
#include "popsr/ir/op_def.h"

namespace popsr {
namespace {

bool writes_input(const Op& op, std::size_t index) {
  return op.def->writes(index) ||
         std::ranges::find(op.call.modified, static_cast<std::uint32_t>(index)) != op.call.modified.end();
}

/// Calls visit(op) for an op of a schedule; for a merged one, for its parts.
template <class Visit>
void for_each_single(const Ir& ir, const Op& op, const Visit& visit) {
  if (op.schedule.parts.empty()) return visit(op);
  for (const OpId part : op.schedule.parts) visit(ir.op(part));
}

/// The memory of a graph that ops modify, and its uses in schedule order. Making a view does not count.
class ModifiedMemory {
 public:
  ModifiedMemory(const Ir& ir, const Graph& graph, const FlatSchedule& schedule)
      : ir_(ir), graph_(graph), schedule_(schedule) {
    find_roots();
    if (roots_.empty()) return;
    last_.assign(roots_.size(), kNone);
    for (std::uint32_t at = 0; at < schedule.size(); ++at) add_uses(at);
    sort_uses();
  }

  const std::vector<TensorId>& roots() const { return roots_; }  ///< Ascending.
  std::span<const Use> uses(std::size_t i) const {
    return std::span(uses_).subspan(first_[i], first_[i + 1] - first_[i]);
  }

 private:
  void find_roots() {
    for (std::size_t at = 0; at < schedule_.size(); ++at) {
      if (!schedule_[at].modifies) continue;
      for_each_single(ir_, ir_.op(schedule_[at].id), [this](const Op& op) {
        for (std::size_t i = 0; i < op.inputs.size(); ++i) {
          if (op.inputs[i] == kNone || !writes_input(op, i)) continue;
          for_each_root(ir_, op.inputs[i], [this](TensorId root) { roots_.push_back(root); });
        }
      });
    }
    std::ranges::sort(roots_);
    roots_.erase(std::ranges::unique(roots_).begin(), roots_.end());
    number_.assign(roots_.empty() ? 0 : graph_.tensors.size(), kNone);
    for (std::uint32_t i = 0; i < roots_.size(); ++i) number_[ir_.storage_index(roots_[i])] = i;
  }

  void add_uses(std::uint32_t at) {
    const FlatOp& flat = schedule_[at];
    if (flat.alone) {
      if (flat.view) return;
      const auto writes = [&flat](std::size_t i) { return flat.modifies && flat.def->writes(i); };
      return add_uses(flat.id, at, schedule_.inputs(at), writes);
    }
    for_each_single(ir_, ir_.op(flat.id), [&](const Op& op) {
      if (op.def->memory.view != nullptr) return;
      add_uses(op.id, at, op.inputs, [&op](std::size_t i) { return writes_input(op, i); });
    });
  }

  template <class Writes>
  void add_uses(OpId op, std::uint32_t at, std::span<const TensorId> inputs, const Writes& writes) {
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      if (inputs[i] == kNone) continue;
      if (!graph_.has_views) {
        const std::uint32_t number = number_[ir_.storage_index(inputs[i])];
        if (number != kNone) add_use({op, inputs[i], at, writes(i)}, number);
        continue;
      }
      for_each_root(ir_, inputs[i], [&](TensorId root) {
        const std::uint32_t number = number_[ir_.storage_index(root)];
        if (number != kNone) add_use({op, inputs[i], at, writes(i)}, number);
      });
    }
  }

  void add_use(const Use& use, std::uint32_t number) {
    const std::uint32_t last = last_[number];
    const bool known = last != kNone && found_[last].use.op == use.op;
    const bool apart = graph_.has_views && ir_.tensor(roots_[number]).memory.viewed == Viewed::kPartly;
    if (apart || !known) {
      last_[number] = static_cast<std::uint32_t>(found_.size());
      found_.push_back({use, number});
    } else if (use.writes) {
      found_[last].use = use;
    }
  }

  /// Puts the uses of each root together, in their order.
  void sort_uses() {
    first_.assign(roots_.size() + 1, 0);
    for (const Found& found : found_) ++first_[found.root + 1];
    for (std::size_t i = 1; i < first_.size(); ++i) first_[i] += first_[i - 1];
    std::vector<std::uint32_t> next(first_.begin(), first_.end());
    uses_.resize(found_.size());
    for (const Found& found : found_) uses_[next[found.root]++] = found.use;
  }

  /// A use of memory with the number of its root.
  struct Found {
    Use use;
    std::uint32_t root = 0;
  };

  const Ir& ir_;
  const Graph& graph_;
  const FlatSchedule& schedule_;
  std::vector<TensorId> roots_;        ///< Ascending.
  std::vector<std::uint32_t> number_;  ///< Number of each root among them, by Tensor::index.
  std::vector<std::uint32_t> last_;    ///< Index of the last use of each root in found_.
  std::vector<Found> found_;           ///< Uses in schedule order.
  std::vector<Use> uses_;              ///< Uses by root.
  std::vector<std::uint32_t> first_;   ///< Begin of the uses of each root in uses_.
};

/// Collects the pairs of uses that runs of neighbours do not order.
class PairCollector {
 public:
  PairCollector(const Ir& ir, const FlatSchedule& schedule) : ir_(ir), runs_(ir, schedule) {}

  void add(TensorId root, std::span<const Use> uses) {
    root_ = root;
    if (ir_.tensor(root).memory.viewed == Viewed::kPartly) {
      add_parts(uses);
    } else {
      add_whole(uses);
    }
  }
  const NeighbourRuns& runs() const { return runs_; }

  std::vector<UnorderedPair> pairs;
  std::vector<OrderQuestion> questions;  ///< Parallel to pairs.

 private:
  /// Each use must be ordered against all earlier ones that share an element with it, if one of the two
  /// writes.
  void add_parts(std::span<const Use> uses) {
    std::vector<const Use*> open;  // no later writer covers them
    for (const Use& use : uses) {
      for (const Use* const before : open) {
        if (before->op == use.op || !(before->writes || use.writes)) continue;
        if (overlaps(ir_, before->tensor, use.tensor)) ask(*before, use, use.writes ? use : *before);
      }
      if (use.writes) {
        std::erase_if(open, [&](const Use* before) {
          return before->op != use.op && contains(ir_, use.tensor, before->tensor);
        });
      }
      open.push_back(&use);
    }
  }

  /// Each writer must be ordered against the writer before it and all uses between the two.
  void add_whole(std::span<const Use> uses) {
    const Use* writer = nullptr;
    std::size_t pending = 0;  // the first use that the next writer must follow
    for (std::size_t i = 0; i < uses.size(); ++i) {
      if (!uses[i].writes) {
        if (writer != nullptr) ask(*writer, uses[i], *writer);
        continue;
      }
      for (; pending < i; ++pending) ask(uses[pending], uses[i], uses[i]);
      writer = &uses[i];
    }
  }

  void ask(const Use& first, const Use& second, const Use& writer) {
    if (runs_.orders(first.position, second.position)) return;
    questions.push_back({first.position, second.position});
    pairs.push_back({root_, writer, &writer == &first ? second : first});
  }

  const Ir& ir_;
  NeighbourRuns runs_;
  TensorId root_ = kNone;
};

}  // namespace

WriteOrder::WriteOrder(const Ir& ir, GraphId id, const FlatSchedule& schedule,
                       std::vector<UnorderedPair>& pairs)
    : graph_(id), ops_(static_cast<std::uint32_t>(schedule.size())) {
  const Graph& graph = ir.graph(id);
  const ModifiedMemory modified(ir, graph, schedule);
  modified_ = std::make_shared<const std::vector<TensorId>>(modified.roots());
  if (modified.roots().empty()) {  // any run will do
    run_ = ops_ == 0 ? 0 : ops_ - 1;
    return;
  }
  PairCollector collector(ir, schedule);
  for (std::size_t i = 0; i < modified.roots().size(); ++i)
    collector.add(modified.roots()[i], modified.uses(i));
  const std::vector<bool> ordered = must_run_before(ir, graph, schedule, collector.questions);
  for (std::size_t i = 0; i < ordered.size(); ++i) {
    if (!ordered[i]) pairs.push_back(collector.pairs[i]);
  }
  run_ = collector.runs().last_run();
}

void WriteOrder::add_modified(TensorId root) {
  const auto at = std::ranges::lower_bound(*modified_, root);
  if (at != modified_->end() && *at == root) return;
  auto more = std::make_shared<std::vector<TensorId>>(modified_->begin(), at);
  more->push_back(root);
  more->insert(more->end(), at, modified_->end());
  modified_ = std::move(more);
}

bool WriteOrder::grow(const Ir& ir) {
  const std::vector<OpId>& ops = ir.graph(graph_).ops;
  for (; ops_ < ops.size(); ++ops_) {
    const Op& op = ir.op(ops[ops_]);
    if (!op.schedule.parts.empty()) return false;
    if (ops_ > 0 && !follows(ir, op, ir.op(ops[ops_ - 1]))) run_ = ops_;
    if (op.def->memory.view != nullptr) continue;
    if (!is_ordered(ir, op)) return false;
    for (std::size_t i = 0; i < op.inputs.size(); ++i) {
      if (op.inputs[i] == kNone || !writes_input(op, i)) continue;
      for_each_root(ir, op.inputs[i], [this](TensorId root) { add_modified(root); });
    }
  }
  return true;
}

/// True if all earlier ops that use memory the op writes, and all that write memory it reads, are in its
/// run.
bool WriteOrder::is_ordered(const Ir& ir, const Op& op) const {
  bool ordered = true;
  for (std::size_t i = 0; i < op.inputs.size() && ordered; ++i) {
    if (op.inputs[i] == kNone) continue;
    for_each_root(ir, op.inputs[i], [&](TensorId root) {
      if (!writes_input(op, i) && !std::ranges::binary_search(*modified_, root)) return;
      const OpId first = ir.tensor(root).uses.first_use;  // other names of the memory come from a use of it
      ordered = ordered && (first == kNone || ir.op(first).schedule.position >= run_);
    });
  }
  return ordered;
}

void OrderCheck::run(const Ir& ir) {
  const bool grew = &ir == ir_ && !orders_.empty() && ir.grew_from(epoch_, ops_);
  if (!grew || !run_on_new_ops(ir)) {
    orders_.clear();  // until it is known that nothing is wrong
    orders_ = verify_order(ir);
  }
  ir_ = &ir;
  epoch_ = ir.epoch();
  ops_ = ir.num_ops();
}

const std::map<GraphId, WriteOrder>* OrderCheck::ordered(const Ir& ir) const {
  return &ir == ir_ && epoch_ == ir.epoch() && !orders_.empty() ? &orders_ : nullptr;
}

/// False if that does not tell.
bool OrderCheck::run_on_new_ops(const Ir& ir) {
  for (std::size_t op = ops_; op < ir.num_ops(); ++op) {
    if (ir.op(OpId(op)).def->program.control != Control::kNone) return false;
  }
  return std::ranges::all_of(orders_, [&ir](auto& each) { return each.second.grow(ir); });
}

}  // namespace popsr
