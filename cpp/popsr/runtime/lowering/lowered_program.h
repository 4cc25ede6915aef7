// A lowered program: a list of ops on buffers, with bodies for loops, merged ops and conditionals.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "popsr/base/small_vector.h"
#include "popsr/base/strided_view.h"
#include "popsr/exec/product_kernel.h"
#include "popsr/ir/tensor.h"
#include "popsr/replica/partition.h"

namespace popsr {

struct PathTag {
  static constexpr std::uint32_t kDefault = 0;  ///< The root.
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

/// Memory of one allocation: a slab of one block per block of `storage`.
struct Buffer {
  TensorId tensor = kNone;  ///< The tensor it was made for: names, variables, constants.
  TensorType type = {};
  BufferKind kind = BufferKind::kActivation;
  PartitionId storage = {};  ///< Set by layout: meet of the facts over its lifetime.
  std::int64_t halo = 0;     ///< Blocks of other ranks that exchanges put behind those of this rank.
  bool in_slices = false;    ///< Only slices of it live, inside one lowered::Sliced: it has no memory.
};

/// Position of an instruction in calls, loops and branches; the noise key is derived along it.
struct PathNode {
  enum class Kind : std::uint8_t {
    kRoot,
    kCall,  ///< Also a branch, by its index.
    kLoop,
    kIteration
  };
  PathId parent;
  Kind kind = Kind::kRoot;
  std::uint64_t component = 0;  ///< OpCall::index; the iteration is known only while running.
};

struct LoweredOp;

namespace lowered {

/// An op that its own kernel computes. Operands may be views of the buffers, as of EvalSpec.
struct Plain {
  std::vector<std::optional<StridedView>> reads = {};  ///< Empty: none is.
  std::optional<StridedView> writes = {};              ///< Of out[0].
};

/// Copies in[0] to out[0]. LoweredOp::op is null.
struct Copy {};

/// Copies the elements that were written to the view that `op` made back to the tensors that it views.
struct WriteBack {};

/// A product fused into `op`, its only consumer, or `op` itself where a later op counts as what accumulates
/// it: `lhs` and `rhs` replace in[fusion.product_input].
struct FusedProduct {
  ProductFusion fusion = {};
  const Op* product = nullptr;
  PartitionId seeds = {};  ///< Of the product.
  PathId path = {};        ///< Of the product.
  BufferId lhs = kNone, rhs = kNone;
};

/// One of several products that are accumulated into one target. The first may be the target itself: it
/// overwrites.
struct AccumulationStep {
  const Op* op = nullptr;  ///< The op that accumulates it, or that computes the target.
  Operands in = {};        ///< Of `op`, kNone for target and product: factors are left.
  FusedProduct product = {};
};

/// Products that are accumulated one after another into in[0], by `op`, which is the last step, or which
/// then reduces the target over a group. Only out[0] is written: in[0] or another buffer. in[0] is kNone
/// where the first step is the target.
struct FusedAccumulation {
  ProductFusion fusion = {};  ///< Of `op`.
  std::vector<AccumulationStep> steps = {};
};

/// A loop that asks a condition has it as `in`.
struct Loop {
  std::vector<LoweredOp> body;  ///< One iteration.
  std::int64_t count = 0;       ///< Iterations; of a loop that asks a condition at most.
  PathId path_end = {};  ///< Paths LoweredOp::path..path_end-1 lie inside: their keys change each iteration.
};

/// Ops that run at once.
struct Merged {
  std::vector<LoweredOp> parts;
};

/// Element-wise ops of one block that run one after another on each slice of their elements. `op` is the
/// last.
struct Sliced {
  static constexpr std::int64_t kUnit = 1024;  ///< Slices begin at multiples of it.
  static constexpr std::size_t kBytes = std::size_t{1}
                                        << 19;  ///< Of all operands of a slice: half of a usual L2.
  std::vector<LoweredOp> parts;
};

/// `in` is the condition, `out` the buffers that the branches write.
struct Conditional {
  std::vector<LoweredOp> then_body, else_body;
};

using Form =
    std::variant<Plain, Copy, WriteBack, FusedProduct, FusedAccumulation, Loop, Merged, Sliced, Conditional>;

}  // namespace lowered

struct LoweredOp {
  const Op* op = nullptr;  ///< Null for copies.
  Operands in = {};        ///< kNone where an optional input is absent.
  Operands out = {};
  SmallVector<PartitionId, 2> facts = {};  ///< Of each output, right after the op.
  PartitionId seeds = {};
  PathId path = {};
  std::optional<PartitionId> exec = {};  ///< In conditionals: replicas that certainly run it together.
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
  IdVector<BufferId, Buffer> buffers;
  IdVector<PathId, PathNode> paths;
  std::vector<LoweredOp> ops;
};

/// The nodes on the way to a path, outermost first, without the root.
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

/// Calls visit(op) for each op in order, those with bodies before their bodies.
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
