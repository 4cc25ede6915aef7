// Random programs. A program is grown from a recipe: a list of records of a few bytes, each a step of the
// generator, and axes that hold for the whole program. Any recipe makes a valid program, so what drops
// records and changes bytes makes smaller programs (shrink.h).
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "support/program.h"

namespace popsr::test {

enum class Flavour : std::uint8_t {
  kStraightLine,  ///< One run tells all: writes only what was loaded, remote entries are stored first.
  kControlFlow,   ///< Nested calls, loops and conditionals; writes to anything; state across runs.
  kEveryOp,  ///< Programs like kControlFlow, with ops that only the judge of bits knows (fuzz/bit_judge.h).
};

/// Seed rules of ops that round.
enum class RoundingMode : std::uint8_t { kNearest, kIdentical, kPartition, kDiffering, kPopart };
inline constexpr std::size_t kNumRoundingModes = 5;
std::string_view to_string(RoundingMode mode);

struct Recipe {
  using Record = std::array<std::uint8_t, 16>;
  std::int64_t replicas = 1;
  Flavour flavour = Flavour::kStraightLine;
  RoundingMode rounding = RoundingMode::kNearest;
  std::vector<TensorType> types = {kVector};  ///< Types of values; the first is the type of most.
  /// Number of each eight values that are stored for the host where they are made. If not 0, the last ones
  /// are stored at the end.
  std::size_t stores = 0;
  bool merges = false;  ///< Collectives and exchanges are merged.
  bool views = false;   ///< Parts of values are viewed, of kControlFlow.
  std::vector<Record> records = {};
  bool operator==(const Recipe&) const = default;
};

/// Recipe of `records` records of random bytes, with random axes. Nothing is stored.
Recipe random_recipe(std::mt19937_64& random, std::int64_t replicas, Flavour flavour, std::size_t records);
/// 1 to 16 replicas, now and then 48 or 64.
std::int64_t random_replicas(std::mt19937_64& random);

/// Groupings that a program may use; the others become groups of one replica.
using AcceptGrouping = std::function<bool(const ReplicaGrouping&)>;
/// Called while a program grows, after each record.
using AfterStep = std::function<void()>;
/// Grows the recipe's program in `p`, which must be empty. False when mode "popart" refuses it: then it
/// rounds to nearest.
bool grow(const Recipe& recipe, Program& p, const AcceptGrouping& accept = {}, const AfterStep& after = {});

}  // namespace popsr::test
