// Facts of a graph's ops in one context, in arrays: most ops have outputs and nothing else.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "popsr/analysis/memory/pieces.h"
#include "popsr/ir/ids.h"
#include "popsr/replica/partition.h"

namespace popsr {

struct ContextTag {
  static constexpr std::uint32_t kDefault = 0;
};
using ContextId = Id<ContextTag>;

/// A tensor that is its own storage, or a remote entry, and its fact after an op.
using Written = std::pair<TensorId, PartitionId>;
/// A tensor whose parts have facts of their own after an op that runs graphs.
using WrittenPieces = std::pair<TensorId, Pieces>;

/// Branches of a conditional that some replica may take.
enum class Taken : std::uint8_t { kBoth, kThen, kElse };

/// Facts of one op in one context.
struct OpFacts {
  std::vector<PartitionId> outputs = {};  ///< Facts of all_outputs(op).
  PartitionId seeds = {};                 ///< Seed partition; meaningful for ops that round or draw.
  ContextId callee = kNone;               ///< Context of the body or then branch, for ops that run graphs.
  ContextId otherwise = kNone;            ///< Context of the else branch, for conditionals.
  /// Tensors that an op that runs graphs modifies by reference, with their facts afterwards; for
  /// conditionals also remote entries that they store, and for loops remote entries whose facts after the
  /// last iteration differ from the body's in general.
  std::vector<Written> written = {};
  /// Facts by part of some tensors of `written` and of outputs, whose facts there are the meets of these.
  std::vector<WrittenPieces> pieces = {};
  Taken taken = Taken::kBoth;  ///< Branches that may run, for conditionals.
};

/// View of the OpFacts of one op, stored elsewhere.
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

/// Facts of ops, which are added one at a time in schedule order. Copies share their common prefix; only
/// one of them may grow.
class FactStore {
 public:
  /// Adds an op that runs no graphs; `seeds` is set for ops that round or draw.
  void add(std::span<const PartitionId> outputs, std::optional<PartitionId> seeds);
  void add(OpFacts facts);
  void reserve(std::size_t ops);

  std::size_t size() const { return size_; }
  bool has_seeds() const { return !all_->seeds.empty(); }
  /// Facts of the op at a position; valid until the store grows.
  FactView operator[](std::size_t op) const;
  /// Facts of the op's outputs: FactView::outputs alone.
  std::span<const PartitionId> outputs(std::size_t op) const {
    return std::span(all_->outputs).subspan(all_->first[op], all_->first[op + 1] - all_->first[op]);
  }
  /// Seed partitions by position, up to the last op that has one; ops without one have top().
  std::span<const PartitionId> seeds() const {
    return std::span(all_->seeds).first(std::min(size_, all_->seeds.size()));
  }
  /// Positions of the ops that run graphs, ascending.
  std::span<const std::uint32_t> running_graphs() const { return std::span(all_->running).first(running_); }

 private:
  struct All {
    /// Begin of each op's outputs; one element more than there are ops.
    std::vector<std::uint32_t> first{0};
    std::vector<PartitionId> outputs;
    std::vector<PartitionId> seeds;  ///< Seed partitions by op; ops at the end without seeds are left out.
    std::vector<std::uint32_t> running;
    std::vector<OpFacts> graphs;  ///< Facts of ops that run graphs, parallel to `running`.
  };
  /// Shared arrays: facts of this store, followed by facts of stores that grew from it.
  std::shared_ptr<All> all_ = std::make_shared<All>();
  std::size_t size_ = 0, running_ = 0;
};

}  // namespace popsr
