#include "popsr/analysis/memory/pieces.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

namespace popsr {
namespace {

/// Joins the first two boxes of one fact that make a box; false when there are none.
bool join_neighbours(Pieces& pieces) {
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    for (std::size_t k = i + 1; k < pieces.size(); ++k) {
      if (pieces[i].fact != pieces[k].fact) continue;
      std::optional<Box> both = exact_union(pieces[i].box, pieces[k].box);
      if (!both) continue;
      pieces[i].box = std::move(*both);
      pieces.erase(pieces.begin() + static_cast<std::ptrdiff_t>(k));
      return true;
    }
  }
  return false;
}

/// Meets the two pieces whose hull has fewest elements of neither.
void meet_best_fit(PartitionTable& table, Pieces& pieces) {
  std::size_t first = 0, second = 1;
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    for (std::size_t k = i + 1; k < pieces.size(); ++k) {
      const std::int64_t waste = num_elements(hull(pieces[i].box, pieces[k].box)) -
                                 num_elements(pieces[i].box) - num_elements(pieces[k].box);
      if (waste >= least) continue;
      least = waste;
      first = i;
      second = k;
    }
  }
  pieces[first] = {hull(pieces[first].box, pieces[second].box),
                   table.meet(pieces[first].fact, pieces[second].fact)};
  pieces.erase(pieces.begin() + static_cast<std::ptrdiff_t>(second));
}

}  // namespace

void tidy(PartitionTable& table, Pieces& pieces) {
  while (join_neighbours(pieces)) {
  }
  while (pieces.size() > kMaxPieces) meet_best_fit(table, pieces);
}

void normalize(PartitionTable& table, Pieces& pieces) {
  tidy(table, pieces);
  const auto same = [&pieces](const Piece& piece) { return piece.fact == pieces.front().fact; };
  if (std::ranges::all_of(pieces, same)) {
    pieces.clear();
  } else {
    std::ranges::sort(pieces);
  }
}

PartitionId meet_of(PartitionTable& table, const Pieces& pieces) {
  PartitionId fact = table.top();
  for (const Piece& piece : pieces) fact = table.meet(fact, piece.fact);
  return fact;
}

Pieces meet(PartitionTable& table, const Pieces& a, const Pieces& b) {
  Pieces result;
  for (const Piece& one : a) {
    for (const Piece& other : b) {
      std::optional<Box> both = intersection(one.box, other.box);
      if (both) result.push_back({std::move(*both), table.meet(one.fact, other.fact)});
    }
  }
  tidy(table, result);
  return result;
}

bool refines(const PartitionTable& table, const Pieces& a, const Pieces& b) {
  return std::ranges::all_of(a, [&](const Piece& one) {
    return std::ranges::all_of(b, [&](const Piece& other) {
      return table.refines(one.fact, other.fact) || !intersection(one.box, other.box);
    });
  });
}

void meet_all(PartitionTable& table, Pieces& pieces, PartitionId fact) {
  for (Piece& piece : pieces) piece.fact = table.meet(piece.fact, fact);
}

}  // namespace popsr
