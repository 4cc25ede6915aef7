// Memory of temporaries that the instructions of a plan share.
#pragma once

#include <cstddef>
#include <vector>

#include "popsr/base/containers/slab.h"

namespace popsr {

/// Memory of temporaries per thread; one instruction after another uses it.
struct ThreadRoom {
  std::size_t bytes = 0;           ///< Largest number of bytes that one instruction uses.
  std::vector<Slab> threads = {};  ///< One slab per thread, allocated with the plan.
};

}  // namespace popsr
