// Facts by part of a tensor's memory, for tensors whose parts have different facts.
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
/// Pieces that cover a tensor. Where some overlap, the meet of their facts holds. Empty: the tensor has one
/// fact.
using Pieces = std::vector<Piece>;
/// Pieces of the tensors that have some, by their position in a list.
using PiecesByInput = std::map<std::uint32_t, Pieces>;

/// Largest number of pieces: more than a part of a view usually has, so that the order of writes hardly
/// matters.
inline constexpr std::size_t kMaxPieces = 32;

/// Reduces the pieces to at most kMaxPieces: merges equal neighbours, then meets the pieces that fit best.
void tidy(PartitionTable& table, Pieces& pieces);
/// Brings pieces into a normal form, which is mostly the same for equal facts; empty if all have one fact.
void normalize(PartitionTable& table, Pieces& pieces);
/// Meet of the facts of all pieces.
PartitionId meet_of(PartitionTable& table, const Pieces& pieces);
/// Meet, element by element.
Pieces meet(PartitionTable& table, const Pieces& a, const Pieces& b);
/// True if each element of `a` keeps its fact when it is met with `b`.
bool refines(const PartitionTable& table, const Pieces& a, const Pieces& b);
/// Meets the fact of each piece with `fact`.
void meet_all(PartitionTable& table, Pieces& pieces, PartitionId fact);

}  // namespace popsr
