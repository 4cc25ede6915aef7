// Random programs. A program is grown from a recipe: a list of records of a few bytes, each a step of the
// generator. Any list makes a valid program, so what drops records and changes bytes makes smaller programs
// (shrink.h).
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "program.h"

namespace popsr::test {

enum class Flavour : std::uint8_t {
  kStraightLine,  ///< One run tells all: writes only what was loaded, remote entries are stored first.
  kControlFlow,   ///< Nested calls, loops and conditionals; writes to anything; state across runs.
};

struct Recipe {
  using Record = std::array<std::uint8_t, 10>;
  std::int64_t replicas = 1;
  Flavour flavour = Flavour::kStraightLine;
  std::optional<SeedRule> seeds = {};  ///< Values are narrow, and rounded stochastically.
  std::vector<Record> records;
};

/// So many records of random bytes.
Recipe random_recipe(std::mt19937_64& random, std::int64_t replicas, Flavour flavour, std::size_t records);
/// 1 to 16 replicas, now and then 48 or 64.
std::int64_t random_replicas(std::mt19937_64& random);

/// Groupings that a program may use; the others become groups of one replica.
using AcceptGrouping = std::function<bool(const ReplicaGrouping&)>;
/// Grows the recipe's program in `p`, which must be empty.
void grow(const Recipe& recipe, Program& p, const AcceptGrouping& accept = {});

}  // namespace popsr::test
