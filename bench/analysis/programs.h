// Programs of any size for the benchmarks of the analysis. Nothing here is run: shapes are tiny.
#pragma once

#include <cstdint>
#include <memory>

#include "popsr/ir/ir.h"

namespace popsr::bench {

/// A training step of a GPT-like model on replicas that are tensor parallel in groups of 8 neighbours and
/// data parallel across them: forward and backward of as many layers as `ops` ops take, gradients reduced
/// over data parallel groups, and updates in place. `replicas` is a multiple of 8.
std::unique_ptr<Ir> gpt_step(std::int64_t replicas, std::int64_t ops);

/// Program of one forward block, `layers` times: written out, or as one graph that is called.
std::unique_ptr<Ir> layers_inlined(std::int64_t replicas, std::int64_t layers, std::int64_t ops_a_layer);
std::unique_ptr<Ir> layers_called(std::int64_t replicas, std::int64_t layers, std::int64_t ops_a_layer);

/// A chain that reads each of `weights` variables twice and updates all of them at its end, in one sequence:
/// about four ops a variable.
std::unique_ptr<Ir> late_updates(std::int64_t replicas, std::int64_t weights);

/// Layers of ten ops, of which four are collectives: a sum, a mean, a maximum and a broadcast over groups of two
/// kinds. Each layer has a weight that is updated in place.
std::unique_ptr<Ir> many_collectives(std::int64_t replicas, std::int64_t ops);

/// A loop that hands `values` values round, one place an iteration; one of them differs between replicas.
std::unique_ptr<Ir> rotation(std::int64_t replicas, std::int64_t values);

/// Loops in loops, each adding to a carried value what its body's loop gave.
std::unique_ptr<Ir> loop_nest(std::int64_t replicas, std::int64_t depth);

}  // namespace popsr::bench
