// Makes failing programs small.
#pragma once

#include <cstdint>
#include <functional>

#include "fuzz/programs/random_program.h"

namespace popsr::test {

/// A smallest recipe in the neighbourhood that still fails: records and replicas are dropped, bytes become 0,
/// as long as `fails` holds. It is asked `budget` times at most.
Recipe shrink(Recipe recipe, const std::function<bool(const Recipe&)>& fails, std::size_t budget = SIZE_MAX);

}  // namespace popsr::test
