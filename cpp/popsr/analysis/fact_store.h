// Facts of a graph's ops in one context, in arrays: most ops have outputs and nothing else.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "popsr/analysis/pieces.h"
#include "popsr/ir/ids.h"
#include "popsr/replica/partition.h"

namespace popsr {

struct ContextTag {
  static constexpr std::uint32_t kDefault = 0;
};
using ContextId = Id<ContextTag>;

/// A tensor that is its own storage, or a remote entry, and the fact that it has after an op.
using Written = std::pair<TensorId, PartitionId>;
/// A tensor whose parts have facts of their own after an op that runs graphs.
using WrittenPieces = std::pair<TensorId, Pieces>;

/// The branches of a conditional that some replica may take.
enum class Taken : std::uint8_t { kBoth, kThen, kElse };

/// Facts of one op in one context.
struct OpFacts {
  std::vector<PartitionId> outputs = {};  ///< Of all_outputs(op).
  PartitionId seeds = {};                 ///< Seed partition; meaningful for ops that round or draw.
  ContextId callee = kNone;               ///< Ops that run graphs: the context of the body or then branch.
  ContextId otherwise = kNone;            ///< Conditionals: the context of the else branch.
  /// Calls and loops: tensors that they modify by reference, with their facts afterwards. Conditionals:
  /// and the remote entries that they store.
  /// Loops too, where the last iteration leaves other facts of these than the body leaves in general.
  std::vector<Written> written = {};
  /// Of tensors of `written` and of outputs, whose facts there are the meets of these.
  std::vector<WrittenPieces> pieces = {};
  Taken taken = Taken::kBoth;  ///< Conditionals.
};

/// The same, kept elsewhere.
struct FactView {
  std::span<const PartitionId> outputs = {};
  PartitionId seeds = {};
  ContextId callee = kNone, otherwise = kNone;
  std::span<const Written> written = {};
  std::span<const WrittenPieces> pieces = {};
  Taken taken = Taken::kBoth;

  FactView() = default;
  FactView(const OpFacts& facts)  // NOLINT: a view of it
      : outputs(facts.outputs),
        seeds(facts.seeds),
        callee(facts.callee),
        otherwise(facts.otherwise),
        written(facts.written),
        pieces(facts.pieces),
        taken(facts.taken) {}
};

/// Grows by one op at a time, in schedule order. Copies share what they have in common; of them one may grow.
class FactStore {
 public:
  /// Of an op that runs no graphs. `seeds` of ops that round or draw.
  void add(std::span<const PartitionId> outputs, std::optional<PartitionId> seeds);
  void add(OpFacts facts);
  void reserve(std::size_t ops);

  std::size_t size() const { return size_; }
  bool has_seeds() const { return !all_->seeds.empty(); }
  /// Valid until the store grows.
  FactView operator[](std::size_t op) const;
  /// FactView::outputs alone.
  std::span<const PartitionId> outputs(std::size_t op) const {
    return std::span(all_->outputs).subspan(all_->first[op], all_->first[op + 1] - all_->first[op]);
  }
  /// Of the ops up to the last one that has some; ops without any have top().
  std::span<const PartitionId> seeds() const {
    return std::span(all_->seeds).first(std::min(size_, all_->seeds.size()));
  }
  /// The ops that run graphs, ascending.
  std::span<const std::uint32_t> running_graphs() const { return std::span(all_->running).first(running_); }

 private:
  struct All {
    std::vector<std::uint32_t> first{0};  ///< Of each op's outputs; one more than there are ops.
    std::vector<PartitionId> outputs;
    std::vector<PartitionId> seeds;  ///< By op; those at the end without seeds are left out.
    std::vector<std::uint32_t> running;
    std::vector<OpFacts> graphs;  ///< Parallel to running.
  };
  std::shared_ptr<All> all_ = std::make_shared<All>();  ///< What belongs to this store and, after it, others.
  std::size_t size_ = 0, running_ = 0;
};

}  // namespace popsr
