// Makes failing programs small.
#pragma once

#include <functional>

#include "random_program.h"

namespace popsr::test {

/// A smallest recipe in the neighbourhood that still fails: records and replicas are dropped, bytes become 0,
/// as long as `fails` holds.
Recipe shrink(Recipe recipe, const std::function<bool(const Recipe&)>& fails);

}  // namespace popsr::test
