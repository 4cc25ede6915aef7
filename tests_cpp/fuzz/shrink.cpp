#include "fuzz/shrink.h"

#include <algorithm>
#include <iterator>

namespace popsr::test {
namespace {

using Record = Recipe::Record;
using Fails = std::function<bool(const Recipe&)>;

/// Drops runs of records, long ones first; true when some could be dropped.
bool drop_records(Recipe& recipe, const Fails& fails) {
  bool changed = false;
  for (std::size_t length = recipe.records.size(); length > 0; length /= 2) {
    for (std::size_t first = 0; first + length <= recipe.records.size();) {
      Recipe shorter = recipe;
      const auto from = shorter.records.begin() + static_cast<std::ptrdiff_t>(first);
      shorter.records.erase(from, from + static_cast<std::ptrdiff_t>(length));
      if (fails(shorter)) {
        recipe = std::move(shorter);
        changed = true;
      } else {
        ++first;
      }
    }
  }
  return changed;
}

/// A load, a load of one element for all, a variable.
constexpr Record kSimple[] = {{64, 24, 0}, {64, 24, 3}, {64, 24, 5}};

bool is_variable(const Record& record) {
  return std::equal(record.begin(), record.begin() + 3, kSimple[2].begin());
}

bool is_simple(const Record& record) { return std::ranges::find(kSimple, record) != std::end(kSimple); }

bool zero_bytes(Recipe& recipe, const Fails& fails) {
  bool changed = false;
  for (std::size_t at = 0; at < recipe.records.size(); ++at) {
    if (is_simple(recipe.records[at])) continue;
    for (std::size_t i = 1; i < recipe.records[at].size(); ++i) {
      if (recipe.records[at][i] == 0) continue;
      Recipe simpler = recipe;
      simpler.records[at][i] = 0;
      if (!fails(simpler)) continue;
      recipe = std::move(simpler);
      changed = true;
    }
  }
  return changed;
}

/// Puts the simplest records in the place of others.
bool simplify_records(Recipe& recipe, const Fails& fails) {
  bool changed = false;
  for (std::size_t at = 0; at < recipe.records.size(); ++at) {
    for (const Record& simple : kSimple) {
      if (is_simple(recipe.records[at])) break;
      Recipe simpler = recipe;
      simpler.records[at] = simple;
      if (!fails(simpler)) continue;
      recipe = std::move(simpler);
      changed = true;
    }
  }
  return changed;
}

/// Puts a variable in the place of others: what it agrees on takes several ops else. Only for what is short
/// already.
bool put_variable(Recipe& recipe, const Fails& fails) {
  if (recipe.records.size() > 8) return false;
  for (std::size_t at = 0; at < recipe.records.size(); ++at) {
    if (is_simple(recipe.records[at]) || is_variable(recipe.records[at])) continue;
    for (unsigned size = 0; size < 4; ++size) {
      for (unsigned members = 0; members < 8; ++members) {
        Recipe simpler = recipe;
        simpler.records[at] = {
            64, 24, 5, 2, static_cast<std::uint8_t>(size), static_cast<std::uint8_t>(members)};
        if (!fails(simpler)) continue;
        recipe = std::move(simpler);
        return true;
      }
    }
  }
  return false;
}

/// Drops a record whose result another one needs: one byte of that one is changed too. Only for what is short
/// already.
bool drop_with_repair(Recipe& recipe, const Fails& fails) {
  if (recipe.records.size() > 16) return false;
  for (std::size_t gone = 0; gone < recipe.records.size(); ++gone) {
    Recipe shorter = recipe;
    shorter.records.erase(shorter.records.begin() + static_cast<std::ptrdiff_t>(gone));
    for (Record& record : shorter.records) {
      for (std::size_t i = 1; i < 6; ++i) {
        const std::uint8_t old = record[i];
        for (std::uint8_t value = 0; value < 8; ++value) {
          record[i] = value;
          if (!fails(shorter)) continue;
          recipe = std::move(shorter);
          return true;
        }
        record[i] = old;
      }
    }
  }
  return false;
}

bool drop_replicas(Recipe& recipe, const Fails& fails) {
  for (std::int64_t replicas = 2; replicas < recipe.replicas; ++replicas) {
    Recipe smaller = recipe;
    smaller.replicas = replicas;
    if (!fails(smaller)) continue;
    recipe = std::move(smaller);
    return true;
  }
  return false;
}

/// Plainer axes, as long as it still fails.
bool simplify_axes(Recipe& recipe, const Fails& fails) {
  bool changed = false;
  const auto attempt = [&](const auto& simplify) {
    Recipe simpler = recipe;
    simplify(simpler);
    if (simpler == recipe || !fails(simpler)) return;
    recipe = std::move(simpler);
    changed = true;
  };
  attempt([](Recipe& r) { r.merges = false; });
  attempt([](Recipe& r) { r.rounding = RoundingMode::kNearest; });
  attempt([](Recipe& r) { r.rounding = std::min(r.rounding, RoundingMode::kPartition); });
  attempt([](Recipe& r) { r.types = {kVector}; });
  attempt([](Recipe& r) { r.types.resize(1); });
  attempt([](Recipe& r) { r.types[0].shape = kVector.shape; });
  attempt([](Recipe& r) { r.stores = std::min<std::size_t>(r.stores, 1); });
  return changed;
}

}  // namespace

Recipe shrink(Recipe recipe, const std::function<bool(const Recipe&)>& still_fails, std::size_t budget) {
  const Fails fails = [&](const Recipe& simpler) { return budget > 0 && (--budget, still_fails(simpler)); };
  for (bool changed = true; changed;) {
    changed = simplify_axes(recipe, fails);  // first: big values make all that follows slow
    changed |= drop_records(recipe, fails);
    changed |= zero_bytes(recipe, fails);
    changed |= drop_replicas(recipe, fails);
    changed |= simplify_records(recipe, fails);
    changed = changed || put_variable(recipe, fails);
    changed = changed || drop_with_repair(recipe, fails);
  }
  return recipe;
}

}  // namespace popsr::test
