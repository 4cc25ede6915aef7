// Memory of temporaries that the instructions of a plan share.
#pragma once

#include <cstddef>
#include <vector>

#include "popsr/base/slab.h"

namespace popsr {

/// Temporaries of each thread: one instruction after another uses them.
struct ThreadRoom {
  std::size_t bytes = 0;           ///< That one instruction takes at most.
  std::vector<Slab> threads = {};  ///< Made with the plan.
};

}  // namespace popsr
