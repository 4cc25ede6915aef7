// Random programs, run in many ways: the same bits in all of them, and no claim of equality that they refute.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <cstdlib>
#include <ctime>
#include <iostream>
#include <map>
#include <optional>
#include <string>

#include "fuzz/bit_judge.h"
#include "fuzz/sabotage.h"
#include "fuzz/shrink.h"
#include "popsr/kernels/loader.h"
#include "popsr/ops/registry.h"
#include "support/effort.h"

namespace popsr {
namespace {

using namespace test;

/// The recipe of program number `number`: of all axes, and small.
Recipe recipe_of(std::uint64_t number) {
  static constexpr Flavour kFlavours[] = {Flavour::kEveryOp, Flavour::kEveryOp,      Flavour::kEveryOp,
                                          Flavour::kEveryOp, Flavour::kStraightLine, Flavour::kControlFlow};
  static constexpr std::size_t kStores[] = {1, 1, 2, 4, 8};
  std::mt19937_64 random(number * 0x9E3779B97F4A7C15ULL + 1);
  const auto replicas = static_cast<std::int64_t>(1 + random() % 8);
  const Flavour flavour = kFlavours[random() % std::size(kFlavours)];
  Recipe recipe = random_recipe(random, replicas, flavour, 8 + random() % 32);
  recipe.stores = kStores[random() % std::size(kStores)];
  recipe.merges = random() % 4 == 0;
  return recipe;
}

BitVerdict judge_number(std::uint64_t number,
                        const std::shared_ptr<const Registry>& registry = default_registry(),
                        const kernels::KernelTable* kernels = nullptr) {
  return judge_bits(recipe_of(number), registry, {.seed = number, .kernels = kernels});
}

/// Fails with the smallest program that shows what is wrong.
void show_failure(std::uint64_t number) {
  const BitOptions options{.seed = number};
  const auto fails = [&](const Recipe& recipe) {
    return !judge_bits(recipe, default_registry(), options).failure.empty();
  };
  const Recipe small = shrink(recipe_of(number), fails, 3000);
  const BitVerdict verdict = judge_bits(small, default_registry(), options);
  FAIL("program ", number, ", ", small.replicas, " replicas, rounding ", to_string(small.rounding), ": ",
       verdict.failure, " in\n", verdict.program);
}

// The judge itself

/// The first of the programs from `first` on that convicts; nullopt when none does.
std::optional<std::uint64_t> first_conviction(const Sabotage& sabotage, std::uint64_t first,
                                              std::uint64_t programs) {
  const auto registry = sabotaged(sabotage);
  std::optional<kernels::KernelTable> broken;
  if (sabotage.break_level != nullptr) {
    broken = kernels::kernel_table();
    sabotage.break_level(*broken);
  }
  for (std::uint64_t number = first; number < first + programs; ++number) {
    const BitVerdict verdict = judge_number(number, registry, broken ? &*broken : nullptr);
    if (verdict.grown && !verdict.failure.empty()) return number;
  }
  return std::nullopt;
}

/// Every run of a fuzz shows that it would have found what is wrong on purpose.
void check_canary(std::uint64_t seed) {
  const Sabotage& sabotage = sabotages()[seed % sabotages().size()];
  INFO("canary ", sabotage.op, ": ", sabotage.what);
  CHECK(first_conviction(sabotage, seed, 2000).has_value());
}

TEST_CASE("runtime fuzz: runtimes and claims that are wrong on purpose are found") {
  for (const Sabotage& sabotage : sabotages()) {
    INFO(sabotage.op, ": ", sabotage.what);
    const auto number = first_conviction(sabotage, 1, 2000);
    REQUIRE(number.has_value());
    CHECK(judge_number(*number).failure == "");
  }
}

// Programs

struct Tally {
  std::int64_t programs = 0, values = 0, pairs = 0, sessions = 0, stopped = 0, refused = 0, too_large = 0;
};

Tally operator+(const Tally& tally, const BitVerdict& verdict) {
  return {tally.programs + 1,
          tally.values + verdict.values,
          tally.pairs + verdict.pairs,
          tally.sessions + verdict.sessions,
          tally.stopped + (verdict.stopped ? 1 : 0),
          tally.refused + (verdict.refused ? 1 : 0),
          tally.too_large + (verdict.too_large ? 1 : 0)};
}

/// Judges so many programs; by rounding mode what was looked at.
std::map<RoundingMode, Tally> judge_programs(std::uint64_t first, std::uint64_t programs) {
  std::map<RoundingMode, Tally> tallies;
  for (std::uint64_t number = first; number < first + programs; ++number) {
    const BitVerdict verdict = judge_number(number);
    if (!verdict.failure.empty()) show_failure(number);
    Tally& tally = tallies[recipe_of(number).rounding];
    tally = tally + verdict;
  }
  return tallies;
}

TEST_CASE("runtime fuzz: random programs give the same bits however they are run") {
  for (const auto& [mode, tally] : judge_programs(1, rounds(1500))) {
    INFO(to_string(mode));
    CHECK(tally.pairs > 10 * tally.programs);  // the programs are not all trivial
    CHECK(tally.values > 15 * tally.programs);
    CHECK(3 * tally.stopped < tally.programs);  // of few programs under sanitizers
    CHECK(5 * tally.refused < tally.programs);
    CHECK(100 * tally.too_large < tally.programs);
  }
}

std::uint64_t setting(const char* name, std::uint64_t otherwise) {
  const char* given = std::getenv(name);
  return given == nullptr ? otherwise : std::strtoull(given, nullptr, 10);
}

TEST_CASE("runtime fuzz slow: random programs give the same bits however they are run" * doctest::skip()) {
  const std::uint64_t programs = setting("POPSR_FUZZ_PROGRAMS", 20000);
  const std::uint64_t first = setting("POPSR_FUZZ_SEED", 1000000);
  const std::clock_t start = std::clock();
  const auto tallies = judge_programs(first, programs);
  const double spent = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  check_canary(first);
  for (const auto& [mode, tally] : tallies) {
    std::cout << fmt::format(
        "{:<11} {:>9} programs {:>11} values {:>11} claimed pairs {:>10} sessions {:>8} ended by an error "
        "{:>7} "
        "refused {:>4} too large, 0 differing bits, 0 false claims\n",
        to_string(mode), tally.programs, tally.values, tally.pairs, tally.sessions, tally.stopped,
        tally.refused, tally.too_large);
  }
  std::cout << fmt::format("programs {} to {}, {:.0f} a CPU-second, instruction-set levels {}\n", first,
                           first + programs - 1, static_cast<double>(programs) / spent,
                           fmt::join(kernels::available_levels(), ", "));
}

}  // namespace
}  // namespace popsr
