// What an op's kernels are given. Ops build a kernel once per instruction when a plan is compiled; running it
// does no look-ups. Defined here, below ops and runtime, so that neither needs the other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "popsr/base/fold_factors.h"
#include "popsr/base/thread_pool.h"
#include "popsr/ir/ir.h"

namespace popsr {

namespace kernels {
struct KernelTable;
struct NoiseKey;
}  // namespace kernels

/// Static facts of one instruction. Remote entries follow the op's own inputs and outputs.
struct EvalSpec {
  const Ir& ir;
  const Op& op;
  const kernels::KernelTable& kernels;
  std::vector<std::optional<TensorType>> inputs;  ///< Absent where an optional input is.
  std::vector<TensorType> outputs;
  bool stochastic = false;    ///< Narrow outputs are rounded stochastically with BlockRun::noise.
  bool clamp_scales = false;  ///< Scales of float8 ops are clamped to their range; else they must be in it.
};

/// A label that is none of its op's classes. The op takes it as such, and the host is told.
struct StrayLabel {
  Replica replica = 0;
  std::int64_t place = 0;  ///< Its element among the labels.
  std::int64_t label = 0;
  std::int64_t classes = 0;
};

/// The first stray label of one execution, by replica and then by place. Any thread may add.
class StrayLabels {
 public:
  /// `replicas`: the smallest of each block of the instruction.
  explicit StrayLabels(std::span<const Replica> replicas) : replicas_(replicas.begin(), replicas.end()) {}

  /// The run that starts is of blocks `first` and on.
  void start_run(std::int64_t first) { first_ = first; }
  /// Of a block of the run.
  void add(std::int64_t block, std::int64_t place, std::int64_t label, std::int64_t classes) {
    add({replicas_[static_cast<std::size_t>(first_ + block)], place, label, classes});
  }
  void add(const StrayLabel& stray) {
    const std::lock_guard lock(mutex_);
    if (!found_ || std::pair(stray.replica, stray.place) < std::pair(found_->replica, found_->place)) {
      found_ = stray;
    }
  }
  std::optional<StrayLabel> take() { return std::exchange(found_, std::nullopt); }

  /// Nobody wants to know any more.
  bool told = false;

 private:
  std::vector<Replica> replicas_;
  std::int64_t first_ = 0;
  std::mutex mutex_;
  std::optional<StrayLabel> found_;
};

/// One run of blocks: operand j of block b is at in[j] + b * in_stride[j] bytes (stride 0: shared by all
/// blocks). An output of an in-place op may be exactly its input's memory.
struct BlockRun {
  const std::byte* const* in;
  const std::ptrdiff_t* in_stride;
  std::byte* const* out;
  const std::ptrdiff_t* out_stride;
  std::int64_t blocks;
  const kernels::NoiseKey* const* noise;  ///< noise[output][block]; null entries when not stochastic.
  ThreadPool& pool;
  std::uint64_t first = 0;       ///< Noise index of element 0: not 0 when this is a slice of a bigger value.
  StrayLabels* stray = nullptr;  ///< Of ops with OpDef::labels; null when nobody wants to know.
};
using BlockKernel = std::function<void(const BlockRun&)>;
using EvalFn = BlockKernel (*)(const EvalSpec&);

/// The replicas that run an op: all, or inside a conditional those that take its branch.
class ActiveReplicas {
 public:
  ActiveReplicas() = default;
  /// `mask`: not 0 for each replica that takes part.
  explicit ActiveReplicas(const std::uint8_t* mask) : mask_(mask) {}

  bool all() const { return mask_ == nullptr; }
  bool operator()(Replica replica) const { return all() || mask_[replica] != 0; }

 private:
  const std::uint8_t* mask_ = nullptr;
};

/// What the program prints; C++ never prints itself.
struct PrintRequest {
  const Op& op;
  TensorType type;
  std::vector<const std::byte*> values;                ///< Distinct ones.
  std::vector<std::pair<Replica, std::size_t>> shown;  ///< Ascending replicas and their indices of values.
};

/// The host's side of streams and prints during one run.
class HostIo {
 public:
  virtual ~HostIo() = default;
  /// Next element of the stream for that replica; all replicas of one execution read before advance(), which
  /// moves those on that took part.
  virtual const std::byte* input(StreamId stream, Replica replica) = 0;
  virtual std::byte* output(StreamId stream, Replica replica) = 0;
  virtual void advance(StreamId stream, ActiveReplicas replicas) = 0;
  virtual void print(const PrintRequest& request) = 0;
  /// An op was given that label; throws where it is an error.
  virtual void stray(const Op& op, const StrayLabel& label) = 0;
};

/// Static facts of an op whose kernel sees all blocks: a collective or host io.
struct ExchangeSpec : EvalSpec {
  std::vector<Replica> out_replicas;  ///< Smallest replica of each output block.
  std::vector<std::span<const std::uint32_t>>
      in_labels;  ///< Per input: the block that holds each replica's value.
};

struct ExchangeRun {
  const std::byte* const* in;
  const std::ptrdiff_t* in_stride;
  std::byte* const* out;
  const std::ptrdiff_t* out_stride;
  const kernels::NoiseKey* const* noise;
  HostIo& io;
  ThreadPool& pool;
  std::uint64_t first = 0;       ///< As in BlockRun.
  ActiveReplicas active = {};    ///< Of a group all members or none. Blocks of other replicas are left alone.
  StrayLabels* stray = nullptr;  ///< As in BlockRun.
};
using ExchangeKernel = std::function<void(const ExchangeRun&)>;
using ExchangeFn = ExchangeKernel (*)(const ExchangeSpec&);

/// A product whose only consumer folds it: out = fold of products, tile by tile, never stored in full.
struct ProductRun {
  const void* const* lhs;  ///< `folds` pointers.
  const void* const* rhs;
  std::int64_t folds;
  void* out;
  /// Of the accumulation into out (folds == 1); null: out = (sum of products) / divisor.
  const FoldFactors* factors;
  double divisor;
  ThreadPool& pool;
  /// With `start`, each fold starts as that and takes `steps` products, one after another, each by its own
  /// `factors`; lhs and rhs hold the pointers of all of them, then out = (sum of folds) / divisor.
  std::int64_t steps = 1;
  const void* const* start = nullptr;
};
using ProductKernel = std::function<void(const ProductRun&)>;
/// Null when the op's types have no folded form in registers.
using ProductFn = ProductKernel (*)(const EvalSpec&);

/// Rows begin..end-1 of one block's product, rounded as the whole product would be.
struct RowsRun {
  const std::byte* lhs;
  const std::byte* rhs;
  std::byte* out;  ///< Dense rows.
  std::int64_t begin, end;
  const kernels::NoiseKey* noise;  ///< Of the block; null when rounded to nearest.
};
using RowsKernel = std::function<void(const RowsRun&)>;
/// Null when the product is no matrix.
using RowsFn = RowsKernel (*)(const EvalSpec&);

/// How a consumer folds a product; set on ops that can. Output and product have the same shape, and an
/// element of the output depends on the same element of the products alone: they may meet slice by slice.
struct FoldSink {
  std::size_t product_input = 0;  ///< Which input may be a product.
  std::optional<std::size_t> target =
      {};  ///< The input that is accumulated into; none = reduction over a group.
  /// Reduction: the groups; none = all replicas.
  std::optional<ReplicaGrouping> group = {};
  /// May be folded in registers, by the numbers below? Else slice by slice, by the op's own kernel.
  bool in_registers = false;
  double divisor = 1.0;
  /// Reads them from the op's inputs in the block at hand.
  std::function<FoldFactors(const std::byte* const* in)> factors = {};
};
/// nullopt when this op does not fold.
using SinkFn = std::optional<FoldSink> (*)(const EvalSpec&);

}  // namespace popsr
