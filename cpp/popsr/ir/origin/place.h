// Device placement of values: device of a replica, and kind of tiles.
//
// A program declares places; here one memory holds them all, so they are checked and asked for, and change no
// value.
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

/// Placement of the producing op; else of what a call passes, for an input of a graph; else of an op
/// that takes it. nullopt where there is none of them. Calls have the places of the graphs that they run.
std::optional<Place> place_of(const Ir& ir, TensorId tensor);

/// True if all inputs must be in one place: not for ops that run graphs or declare their own placement.
bool needs_one_place(const OpDef& def);

/// GraphError when tensors whose places are known are on different devices or tiles. What transforms emit is
/// not checked: an op may run elsewhere than its one input is, and then its gradient has inputs from both.
void check_places(const Ir& ir, std::string_view where, const std::vector<TensorId>& tensors);

}  // namespace popsr
