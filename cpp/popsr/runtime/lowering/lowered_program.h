// A lowered program: a list of ops on buffers, with bodies for loops, merged ops and conditionals.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "popsr/analysis/seed_rules.h"
#include "popsr/base/containers/small_vector.h"
#include "popsr/base/layout/strided_view.h"
#include "popsr/exec/product_kernel.h"
#include "popsr/ir/tensor.h"
#include "popsr/replica/partition.h"

namespace popsr {

struct PathTag {
  static constexpr std::uint32_t kDefault = 0;  ///< Path of the main graph, the root.
};
using BufferId = Id<struct BufferTag>;
using PathId = Id<PathTag>;
using Operands = SmallVector<BufferId, 4>;

inline constexpr PathId kRootPath{0};

enum class BufferKind : std::uint8_t {
  kVariable,  ///< State between runs: variables, shards, entries of remote buffers.
  kConstant,
  kActivation
};

/// Memory of one allocation: a slab with one block of memory per block of `storage`.
struct Buffer {
  /// Tensor that the buffer was made for; gives names, and initial values of variables and constants.
  TensorId tensor = kNone;
  TensorType type = {};
  BufferKind kind = BufferKind::kActivation;
  /// Storage partition, set by layout: meet of the facts over the buffer's lifetime.
  PartitionId storage = {};
  std::int64_t halo = 0;  ///< Blocks received from other ranks, placed behind the blocks of this rank.
  /// True if only slices of the buffer are live, inside one lowered::Sliced: it has no memory.
  bool in_slices = false;
};

/// Position of an instruction in calls, loops and branches; the noise key is derived along it.
struct PathNode {
  enum class Kind : std::uint8_t {
    kRoot,
    kCall,  ///< Call of a graph; also a branch, by its index.
    kLoop,
    kIteration
  };
  PathId parent;
  Kind kind = Kind::kRoot;
  /// OpCall::index for calls; for an iteration its number, known only while running.
  std::uint64_t component = 0;
};

struct LoweredOp;

namespace lowered {

/// An op that its own kernel computes. Operands may be views of the buffers, as in EvalSpec.
struct Plain {
  /// View that each input is read through; empty: all are dense.
  std::vector<std::optional<StridedView>> reads = {};
  std::optional<StridedView> writes = {};  ///< View that out[0] is written through.
};

/// Copies in[0] to out[0]. LoweredOp::op is null.
struct Copy {};

/// Copies elements written to the view that `op` made back to the tensors that it views.
struct WriteBack {};

/// A product that is computed inside `op`, its only consumer, or that is `op` itself if a later op
/// accumulates it: `lhs` and `rhs` replace in[fusion.product_input].
struct FusedProduct {
  ProductFusion fusion = {};
  const Op* product = nullptr;
  PartitionId seeds = {};  ///< Seed partition of the product.
  PathId path = {};        ///< Path of the product.
  BufferId lhs = kNone, rhs = kNone;
};

/// One of several products that are accumulated into one target. The first may compute the target itself,
/// overwriting it.
struct AccumulationStep {
  const Op* op = nullptr;  ///< Op that accumulates the product, or that computes the target.
  Operands in = {};        ///< Operands of `op`, kNone for target and product: only factors are left.
  FusedProduct product = {};
};

/// Products that are accumulated one after another into in[0]. `op` is the last step, or reduces the target
/// over a group afterwards. Only out[0] is written: in[0] or another buffer. in[0] is kNone if the first
/// step computes the target.
struct FusedAccumulation {
  ProductFusion fusion = {};  ///< Fusion parameters of `op`.
  std::vector<AccumulationStep> steps = {};
};

/// A loop; its condition, if it has one, is LoweredOp::in.
struct Loop {
  std::vector<LoweredOp> body;  ///< Ops of one iteration.
  std::int64_t count = 0;       ///< Number of iterations; the maximum if there is a condition.
  /// End of the paths inside the loop, LoweredOp::path..path_end-1, whose keys change in each iteration.
  PathId path_end = {};
};

/// Ops that run at once.
struct Merged {
  std::vector<LoweredOp> parts;
};

/// Element-wise ops of one block that run one after another on each slice of their elements. `op` is the
/// last.
struct Sliced {
  static constexpr std::int64_t kUnit = 1024;  ///< Unit of slice boundaries, in elements.
  /// Bytes of all operands of a slice: half of a usual L2 cache.
  static constexpr std::size_t kBytes = std::size_t{1} << 19;
  std::vector<LoweredOp> parts;
};

/// A conditional; `in` is the condition, `out` the buffers that the branches write.
struct Conditional {
  std::vector<LoweredOp> then_body, else_body;
};

using Form =
    std::variant<Plain, Copy, WriteBack, FusedProduct, FusedAccumulation, Loop, Merged, Sliced, Conditional>;

}  // namespace lowered

struct LoweredOp {
  const Op* op = nullptr;  ///< Op of the program; null for copies.
  Operands in = {};        ///< Input buffers; kNone where an optional input is absent.
  Operands out = {};
  SmallVector<PartitionId, 2> facts = {};  ///< Fact of each output, right after the op.
  PartitionId seeds = {};
  PathId path = {};
  /// Replicas that certainly run the op together; set inside conditionals.
  std::optional<PartitionId> exec = {};
  lowered::Form form = {};

  template <class T>
  bool is() const {
    return std::holds_alternative<T>(form);
  }
  template <class T>
  T* as() {
    return std::get_if<T>(&form);
  }
  template <class T>
  const T* as() const {
    return std::get_if<T>(&form);
  }
  /// True for one op of the program that stores its results itself, with or without fused products.
  bool is_single() const {
    return is<lowered::Plain>() || is<lowered::FusedProduct>() || is<lowered::FusedAccumulation>();
  }
};

struct LoweredProgram {
  SeedRules seed_rules = {};  ///< Rules of the ops that are lowered.
  IdVector<BufferId, Buffer> buffers;
  IdVector<PathId, PathNode> paths;
  std::vector<LoweredOp> ops;
};

/// Nodes on the way to a path, outermost first, without the root.
inline std::vector<PathId> nodes_to(const LoweredProgram& program, PathId path) {
  std::vector<PathId> nodes;
  for (PathId at = path; at != kRootPath; at = program.paths[at].parent) nodes.push_back(at);
  std::ranges::reverse(nodes);
  return nodes;
}

/// Calls visit(ops) for each body of a loop, merged or sliced op, or conditional.
template <class Lowered, class Visit>
void for_each_body(Lowered& op, const Visit& visit) {
  if (auto* const loop = op.template as<lowered::Loop>()) visit(loop->body);
  if (auto* const merged = op.template as<lowered::Merged>()) visit(merged->parts);
  if (auto* const sliced = op.template as<lowered::Sliced>()) visit(sliced->parts);
  if (auto* const conditional = op.template as<lowered::Conditional>()) {
    visit(conditional->then_body);
    visit(conditional->else_body);
  }
}

/// Calls visit(op) for each op in order, ops with bodies before their bodies.
template <class Ops, class Visit>
void for_each_op(Ops& ops, const Visit& visit) {
  for (auto& op : ops) {
    visit(op);
    for_each_body(op, [&visit](auto& body) { for_each_op(body, visit); });
  }
}

/// Calls visit(id, is_written) for each buffer that the op itself reads or writes, without its bodies.
template <class Lowered, class Visit>
void for_each_operand(Lowered& op, const Visit& visit) {
  const auto read = [&visit](auto& id) {
    if (id != kNone) visit(id, false);
  };
  const auto read_product = [&read](auto& product) {
    read(product.lhs);
    read(product.rhs);
  };
  std::ranges::for_each(op.in, read);
  for (auto& id : op.out) {
    if (id != kNone) visit(id, true);
  }
  if (auto* const product = op.template as<lowered::FusedProduct>()) read_product(*product);
  if (auto* const accumulation = op.template as<lowered::FusedAccumulation>()) {
    for (auto& step : accumulation->steps) {
      std::ranges::for_each(step.in, read);
      read_product(step.product);
    }
  }
}

}  // namespace popsr
