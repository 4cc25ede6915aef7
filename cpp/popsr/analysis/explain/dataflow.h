// Data flow. A value is the contents of an allocation at one time on one call path; its sources are the
// values that it may be made of. Explanations and lints walk these edges backwards.
//
// Nothing is copied from the analysis: graphs are indexed when they are first asked about (O(ops)), frames
// are made as walks enter calls, and a step costs a search among the writers of one allocation.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "popsr/analysis/memory/memory_parts.h"
#include "popsr/analysis/partition_analysis.h"
#include "popsr/effects/written_inputs.h"
#include "popsr/ir/calls/called_graphs.h"

namespace popsr {

struct FrameTag {
  static constexpr std::uint32_t kDefault = 0;
};
using FrameId = Id<FrameTag>;
inline constexpr FrameId kMainFrame{};

/// A graph on one call path.
struct Frame {
  ContextId context = {};
  FrameId caller = kNone;
  std::uint32_t call = 0;    ///< Position of the call among the caller's ops.
  std::uint32_t branch = 0;  ///< Index among the graphs that the call runs (ir/calls/called_graphs.h).
};

/// Contents of an allocation after the op at position `time` of the frame's graph; -1: at the start of the
/// graph. For a view, the contents of the memory that it shows.
struct Value {
  FrameId frame = {};
  TensorId storage = kNone;
  std::int32_t time = -1;
  PartId part = {};  ///< Part of the memory, if views show parts of it.
  bool operator==(const Value&) const = default;
};

enum class Link : std::uint8_t {
  kOperand,    ///< Input of the op that wrote the value.
  kCondition,  ///< Condition of the conditional that left the value.
  kResult,     ///< Value at the end of the called graph.
  kUntouched,  ///< Value before: a branch does not write it, or a write in place leaves the rest of it.
  kView,       ///< Memory that a view shows.
  kArgument,   ///< Value that the caller passes.
  kIteration,  ///< Value at the end of the previous iteration.
  kRun,        ///< Value at the end of the previous run.
};

struct Source {
  Value value;
  Link link = Link::kOperand;
  std::uint32_t input = 0;  ///< Index of the input for kOperand, of the branch for kUntouched.
};

/// Lower bound of the number of edges between a value and one whose op makes replicas differ by itself.
struct Nearness {
  std::uint32_t distance = 0;
  /// Operand on a shortest way, with the value found there and its fact. kNone unless each pair that
  /// differs in this value and in the operand differs in this value because of the operand.
  std::uint32_t input = kNone;
  TensorId storage = kNone;
  std::int32_t time = -1;
  PartitionId fact = {};
};

class Dataflow {
 public:
  /// Makes the data flow of analysed facts; `facts` must outlive this object.
  explicit Dataflow(const PartitionAnalysis& facts);

  const PartitionAnalysis& facts() const { return facts_; }
  const Ir& ir() const { return facts_.ir(); }
  const Frame& frame(FrameId id) const { return frames_[id]; }
  const Context& context(FrameId id) const { return facts_.context(frames_[id].context); }
  const Graph& graph(FrameId id) const { return ir().graph(context(id).graph); }

  /// Frame of the call at that position (for a conditional, of that branch). The number of call paths can
  /// be exponential: beyond kMaxFrames, one frame stands for all paths that lead to a context.
  FrameId enter(FrameId caller, std::uint32_t call, std::uint32_t branch = 0);
  /// Frame of that context: the first of the shortest call paths that lead to it.
  FrameId frame_of(ContextId context);
  static constexpr std::size_t kMaxFrames = std::size_t{1} << 16;
  /// Call sites from the main graph to the frame.
  std::vector<OpId> call_path(FrameId frame) const;

  /// Value that the op at position `op` finds in a tensor, and the last value in the graph.
  Value before(FrameId frame, TensorId tensor, std::uint32_t op, PartId part = {});
  Value last(FrameId frame, TensorId tensor);
  /// Context-independent variant of before(): position of the last op that wrote the tensor, or -1.
  std::int32_t time_before(GraphId graph, TensorId tensor, std::uint32_t op, PartId part = {});

  PartitionId fact(const Value& value) {
    return fact(context(value.frame), value.storage, value.time, value.part);
  }
  PartitionId fact(const Context& context, TensorId storage, std::int32_t time, PartId part = {});
  /// Op that wrote the value; for a merged op the part that did, for a view the op that made it. nullptr
  /// for values that a graph starts with.
  const Op* writer(const Value& value) const;
  /// Part of memory with views that the value's writer left unchanged, if any.
  std::optional<Value> untouched(const Value& value);
  /// Index of a value among its writer's outputs; nullopt if a call wrote it by reference.
  std::optional<std::size_t> output(const Value& value) const;

  std::vector<Source> sources(const Value& value);
  /// Op that made all of the value of its own inputs alone, with these inputs. The sources of the value are
  /// then the inputs, as operand() gives them.
  struct PlainWriter {
    const FlatOp* op = nullptr;  ///< nullptr if it is not that simple.
    std::span<const TensorId> inputs = {};
  };
  PlainWriter plain_writer(const Value& value) const;
  /// Value that a plain writer found in one of its inputs: before(), without a look at the tensor.
  Value operand(const Value& value, TensorId input);

  Nearness nearness(const Value& value);
  std::uint32_t distance(const Value& value) { return nearness(value).distance; }

  /// Op that runs the frame's graph, and the graph with its place among the op's inputs. Frames other than
  /// kMainFrame only.
  const Op& call_of(FrameId frame) const;
  CalledGraph called(FrameId frame) const;

  /// Allocation of a tensor; for a variable that lives elsewhere, of its home.
  TensorId storage_of(TensorId tensor) const;

 private:
  struct GraphIndex {
    std::vector<std::uint32_t> first;  ///< Begin of a storage's range in `writers`, by Tensor::index.
    std::vector<std::int32_t> writers;
    std::map<TensorId, std::vector<std::int32_t>> remote;  ///< Writers of remote entries.
    std::vector<std::uint32_t> entry;  ///< Position in Context::inputs, by Tensor::index; kNone: none.
    std::vector<std::uint32_t> calls;
  };

  const GraphIndex& index(GraphId graph);
  GraphIndex make_index(const Graph& graph);
  std::vector<TensorId> written_storages(const Op& op);
  std::span<const std::int32_t> writers(GraphId graph, TensorId storage);
  const std::vector<std::int32_t>& shared_writers(GraphId graph, TensorId root, PartId part);
  PartitionId shared_fact(const Context& context, TensorId root, std::int32_t time, PartId part);
  bool touches(const Value& value, TensorId tensor) const;
  bool writes(const Op& merged, const Value& value) const;
  std::optional<PartId> rest(const Value& value, const std::vector<TensorId>& written);
  std::uint32_t entry_of(const GraphIndex& graph, TensorId storage) const {
    return graph.entry[ir().storage_index(storage)];
  }
  PartitionId entry_fact(const Context& context, TensorId storage, PartId part);
  const std::vector<Nearness>& all_nearness(ContextId context);
  Nearness nearness_of(const Context& context, const Op& op, const std::vector<Nearness>& known);
  const Op& writer_at(GraphId graph, TensorId storage, std::int32_t time, PartId part) const;
  /// A storage and the place of a tensor there among those that an op which runs graphs leaves: its outputs,
  /// then OpCall::modified.
  using Left = std::pair<TensorId, std::uint32_t>;
  /// Tensors that the op leaves in memory of their own, by storage and then by place.
  const std::vector<Left>& left_by(const Op& op);
  std::span<const Left> left_in(const Op& op, TensorId storage);
  void add_call_sources(const Value& value, const Op& op, std::vector<Source>& result);
  void add_branch_sources(const Value& value, const Op& op, std::uint32_t branch,
                          std::vector<Source>& result);
  void add_entry_sources(const Value& value, std::vector<Source>& result);
  FrameId add_frame(const Frame& frame);
  void find_call_paths();

  const PartitionAnalysis& facts_;
  WrittenInputs written_;
  MemoryParts parts_;
  std::map<std::pair<TensorId, PartId>, std::vector<std::int32_t>> shared_writers_;
  std::map<std::tuple<const Context*, TensorId, PartId>, std::vector<PartitionId>>
      shared_facts_;  ///< Facts parallel to shared_writers_.
  IdVector<FrameId, Frame> frames_;
  std::map<std::tuple<FrameId, std::uint32_t, std::uint32_t>, FrameId>
      entered_;  ///< Frames by caller, call and branch.
  std::unordered_map<GraphId, GraphIndex> indices_;
  std::unordered_map<OpId, std::vector<Left>> left_;  ///< Results of left_by().
  IdVector<ContextId, std::vector<Nearness>>
      nearness_;  ///< Nearness by context and position in its graph; empty until asked for.
  std::unordered_map<ContextId, FrameId> first_frames_;
};

/// Fact of output `output` if its inputs had these facts, without the noise of its rounding.
PartitionId rule_of(const Ir& ir, const Op& op, std::span<const PartitionId> inputs, std::size_t output);

}  // namespace popsr
