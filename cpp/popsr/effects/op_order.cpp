#include <algorithm>
#include <map>
#include <set>
#include <span>
#include <unordered_map>

#include "popsr/effects/memory.h"
#include "popsr/effects/op_order.h"
#include "popsr/effects/remote_access.h"
#include "popsr/ir/op_def.h"

namespace popsr {
namespace {

/// Something that ops read and write: a tensor's memory, a stream, the text that is printed.
using Resource = std::uint64_t;
constexpr Resource memory(TensorId root) { return root.value; }
constexpr Resource stream(StreamId id) { return (Resource{1} << 32) | id.value; }
constexpr Resource kPrinted = Resource{2} << 32;

/// A use of memory that views see in parts.
struct PartUse {
  TensorId tensor = kNone;
  bool writes = false;
};

struct Accesses {
  std::set<Resource> reads, writes;
  std::vector<PartUse> parts = {};
};

class Collector {
 public:
  explicit Collector(const Ir& ir) : ir_(ir), remote_(ir) {}

  Accesses of(const Op& op) {
    Accesses result;
    if (op.def->memory.view) return result;  // reads and writes nothing
    for (const TensorId t : all_inputs(ir_, op)) {
      if (t != kNone) add(t, false, result);
    }
    for (const TensorId t : all_outputs(ir_, op)) add(t, true, result);
    for (const std::uint32_t i : op.call.modified) add(op.inputs[i], true, result);
    const std::set<Resource> shared = outside(op);
    result.writes.insert(shared.begin(), shared.end());
    return result;
  }

 private:
  void add(TensorId tensor, bool writes, Accesses& result) const {
    bool in_parts = false;
    for_each_root(ir_, tensor, [&](TensorId root) {
      if (ir_.tensor(root).memory.viewed == Viewed::kPartly) {
        in_parts = true;
      } else {
        (writes ? result.writes : result.reads).insert(memory(root));
      }
    });
    if (in_parts) result.parts.push_back({tensor, writes});
  }

  /// Effects of the op on streams and remote memory, which belong to no graph.
  std::set<Resource> outside(const Op& op) {
    std::set<Resource> result;
    for (const OpId part : op.schedule.parts) result.merge(outside(ir_.op(part)));
    bool on_stream = !op.schedule.parts.empty();
    for (const Attribute& attr : op.attrs) {
      if (const auto* id = std::get_if<StreamId>(&attr)) {
        result.insert(stream(*id));
        on_stream = true;
      } else if (const auto* graph = std::get_if<GraphId>(&attr)) {
        const std::set<Resource>& inner = outside(*graph);
        result.insert(inner.begin(), inner.end());
      }
    }
    if (op.def->program.observable && !on_stream && op.def->program.remote == Remote::kNone)
      result.insert(kPrinted);
    return result;
  }

  const std::set<Resource>& outside(GraphId graph) {
    if (const auto it = memo_.find(graph); it != memo_.end()) return it->second;
    std::set<Resource> result;
    for (const TensorId entry : remote_.of(graph)) result.insert(memory(entry));
    for (const OpId id : ir_.graph(graph).ops) result.merge(outside(ir_.op(id)));
    return memo_[graph] = std::move(result);
  }

  const Ir& ir_;
  RemoteAccess remote_;
  std::map<GraphId, std::set<Resource>> memo_;
};

/// Last accesses of a resource.
struct History {
  std::uint32_t writer = kNone;
  std::vector<std::uint32_t> readers;  ///< Since that write.
};

/// Uses so far of memory that views see in parts, by root.
class PartHistory {
 public:
  explicit PartHistory(const Ir& ir) : ir_(ir) {}

  /// Adds a use by `at`, and to `before` the ops that it must follow.
  void add(const PartUse& use, std::uint32_t at, std::set<std::uint32_t>& before) {
    for_each_root(ir_, use.tensor, [&](TensorId root) {
      std::vector<Entry>& entries = entries_[root];
      for (const Entry& entry : entries) {
        if ((entry.use.writes || use.writes) && overlaps(ir_, entry.use.tensor, use.tensor))
          before.insert(entry.at);
      }
      if (use.writes) {
        std::erase_if(entries,
                      [&](const Entry& entry) { return contains(ir_, use.tensor, entry.use.tensor); });
      }
      entries.push_back({use, at});
    });
  }

 private:
  struct Entry {
    PartUse use;
    std::uint32_t at;
  };
  const Ir& ir_;
  std::unordered_map<TensorId, std::vector<Entry>> entries_;
};

}  // namespace

OpOrder::OpOrder(const Ir& ir, GraphId graph, std::uint32_t first) {
  const std::span<const OpId> ops = std::span(ir.graph(graph).ops).subspan(first);
  edges_.resize(ops.size());
  Collector collector(ir);
  std::unordered_map<Resource, History> histories;
  PartHistory parts(ir);
  for (std::uint32_t at = 0; at < ops.size(); ++at) {
    const Op& op = ir.op(ops[at]);
    std::set<std::uint32_t> data, explicit_order;
    const Accesses accesses = collector.of(op);
    for (const Resource resource : accesses.reads) {
      History& history = histories[resource];
      if (history.writer != kNone) data.insert(history.writer);
      history.readers.push_back(at);
    }
    for (const Resource resource : accesses.writes) {
      History& history = histories[resource];
      if (history.writer != kNone) data.insert(history.writer);
      data.insert(history.readers.begin(), history.readers.end());
      history = {at, {}};
    }
    for (const PartUse& use : accesses.parts) parts.add(use, at, data);
    for (const TensorId input : op.inputs) {  // a view is made before it is used
      if (input == kNone || ir.tensor(input).uses.producer == kNone) continue;
      const std::uint32_t made = ir.op(ir.tensor(input).uses.producer).schedule.position;
      const bool view = op.def->memory.view || ir.tensor(ir.tensor(input).memory.storage).memory.view;
      if (view && made >= first) data.insert(made - first);
    }
    for (const OpId before : op.schedule.after) {
      if (ir.op(before).schedule.position >= first)
        explicit_order.insert(ir.op(before).schedule.position - first);
    }
    for (const std::uint32_t before : data) {
      if (before != at) edges_[at].push_back({before, true});
    }
    for (const std::uint32_t before : explicit_order) {
      if (before != at && !data.contains(before)) edges_[at].push_back({before, false});
    }
  }
}

}  // namespace popsr
