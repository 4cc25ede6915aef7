// Seed rules: which ops round stochastically, and which replicas draw the same random numbers there. They are
// an argument of the analysis; a session has those of its facts. Nothing of them is in the program, so that
// facts and sessions of one program with different rules do not know of each other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace popsr {

class Ir;
struct Op;

/// Rule for the seeds of an op that rounds stochastically.
enum class SeedRule : std::uint8_t {
  kPartition,  ///< Seed blocks are the join of the partitions of the op's outputs.
  kIdentical,  ///< One seed for all replicas.
  kDiffering,  ///< A seed of its own for each replica.
};
std::string_view to_string(SeedRule rule);

/// Rules of the ops of a program; an immutable value. Copies are cheap.
class SeedRules {
 public:
  /// Rules of a program that rounds to nearest: no op has one.
  SeedRules() = default;
  /// One rule for all ops that take part in stochastic rounding: those that round and allow it.
  explicit SeedRules(SeedRule rule) : rule_(rule) {}
  /// Rules by the name of a mode: "partition", "identical", or "popart", which follows the reference: an op
  /// has kIdentical if mode "popart" of the analysis considers all its outputs equal on all replicas,
  /// kDiffering otherwise. For a part of a merged op all outputs of all parts count. Throws
  /// AttributeValueError for another name, GraphError for an op in a graph that mode "popart" does not walk.
  static SeedRules of_mode(const Ir& ir, std::string_view mode);
  /// These rules, for the ops that the program has now: later ones have none.
  SeedRules for_present_ops(const Ir& ir) const;

  /// Rule of an op; nullopt if it rounds to nearest, or not at all.
  std::optional<SeedRule> of(const Ir& ir, const Op& op) const {
    return rule_ || each_ != nullptr ? known(ir, op) : std::nullopt;
  }
  /// True if the program's first `ops` ops have the same rules here and there.
  bool agree(const Ir& ir, const SeedRules& other, std::size_t ops) const;
  /// Throws GraphError naming the first op that takes part without a rule (enabled) or has one (not enabled).
  void verify(const Ir& ir, bool enabled) const;
  /// Text of all of them, equal for equal rules.
  std::string to_string() const;

 private:
  std::optional<SeedRule> known(const Ir& ir, const Op& op) const;

  std::optional<SeedRule> rule_ = {};
  /// Rule of each op, for rules that differ between ops; null otherwise.
  std::shared_ptr<const std::vector<SeedRule>> each_ = nullptr;
  std::size_t ops_ = std::numeric_limits<std::size_t>::max();  ///< Number of ops that can have a rule.
};

}  // namespace popsr
