// Flattens a program into one list: calls are inlined (aliasing what is passed by reference or never
// written), loops keep a body, conditionals one for each branch. Each instruction carries the facts of its
// context.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "popsr/analysis/partition_analysis.h"
#include "popsr/ir/eval.h"
#include "popsr/ir/ir.h"

namespace popsr {

using BufferId = std::uint32_t;
using PathId = std::uint32_t;

enum class BufferKind : std::uint8_t {
  kVariable,  ///< State between runs: variables, shards, entries of remote buffers.
  kConstant,
  kActivation
};

/// Memory of one allocation: a slab of one block per block of `storage`.
struct Buffer {
  TensorId tensor = kNone;  ///< The tensor it was made for: names, variables, constants.
  TensorType type = {};
  BufferKind kind = BufferKind::kActivation;
  PartitionId storage = {};  ///< Set by layout: meet of the facts over its lifetime.
};

/// Where an instruction stands in calls, loops and branches; the noise key is folded along it.
struct PathNode {
  enum class Kind : std::uint8_t {
    kRoot,
    kCall,
    kLoop,
    kIteration
  };  ///< kCall: also a branch, by its index.
  PathId parent = 0;
  Kind kind = Kind::kRoot;
  std::uint64_t component = 0;  ///< Op::site; the iteration is known only while running.
};

/// A folded product that op accumulates into its target.
struct FoldStep {
  const Op* op = nullptr;
  const Op* product = nullptr;
  FoldSink sink = {};
  std::vector<BufferId> in = {};  ///< Operands of `op`, kNone in place of the product: its factors.
  BufferId lhs = kNone, rhs = kNone;
};

struct LoweredOp {
  enum class Kind : std::uint8_t {
    kOp,
    kCopy,
    kLoop,
    kMerged,
    kConditional,
    kWriteBack  ///< What was written to the view that `op` made goes to what it is a view of.
  };
  Kind kind = Kind::kOp;
  const Op* op = nullptr;         ///< Null for copies.
  std::vector<BufferId> in = {};  ///< kNone where an optional input is absent.
  std::vector<BufferId> out = {};
  std::vector<PartitionId> facts = {};  ///< Of each output, right after.
  PartitionId seeds = {};
  PathId path = 0;
  /// Inside conditionals: replicas that certainly run it together.
  std::optional<PartitionId> exec = {};
  /// Loops: one iteration. Merged ops: the parts, which run at once. Conditionals: where the condition holds.
  std::vector<LoweredOp> body = {};
  std::vector<LoweredOp> else_body = {};  ///< Conditionals: elsewhere; `in` is the condition, `out` what the
                                          ///< branches leave behind.
  // Loops.
  std::int64_t count = 0;
  PathId path_end = 0;  ///< Paths path..path_end-1 lie inside: their keys change with the iteration.
  // Folded product: its inputs replace in[sink->product_input].
  std::optional<FoldSink> sink = {};
  const Op* product = nullptr;
  PartitionId product_seeds = {};
  PathId product_path = 0;
  BufferId lhs = kNone, rhs = kNone;
  /// Products that are accumulated one after another into in[0], of which `op` is the last, or which it then
  /// reduces over a group. Only out[0] is written, in[0] or another buffer.
  std::vector<FoldStep> steps = {};
};

struct LoweredProgram {
  std::vector<Buffer> buffers;
  std::vector<PathNode> paths;
  std::vector<LoweredOp> ops;
};

LoweredProgram lower(const PartitionAnalysis& facts);

/// Calls visit(op) for each instruction in order, those with bodies before these.
template <class Ops, class Visit>
void for_each_op(Ops& ops, const Visit& visit) {
  for (auto& op : ops) {
    visit(op);
    for_each_op(op.body, visit);
    for_each_op(op.else_body, visit);
  }
}

}  // namespace popsr
