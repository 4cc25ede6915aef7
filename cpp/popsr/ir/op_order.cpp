#include <algorithm>
#include <map>
#include <set>
#include <span>
#include <unordered_map>

#include "popsr/ir/op_def.h"
#include "popsr/ir/remote_access.h"
#include "popsr/ir/rewrite.h"

namespace popsr {
namespace {

/// Something that ops read and write: a tensor's memory, a stream, the text that is printed.
using Resource = std::uint64_t;
constexpr Resource memory(TensorId storage) { return storage; }
constexpr Resource stream(StreamId id) { return (Resource{1} << 32) | id; }
constexpr Resource kPrinted = Resource{2} << 32;

struct Accesses {
  std::set<Resource> reads, writes;
};

class Collector {
 public:
  explicit Collector(const Ir& ir) : ir_(ir), remote_(ir) {}

  Accesses of(const Op& op) {
    Accesses result;
    for (const TensorId t : all_inputs(ir_, op)) {
      if (t != kNone) result.reads.insert(memory(ir_.tensor(t).storage));
    }
    for (const TensorId t : all_outputs(ir_, op)) result.writes.insert(memory(ir_.tensor(t).storage));
    for (const std::uint32_t i : op.modified) {
      result.writes.insert(memory(ir_.tensor(op.inputs[i]).storage));
    }
    const std::set<Resource> shared = outside(op);
    result.writes.insert(shared.begin(), shared.end());
    return result;
  }

 private:
  /// What the op does to things that belong to no graph.
  std::set<Resource> outside(const Op& op) {
    std::set<Resource> result;
    for (const OpId part : op.parts) result.merge(outside(ir_.op(part)));
    bool on_stream = !op.parts.empty();
    for (const Attribute& attr : op.attrs) {
      if (const auto* id = std::get_if<StreamRef>(&attr)) {
        result.insert(stream(id->id));
        on_stream = true;
      } else if (const auto* graph = std::get_if<GraphId>(&attr)) {
        const std::set<Resource>& inner = outside(*graph);
        result.insert(inner.begin(), inner.end());
      }
    }
    if (op.def->observable && !on_stream && op.def->remote == Remote::kNone) result.insert(kPrinted);
    return result;
  }

  const std::set<Resource>& outside(GraphId graph) {
    if (const auto it = memo_.find(graph.value); it != memo_.end()) return it->second;
    std::set<Resource> result;
    for (const TensorId entry : remote_.of(graph)) result.insert(memory(entry));
    for (const OpId id : ir_.graph(graph).ops) result.merge(outside(ir_.op(id)));
    return memo_[graph.value] = std::move(result);
  }

  const Ir& ir_;
  RemoteAccess remote_;
  std::map<std::uint32_t, std::set<Resource>> memo_;
};

/// Since when a resource holds what it holds.
struct History {
  std::uint32_t writer = kNone;
  std::vector<std::uint32_t> readers;  ///< Since that write.
};

}  // namespace

OpOrder::OpOrder(const Ir& ir, GraphId graph, std::uint32_t first) {
  const std::span<const OpId> ops = std::span(ir.graph(graph).ops).subspan(first);
  edges_.resize(ops.size());
  Collector collector(ir);
  std::unordered_map<Resource, History> histories;
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
    for (const OpId before : op.after) {
      if (ir.op(before).position >= first) explicit_order.insert(ir.op(before).position - first);
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
