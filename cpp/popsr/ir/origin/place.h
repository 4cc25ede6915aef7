// Device placement of values: device of a replica, and kind of tiles.
//
// A program declares places; in popsr one memory holds all values, so places are checked and can be queried,
// and change no value.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "popsr/ir/ids.h"

namespace popsr {

class Ir;
struct OpDef;

enum class TileSet : std::uint8_t { kCompute, kIo };
std::string_view to_string(TileSet tiles);

struct Place {
  std::uint32_t ipu = 0;
  TileSet tiles = TileSet::kCompute;
  bool operator==(const Place&) const = default;
};

/// Placement of the op that produces the tensor; for a graph input, of what a call passes, or else of an op
/// that uses it. nullopt if there is none. Calls have the places of the graphs that they run.
std::optional<Place> place_of(const Ir& ir, TensorId tensor);

/// True if all inputs must be in one place: not for ops that run graphs or declare their own placement.
bool needs_one_place(const OpDef& def);

/// Throws GraphError if tensors with known places are on different devices or tiles. Ops that transforms
/// emit are not checked: an op may run on another device than its one input, and then its gradient has
/// inputs from both.
void check_places(const Ir& ir, std::string_view where, const std::vector<TensorId>& tensors);

}  // namespace popsr
