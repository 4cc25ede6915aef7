// Compares the facts of the analysis with what the Herbrand interpreter sees.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fuzz/programs/random_program.h"
#include "popsr/analysis/partition_analysis.h"
#include "popsr/effects/remote_access.h"
#include "popsr/effects/stream_positions.h"
#include "support/herbrand.h"

namespace popsr::test {

/// Facts of the analysis at points that the interpreter reaches.
class Claims {
 public:
  Claims(const PartitionAnalysis& facts, const Herbrand& program);

  /// Fact of a place; nullopt if nothing is claimed, as about the inside of an op that the analysis does
  /// not walk.
  std::optional<PartitionId> fact(const Place& place);
  /// Replicas of one block start the graph together or not at all; nullopt as above.
  std::optional<PartitionId> exec(PathId path);
  /// True if the analysis says that members of one group may diverge before the op.
  bool flags(PathId path, const Op& op);
  /// Seed partition of an op that rounds.
  std::optional<PartitionId> seeds(PathId path, const Op& op);
  /// Rule of that op.
  SeedRule seed_rule(const Op& op) const { return facts_.seed_rule(op).value(); }

 private:
  std::optional<ContextId> context(PathId path);
  std::optional<PartitionId> input(const Context& context, std::uint32_t index);
  std::optional<PartitionId> last(const Context& context, TensorId tensor);
  std::optional<PartitionId> position(const Context& context, StreamId stream);

  const PartitionAnalysis& facts_;
  const Herbrand& program_;
  RemoteAccess remote_;
  StreamPositions streams_;
  std::vector<TensorId> state_;
  std::vector<std::optional<std::optional<ContextId>>>
      contexts_;  ///< Contexts by path, as far as they were asked for.
};

/// Notes the first claim that a run refutes.
class SoundnessCheck : public Observer {
 public:
  SoundnessCheck(const PartitionAnalysis& facts, const Herbrand& program);

  void value(const Place& place, std::span<const Term> terms, Mask active) override;
  void starts(PathId path, Mask active) override;
  void diverges(PathId path, const Op& op) override;
  std::span<const std::uint32_t> seeds(PathId path, const Op& op) override;

  /// Empty while all is well.
  const std::string& failure() const { return failure_; }

 protected:
  Claims claims_;
  const PartitionTable& table_;
  const Herbrand& program_;
  std::string failure_;
};

/// Check of straight-line programs, for which one run decides everything: claims must be all that is true,
/// and replicas that need not round alike must not.
class ExactCheck : public SoundnessCheck {
 public:
  using SoundnessCheck::SoundnessCheck;
  void value(const Place& place, std::span<const Term> terms, Mask active) override;
  std::span<const std::uint32_t> seeds(PathId path, const Op& op) override;

  /// Facts that are neither top nor bottom.
  int between() const { return between_; }

 private:
  int between_ = 0;
};

/// One value of a program: a place, in all iterations and runs.
struct ValuePairs {
  Place place;
  /// Replicas that came there together with replica r, in some iteration of some run.
  std::vector<Mask> together;
  std::vector<Mask> differ;  ///< Replicas whose terms differed from replica r's then.
  std::vector<Mask> mates =
      {};  ///< Replicas that certainly run the point together with replica r; empty: all.
};

/// Collects all outputs of ops that are seen.
class PairCollector : public Observer {
 public:
  void value(const Place& place, std::span<const Term> terms, Mask active) override;
  void diverges(PathId, const Op&) override { ++divergences_; }
  std::vector<ValuePairs> take();
  int divergences() const { return divergences_; }

 private:
  std::map<Place, ValuePairs> values_;
  int divergences_ = 0;
};

/// Comparison of a fact with the observed values.
struct Comparison {
  std::int64_t equal_pairs = 0;   ///< Pairs of mates that were seen, and never seen to differ.
  std::int64_t proved_pairs = 0;  ///< Number of these pairs in one block of the fact.
  /// Number of pairs in one block of the fact that were seen to differ; mates or not.
  std::int64_t unsound_pairs = 0;
  bool exact() const { return proved_pairs == equal_pairs && unsound_pairs == 0; }
};
/// `labels`: the block of each replica, as PartitionTable::labels.
Comparison compare(const ValuePairs& value, std::span<const std::uint32_t> labels);

/// The value's exact partition as far as the runs tell: replicas of one block were never seen to differ.
/// nullopt when that is not an equivalence, because some replicas never came there together.
std::optional<PartitionId> exact_partition(PartitionTable& table, const ValuePairs& value);

/// The exact and the claimed partition of a value.
struct JudgedValue {
  ValuePairs pairs;
  OpId op = kNone;
  std::optional<PartitionId> exact, fact;  ///< exact_partition(); nullopt where nothing is claimed.
};
/// True if lint L1 says of some collective that replicas of one group may diverge before it.
bool may_part(const PartitionAnalysis& facts);
/// All outputs of ops that the sessions come to, in all contexts. Of programs without stochastic rounding.
std::vector<JudgedValue> judge_values(const PartitionAnalysis& facts, int sessions, int runs);

/// A program and what is wrong with its facts: nothing, when `failure` is empty.
struct Verdict {
  std::string failure;
  std::string program;  ///< Text of the program, if it failed.
  std::size_t ops = 0;
  int between = 0;      ///< Facts of a straight-line program that are neither top nor bottom.
  int divergences = 0;  ///< Sessions that ended because replicas disagreed about an exchange.
  bool judged = false;  ///< False when the generator or the analysis threw.
};
/// Straight-line programs: facts must be exact. Others: no fact may be refuted in so many sessions, which
/// differ in the truth of conditions, each of `runs` runs of the program.
Verdict judge(const Program& p, Flavour flavour, int sessions = 3, int runs = 2,
              SolverFault fault = SolverFault::kNone);
Verdict judge(const Recipe& recipe, std::shared_ptr<const Registry> registry,
              SolverFault fault = SolverFault::kNone);

}  // namespace popsr::test
