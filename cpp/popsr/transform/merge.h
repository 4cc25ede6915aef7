// Merges exchanges that do not depend on each other: one op, one instruction and one pass for several
// tensors.
//
// Values, noise and facts are unchanged: a merged op is its parts (schedule.cpp), and nothing moves past an
// op that it must follow by data, by memory, by streams, by prints or by in_sequence. The transforms of
// programs compare all facts before and after, value by value; running a transform again changes nothing.
#pragma once

#include <cstddef>

#include "popsr/ir/ids.h"

namespace popsr {

class Ir;

/// Merges, in every graph, all-reduces (also in place) and reduce-scatters of equal reduction and group,
/// and all-gathers of equal group. Returns the number of ops by which the schedules got shorter.
std::size_t merge_collectives(Ir& ir);

/// Merges, in every graph, loads and stores of streams and of remote buffers.
std::size_t merge_exchange(Ir& ir);
/// Merges loads and stores at the end of one graph's schedule, from position `first` on, while the program
/// grows. Reads nothing else, so facts are not compared. Returns the number of exchanges left there.
std::size_t merge_exchange_since(Ir& ir, GraphId graph, std::uint32_t first);

}  // namespace popsr
