// A fact for each part of a tensor's memory, where its parts do not all have the same.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "popsr/ir/view/boxes.h"
#include "popsr/replica/partition.h"

namespace popsr {

struct Piece {
  Box box;
  PartitionId fact;
  auto operator<=>(const Piece&) const = default;
};
/// They cover a tensor. Where some overlap, all of their facts hold only met. Empty: all of the tensor has
/// one fact.
using Pieces = std::vector<Piece>;
/// Of the tensors that have some, by their position in a list.
using PiecesByInput = std::map<std::uint32_t, Pieces>;

/// More than a part of a view has, so that the order of writes hardly matters.
inline constexpr std::size_t kMaxPieces = 32;

/// Keeps at most kMaxPieces pieces: equal neighbours become one, then those that fit best are met.
void tidy(PartitionTable& table, Pieces& pieces);
/// The same facts in a form that equal facts share as a rule; empty if all have one.
void normalize(PartitionTable& table, Pieces& pieces);
/// The meet of all facts.
PartitionId meet_of(PartitionTable& table, const Pieces& pieces);
/// Element by element.
Pieces meet(PartitionTable& table, const Pieces& a, const Pieces& b);
/// True if each element of `a` keeps its fact when `b` is met with it.
bool refines(const PartitionTable& table, const Pieces& a, const Pieces& b);
/// Facts met with `fact`.
void meet_all(PartitionTable& table, Pieces& pieces, PartitionId fact);

}  // namespace popsr
