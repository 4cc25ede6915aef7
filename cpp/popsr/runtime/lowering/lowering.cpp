#include "popsr/runtime/lowering/lowering.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <unordered_set>

#include "popsr/analysis/memory/memory_facts.h"
#include "popsr/base/error.h"
#include "popsr/effects/memory.h"
#include "popsr/effects/remote_access.h"
#include "popsr/effects/written_inputs.h"
#include "popsr/ir/calls/called_graphs.h"
#include "popsr/ir/calls/inlined_size.h"
#include "popsr/ir/calls/loops.h"
#include "popsr/ir/op_def.h"

namespace popsr {
namespace {

/// One inlined graph: the buffers of its tensors, by Tensor::index of their storage. A view has a buffer of
/// its own, unless it has the same bytes as the tensor that it views: elements are copied into it before
/// they are read, if they may have changed, and out of it after they were written.
struct Frame {
  Frame(const PartitionAnalysis& facts, const Context& context)
      : buffers(facts.ir().graph(context.graph).tensors.size(), kNone), memory(facts.entry_memory(context)) {}
  BufferId& operator[](std::uint32_t index) { return buffers[index]; }

  std::vector<BufferId> buffers;
  MemoryFacts memory;                    ///< At the op that is lowered.
  std::unordered_set<TensorId> current;  ///< Views whose buffers are up to date with their memory.
};

class Lowering {
 public:
  explicit Lowering(const PartitionAnalysis& facts) : facts_(facts), ir_(facts.ir()), written_(ir_) {
    program_.seed_rules = facts.seed_rules();
    program_.paths.push_back({});
  }

  LoweredProgram run() {
    const Graph& main = ir_.graph(kMainGraph);
    Frame frame(facts_, facts_.main());
    program_.ops.reserve(main.ops.size());
    program_.buffers.reserve(main.tensors.size());
    for (const TensorId id : main.tensors) {
      const Tensor& tensor = ir_.tensor(id);
      if (tensor.kind == TensorKind::kRemote) {
        remote_.emplace(id, new_buffer(id, BufferKind::kVariable));
      } else if (tensor.kind == TensorKind::kShard ||
                 (tensor.kind == TensorKind::kVariable && tensor.state.home == kNone)) {
        frame[tensor.index] = new_buffer(id, BufferKind::kVariable);
      }
    }
    walk(facts_.main(), frame, kRootPath, program_.ops);
    return std::move(program_);
  }

 private:
  BufferId new_buffer(TensorId tensor, BufferKind kind = BufferKind::kActivation) {
    const BufferId id = program_.buffers.next();
    program_.buffers.push_back({.tensor = tensor, .type = ir_.tensor(tensor).type, .kind = kind});
    return id;
  }

  PathId new_path(PathId parent, PathNode::Kind kind, std::uint64_t component) {
    const PathId id = program_.paths.next();
    program_.paths.push_back({parent, kind, component});
    return id;
  }

  /// The buffer that holds `tensor`; constants get theirs at the first use and share it between inlined
  /// copies.
  BufferId buffer(Frame& frame, TensorId tensor) {
    if (tensor == kNone) return kNone;
    const Tensor& t = ir_.tensor(ir_.tensor(tensor).memory.storage);
    if (t.kind == TensorKind::kConstant) {
      const auto [it, fresh] = constants_.try_emplace(t.id, kNone);
      if (fresh) it->second = new_buffer(t.id, BufferKind::kConstant);
      return it->second;
    }
    if (t.kind == TensorKind::kRemote) return remote_.at(t.id);
    POPSR_CHECK(frame[t.index] != kNone);
    return frame[t.index];
  }

  static LoweredOp copy(BufferId from, BufferId to, PartitionId fact, PathId path) {
    return {.in = {from}, .out = {to}, .facts = {fact}, .path = path, .form = lowered::Copy{}};
  }

  void walk(const Context& context, Frame& frame, PathId path, std::vector<LoweredOp>& ops) {
    const Graph& graph = ir_.graph(context.graph);
    for (std::size_t i = 0; i < graph.ops.size(); ++i) {
      const Op& op = ir_.op(graph.ops[i]);
      if (op.def->memory.view) {
        add_view(op, frame);
        continue;
      }
      for (const TensorId input : op.inputs) refresh(input, frame, path, ops);
      switch (op.def->program.control) {
        case Control::kNone:
          if (!op.schedule.parts.empty()) {
            lower_merged(op, context.parts.at(op.schedule.position), frame, path, ops);
            break;
          }
          lower_local(op, context.ops[i], frame, path, ops);
          break;
        case Control::kCall:
          lower_call(op, context.ops[i], frame, path, ops);
          break;
        case Control::kRepeat:
          lower_repeat(op, context.ops[i], frame, path, ops);
          break;
        case Control::kConditional:
          lower_conditional(op, context.ops[i], frame, path, ops);
          break;
      }
      record_writes(op, context.ops[i], frame, path, ops);
    }
    for (const TensorId output : graph.outputs) refresh(output, frame, path, ops);
  }

  void add_view(const Op& op, Frame& frame) {
    const Tensor& view = ir_.tensor(op.outputs[0]);
    frame[view.index] =
        shares_bytes(*view.memory.view) ? buffer(frame, view.memory.view->bases[0]) : new_buffer(view.id);
  }

  /// Brings the buffer of a view up to date.
  void refresh(TensorId tensor, Frame& frame, PathId path, std::vector<LoweredOp>& ops) {
    if (tensor == kNone) return;
    const Tensor& view = ir_.tensor(ir_.tensor(tensor).memory.storage);
    if (!view.memory.view || !frame.current.insert(view.id).second) return;
    for (const TensorId base : view.memory.view->bases) refresh(base, frame, path, ops);
    if (shares_bytes(*view.memory.view)) return;
    LoweredOp gather{.op = &ir_.op(view.uses.producer),
                     .out = {frame[view.index]},
                     .facts = {frame.memory.read(view.id)},
                     .path = path};
    for (const TensorId base : view.memory.view->bases) gather.in.push_back(buffer(frame, base));
    ops.push_back(std::move(gather));
  }

  /// Records the writes of an op, one tensor after another, and passes them on to all tensors that share
  /// memory with it.
  void record_writes(const Op& op, const FactView& facts, Frame& frame, PathId path,
                     std::vector<LoweredOp>& ops) {
    if (!ir_.graph(op.graph).has_views) return;
    const std::vector<TensorId> outputs = all_outputs(ir_, op);
    for (std::size_t k = 0; k < outputs.size(); ++k)
      record_write(outputs[k], facts.outputs[k], frame, path, ops);
    for (const auto& [storage, fact] : facts.written) record_write(storage, fact, frame, path, ops);
    frame.memory.write(facts.pieces);
  }

  void record_write(TensorId tensor, PartitionId fact, Frame& frame, PathId path,
                    std::vector<LoweredOp>& ops) {
    const Tensor& storage = ir_.tensor(ir_.tensor(tensor).memory.storage);
    if (storage.kind == TensorKind::kRemote) return;
    refresh_bases(storage, frame, path, ops);
    frame.memory.write(storage.id, fact);
    if (!storage.memory.view && storage.memory.viewed == Viewed::kNo) return;
    std::unordered_set<TensorId> written;
    write_back(storage, frame, path, ops, written);
    for (const Region& region : regions_of(ir_, storage.id)) {
      for (const TensorId view : ir_.views(region.root)) {
        // Elements that cannot be told apart might be there twice.
        if (written.contains(view) && region.part.exact) continue;
        if (overlaps(ir_, view, storage.id)) frame.current.erase(view);
      }
    }
  }

  /// Before a part of them is written: the rest stays as it is.
  void refresh_bases(const Tensor& view, Frame& frame, PathId path, std::vector<LoweredOp>& ops) {
    if (!view.memory.view) return;
    for (const TensorId base : view.memory.view->bases) {
      refresh(base, frame, path, ops);
      refresh_bases(ir_.tensor(base), frame, path, ops);
    }
  }

  /// Copies the elements that were written to a view into the tensors that it views, down to memory that is
  /// not a view.
  void write_back(const Tensor& view, Frame& frame, PathId path, std::vector<LoweredOp>& ops,
                  std::unordered_set<TensorId>& written) {
    if (!written.insert(view.id).second || !view.memory.view) return;
    LoweredOp back{.op = &ir_.op(view.uses.producer),
                   .in = {frame[view.index]},
                   .path = path,
                   .form = lowered::WriteBack{}};
    for (const TensorId base : view.memory.view->bases) {
      back.in.push_back(buffer(frame, base));
      back.out.push_back(back.in.back());
      back.facts.push_back(frame.memory.read(base));
    }
    if (!shares_bytes(*view.memory.view) && !back.out.empty()) ops.push_back(std::move(back));
    for (const TensorId base : view.memory.view->bases) {
      write_back(ir_.tensor(base), frame, path, ops, written);
    }
  }

  void lower_local(const Op& op, const FactView& facts, Frame& frame, PathId path,
                   std::vector<LoweredOp>& ops) {
    LoweredOp lowered{
        .op = &op, .facts = {facts.outputs.begin(), facts.outputs.end()}, .seeds = facts.seeds, .path = path};
    std::vector<TensorId> room;
    for (const TensorId input : all_inputs(ir_, op, room)) lowered.in.push_back(buffer(frame, input));
    for (const TensorId output : all_outputs(ir_, op, room)) {
      const Tensor& storage = ir_.tensor(ir_.tensor(output).memory.storage);
      const bool fresh = storage.id == output && storage.kind != TensorKind::kRemote;
      if (fresh) frame[storage.index] = new_buffer(output);
      lowered.out.push_back(buffer(frame, output));
    }
    ops.push_back(std::move(lowered));
  }

  void lower_merged(const Op& op, const std::vector<OpFacts>& facts, Frame& frame, PathId path,
                    std::vector<LoweredOp>& ops) {
    lowered::Merged merged;
    for (std::size_t p = 0; p < op.schedule.parts.size(); ++p) {
      lower_local(ir_.op(op.schedule.parts[p]), facts[p], frame, path, merged.parts);
    }
    ops.push_back({.op = &op, .path = path, .form = std::move(merged)});
  }

  /// True if the tensor of input `i` of a called graph is written through another input while this one must
  /// keep its value.
  bool is_overwritten(const Op& op, std::uint32_t i, Frame& outer) {
    const BufferId from = buffer(outer, op.inputs[i]);
    if (written_.by_call(op, i)) return false;
    const std::vector<CalledGraph> all = called_graphs(ir_, op);
    const auto called = std::ranges::find_if(all, [i](const CalledGraph& each) { return i < each.end; });
    return std::ranges::any_of(op.call.modified, [&](std::uint32_t k) {
      return k != i && k >= called->first && k < called->end && buffer(outer, op.inputs[k]) == from &&
             written_.by_call(op, k);
    });
  }

  /// Binds input `i` of the callee, the op's input `first + i`, to `from`, the caller's buffer: an alias
  /// unless the callee's writes must not be seen there.
  void bind_input(const Op& op, const Context& callee, std::uint32_t i, BufferId from, Frame& inner,
                  PathId path, std::vector<LoweredOp>& ops, std::uint32_t first = 0) {
    const TensorId input = ir_.graph(callee.graph).inputs[i];
    BufferId& to = inner[ir_.tensor(input).index];
    to = from;
    if (!written_.of(callee.graph)[i] || written_.by_call(op, first + i)) return;
    to = new_buffer(input);
    ops.push_back(copy(from, to, callee.inputs[i], path));
  }

  /// The buffer that input `i` of the callee is bound to: the caller's, or a copy from before the call when
  /// the caller's is overwritten.
  BufferId argument(const Op& op, const Context& callee, std::uint32_t i, Frame& outer, PathId path,
                    std::vector<LoweredOp>& ops, std::uint32_t first = 0) {
    const BufferId from = buffer(outer, op.inputs[first + i]);
    if (!is_overwritten(op, first + i, outer)) return from;
    const BufferId copied = new_buffer(ir_.graph(callee.graph).inputs[i]);
    ops.push_back(copy(from, copied, callee.inputs[i], path));
    return copied;
  }

  void lower_call(const Op& op, const FactView& facts, Frame& frame, PathId path,
                  std::vector<LoweredOp>& ops) {
    const Context& callee = facts_.context(facts.callee);
    const Graph& graph = ir_.graph(callee.graph);
    const PathId inner_path = new_path(path, PathNode::Kind::kCall, op.call.index);
    Frame inner(facts_, callee);
    for (std::uint32_t i = 0; i < op.inputs.size(); ++i) {
      bind_input(op, callee, i, argument(op, callee, i, frame, path, ops), inner, path, ops);
    }
    const BufferId first_local = program_.buffers.next();
    walk(callee, inner, inner_path, ops);
    std::set<BufferId> taken;
    for (std::size_t k = 0; k < op.outputs.size(); ++k) {
      const BufferId from = buffer(inner, graph.outputs[k]);
      const bool local = from >= first_local && program_.buffers[from].kind == BufferKind::kActivation;
      BufferId& to = frame[ir_.tensor(op.outputs[k]).index];
      if (local && taken.insert(from).second) {
        to = from;
        continue;
      }
      to = new_buffer(op.outputs[k]);
      ops.push_back(copy(from, to, facts.outputs[k], path));
    }
  }

  void lower_repeat(const Op& op, const FactView& facts, Frame& frame, PathId path,
                    std::vector<LoweredOp>& ops) {
    const std::size_t carried = op.outputs.size();
    const std::optional<std::int64_t> count = counted_iterations(op);
    for (std::size_t i = 0; i < carried; ++i) {
      const BufferId to = new_buffer(op.outputs[i]);
      const PartitionId entry = count == 0 ? facts.outputs[i] : facts_.context(facts.callee).inputs[i];
      ops.push_back(copy(buffer(frame, op.inputs[i]), to, entry, path));
      frame[ir_.tensor(op.outputs[i]).index] = to;
    }
    if (count == 0) return;
    const PathId call = new_path(path, PathNode::Kind::kLoop, op.call.index);
    const PathId iteration = new_path(call, PathNode::Kind::kIteration, 0);
    LoweredOp looped{.op = &op, .path = iteration};
    lowered::Loop loop;
    loop.count = count.value_or(std::numeric_limits<std::int64_t>::max());
    if (is_while_loop(op)) {
      loop.count = op.find(kMaxIterations).value_or(loop.count);
      looped.in = {frame[ir_.tensor(op.outputs[0]).index]};
    }
    loop.body = lower_body(op, facts_.context(facts.callee), frame, path, iteration, ops);
    loop.path_end = program_.paths.next();
    looped.form = std::move(loop);
    ops.push_back(std::move(looped));
    for (const std::uint32_t i : op.call.modified) {
      if (i >= carried) continue;
      const BufferId from = frame[ir_.tensor(op.outputs[i]).index];
      ops.push_back(copy(from, buffer(frame, op.inputs[i]), facts.outputs[i], path));
    }
  }

  /// One iteration, at path `iteration`; copies that are made before the loop go to `ops`.
  std::vector<LoweredOp> lower_body(const Op& op, const Context& body, Frame& frame, PathId path,
                                    PathId iteration, std::vector<LoweredOp>& ops) {
    std::vector<LoweredOp> lowered;
    const Graph& graph = ir_.graph(body.graph);
    const std::size_t carried = op.outputs.size();
    Frame inner(facts_, body);
    std::vector<BufferId> state;
    for (std::uint32_t i = 0; i < op.inputs.size(); ++i) {
      if (i < carried) {
        state.push_back(frame[ir_.tensor(op.outputs[i]).index]);
        inner[ir_.tensor(graph.inputs[i]).index] = state.back();
      } else {
        bind_input(op, body, i, argument(op, body, i, frame, path, ops), inner, iteration, lowered);
      }
    }
    walk(body, inner, iteration, lowered);
    // All outputs are read before any carried buffer is overwritten: a swap goes through temporaries.
    std::vector<BufferId> next;
    for (std::size_t i = 0; i < carried; ++i) {
      BufferId from = buffer(inner, graph.outputs[i]);
      const auto other = std::ranges::find(state, from);
      if (other != state.end() && static_cast<std::size_t>(other - state.begin()) != i) {
        const BufferId copied = new_buffer(op.outputs[i]);
        lowered.push_back(copy(from, copied, body.end.outputs[i], iteration));
        from = copied;
      }
      next.push_back(from);
    }
    for (std::size_t i = 0; i < carried; ++i) {
      if (next[i] != state[i]) lowered.push_back(copy(next[i], state[i], body.end.outputs[i], iteration));
    }
    return lowered;
  }

  void lower_conditional(const Op& op, const FactView& facts, Frame& frame, PathId path,
                         std::vector<LoweredOp>& ops) {
    lowered::Conditional bodies;
    LoweredOp conditional{.op = &op,
                          .in = {buffer(frame, op.inputs[0])},
                          .facts = {facts.outputs.begin(), facts.outputs.end()},
                          .path = path};
    for (const TensorId output : op.outputs) {
      const BufferId to = frame[ir_.tensor(output).index] = new_buffer(output);
      conditional.out.push_back(to);
    }
    const PathId call = new_path(path, PathNode::Kind::kCall, op.call.index);
    const std::vector<CalledGraph> branches = called_graphs(ir_, op);
    const auto lower = [&](std::size_t index, ContextId context, std::vector<LoweredOp>& body) {
      const PathId inner_path = new_path(call, PathNode::Kind::kCall, index);
      lower_branch(op, branches[index], facts_.context(context), frame, inner_path, conditional.out, body);
    };
    lower(0, facts.callee, bodies.then_body);
    lower(1, facts.otherwise, bodies.else_body);
    for (const auto& [storage, fact] : facts.written) {
      conditional.out.push_back(buffer(frame, storage));
      conditional.facts.push_back(fact);
    }
    conditional.form = std::move(bodies);
    ops.push_back(std::move(conditional));
  }

  /// Lowers a branch. Everything that it does is in its body, including copies of inputs and results, since
  /// it runs only on replicas that take the branch.
  void lower_branch(const Op& op, const CalledGraph& branch, const Context& callee, Frame& frame, PathId path,
                    const Operands& results, std::vector<LoweredOp>& body) {
    const Graph& graph = ir_.graph(branch.graph);
    Frame inner(facts_, callee);
    for (std::uint32_t i = 0; i < graph.inputs.size(); ++i) {
      const BufferId from = argument(op, callee, i, frame, path, body, branch.first);
      bind_input(op, callee, i, from, inner, path, body, branch.first);
    }
    walk(callee, inner, path, body);
    for (std::size_t k = 0; k < graph.outputs.size(); ++k) {
      body.push_back(copy(buffer(inner, graph.outputs[k]), results[k], callee.end.outputs[k], path));
    }
    for_each_op(body, [this, &callee](LoweredOp& each) {
      each.exec = ir_.partitions().meet(each.exec.value_or(callee.exec), callee.exec);
    });
  }

  const PartitionAnalysis& facts_;
  const Ir& ir_;
  WrittenInputs written_;
  LoweredProgram program_;
  std::map<TensorId, BufferId> constants_, remote_;
};

}  // namespace

LoweredProgram lower(const PartitionAnalysis& facts) {
  check_inlined_size(facts.ir(), kMainGraph, "session: the plan",
                     "use `repeat` to run a graph several times");
  return Lowering(facts).run();
}

}  // namespace popsr
