// Shares of all gradients of a program (gradient_share.h): from the values that gradient graphs start
// from, through their ops, calls, loops and conditionals, accumulators and remote memory, to the variables
// that are updated.
//
// The facts of the partition analysis are the other half of each share. Variables count as equal where they
// are declared so, since a wrong gradient is what makes them differ. Data that is not declared equal counts
// as equal inside a model, if gradients are right then.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "popsr/analysis/gradients/differentiated.h"
#include "popsr/analysis/gradients/gradient_share.h"
#include "popsr/analysis/gradients/share_traits.h"
#include "popsr/analysis/gradients/step_memo.h"
#include "popsr/analysis/partition_analysis.h"

namespace popsr {

enum class GradientFault : std::uint8_t {
  kFork,      ///< Contributions to one gradient are sums over different replicas, or count differently.
  kGroups,    ///< Sum over replicas whose forward values differ.
  kTwice,     ///< Sum over replicas over which the operand is summed already.
  kNotWhole,  ///< Gradient of a forward reduction that is not summed over its groups.
  kUpdate,    ///< Variable updated with a sum over other replicas than the ones that hold it.
  kFactor,    ///< Variable whose gradient has another factor than most gradients.
};

struct GradientFinding {
  GradientFault fault = GradientFault::kFork;
  OpId op = kNone;
  TensorId tensor = kNone;                 ///< Forward value, if known; for an update, the variable's memory.
  TensorId first = kNone, second = kNone;  ///< Contributions; only `first` unless the fault is a fork.
  GradientShare share = {}, other = {};    ///< Shares of the contributions.
};

class GradientFlow {
 public:
  /// A sum over groups that could be applied to a gradient.
  struct Trial {
    TensorId gradient;
    ReplicaGrouping group;
  };

  /// Computes the shares of the program, or of the program with one more sum; `facts` must outlive this
  /// object.
  explicit GradientFlow(const PartitionAnalysis& facts, std::optional<Trial> trial = {});
  /// True if one more sum removes the finding and as many others, and adds none. Only few sums are tried;
  /// the rest count as wrong.
  bool fixes(const Trial& trial, const GradientFinding& finding, std::size_t others) const;

  /// Facts of the program if all variables kept their declared groups equal.
  const PartitionAnalysis& facts() const { return pinned_facts_ ? *pinned_facts_ : program_; }
  const Ir& ir() const { return ir_; }
  /// Partition of replicas that are declared to hold the same value of a variable; bottom() for other memory.
  PartitionId declared(TensorId storage) const {
    return differentiated_.declared(storage).value_or(table_.bottom());
  }
  /// True if some gradient graph differentiates with respect to the value of this memory.
  bool is_differentiated(TensorId storage) const { return differentiated_.contains(storage); }
  /// Op of a gradient graph that repeats a sum over the same replicas, of gradients that start from the
  /// same values.
  std::optional<OpId> repeated_sum(const GradientShare& share) const;
  /// Factor of most variables' gradients among gradients that start from the same values.
  std::optional<Ratio> usual_factor(const GradientShare& share) const;

  /// Findings in program order.
  const std::vector<GradientFinding>& findings() const { return findings_; }
  /// Flag per tensor: true for memory that holds a gradient, or may, when its graph ends.
  std::vector<bool> holders() const;
  /// Share of a tensor's last value in its graph; nullopt if it is not a gradient, or not known.
  std::optional<GradientShare> share(TensorId tensor) const;
  /// Selects the value of a tensor after `end` ops of its graph, or its last one; in one context, or in all.
  struct At {
    std::optional<std::uint32_t> end = {};
    std::optional<ContextId> context = {};  ///< Context of the facts that this object was made from.
  };
  /// Partition of replicas over which the value is a partial sum: the derivative with respect to the value
  /// that they share is the sum of theirs. nullopt if nothing is pending.
  std::optional<PartitionId> pending(TensorId tensor, const At& at);
  std::optional<PartitionId> pending(TensorId tensor) const;

 private:
  friend class GradientWalk;
  struct ShareTag {
    static constexpr std::uint32_t kDefault = 0;
  };
  using ShareId = Id<ShareTag>;
  static constexpr ShareId kPlain{};      ///< Share of a value that is not a gradient.
  static constexpr ShareId kUnknown{1U};  ///< Share of a gradient about which nothing is known.
  /// Shares of a graph's outputs and inputs when it ends, and of all its memory, by Tensor::index.
  struct Result {
    std::vector<ShareId> outputs, inputs;
    std::vector<ShareId> memory = {};  ///< Shares of memory; empty: no memory holds a gradient.
  };
  /// The op that runs a graph, and the context that it runs in.
  struct Caller {
    ContextId context;
    OpId op = kNone;
    auto operator<=>(const Caller&) const = default;
  };
  using Visits = std::map<std::pair<ContextId, std::vector<ShareId>>, Result>;
  /// Result of a collective that sums what may be summed already.
  struct Step {
    ShareId share;
    bool is_repeated = false;  ///< True if it repeats a sum.
  };
  struct Update {
    OpId op;
    TensorId storage;
    TensorId gradient;  ///< Gradient operand of the op; kNone if it has none.
    ShareId share;
    Ratio factor;
  };

  void walk_runs();
  void find_graphs();
  void tidy_updates();
  void compare_factors();
  void find_other_factors(std::uint32_t source, const std::vector<const Update*>& updates);
  bool add_repeated_sums(std::uint32_t source);
  const Result& walk(ContextId context, const std::vector<ShareId>& inputs, const Caller& caller);
  ShareId intern(const GradientShare& share);
  /// Memoised factor_over() of a share.
  std::optional<Ratio> factor(ShareId share, PartitionId summed);
  const GradientShare& of(ShareId id) const { return shares_[id.index() - 2]; }
  static bool is_known(ShareId id) { return id.value > kUnknown.value; }
  ShareId merge(ShareId a, ShareId b);
  std::optional<GradientShare> sum(const GradientShare& a, const GradientShare& b);
  std::uint32_t source_of(std::uint32_t source) const;
  void find(GradientFinding finding);
  using Visit = Visits::value_type;
  ShareId last_share(const Visit& visit, TensorId tensor) const;
  ShareId share_after(const Visit& visit, TensorId tensor, std::uint32_t end);
  const std::set<ContextId>& own_contexts(ContextId context);
  template <class ShareIn, class Use>
  bool all_shares(TensorId tensor, const std::set<ContextId>* contexts, const ShareIn& share_in,
                  const Use& use) const;
  PartitionId whole_of(TensorId tensor, const GradientShare& share) const;

  template <class ShareIn>
  std::optional<PartitionId> pending_in(TensorId tensor, const std::set<ContextId>* contexts,
                                        const ShareIn& share_in) const;

  bool drifts();
  bool assume_equal_rows(Assumptions& assumptions) const;
  void solve();

  const PartitionAnalysis& program_;
  std::optional<PartitionAnalysis> pinned_facts_;
  const Ir& ir_;
  PartitionTable& table_;
  Differentiated differentiated_;
  std::optional<Trial> trial_;
  /// Findings that are left with each sum tried, by gradient.
  mutable std::map<TensorId, std::set<std::pair<OpId, TensorId>>> tried_;
  IdVector<GraphId, bool> has_gradients_;  ///< True if the graph, or one that it runs, takes gradients.
  std::vector<GradientShare> shares_;
  Visits visits_;
  std::map<ContextId, std::map<Caller, const Visit*>> last_;  ///< Last visits by context and caller.
  Recent<DefKey, ShareTraits> traits_;
  Recent<CollectiveStep, Step> collective_steps_;
  Recent<LocalStep, ShareId> local_steps_;
  std::map<std::pair<ShareId, PartitionId>, std::optional<Ratio>> factors_;
  /// Contexts per context of the given facts; filled on demand.
  std::map<ContextId, std::set<ContextId>> own_contexts_;
  std::map<TensorId, ShareId> remote_;
  /// Union-find forest of the calls of gradient graphs that belong together.
  std::vector<std::uint32_t> sources_;
  std::map<OpId, std::uint32_t> source_of_call_;
  std::map<std::pair<OpId, TensorId>, GradientFinding> found_;
  std::vector<Update> updates_;  ///< Updates in the order in which they are visited.
  /// Repeated sums in gradient graphs, which are wrong if factors differ.
  std::map<OpId, GradientFinding> repeated_sums_;
  std::map<std::uint32_t, Ratio> usual_;  ///< Usual factor by source.
  std::vector<GradientFinding> findings_;
};

}  // namespace popsr
