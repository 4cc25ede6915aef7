// Times explanations of random values.
#pragma once

#include <string>

#include "popsr/ir/ir.h"

namespace popsr::bench {

/// Asks `questions` times why two random replicas differ in a random value of the main graph, and prints a
/// line of JSON with the seconds and steps of each answer.
void explain_random_values(const std::string& name, const Ir& ir, int questions);

}  // namespace popsr::bench
