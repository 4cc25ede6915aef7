// Random numbers from seeds that are tensors of the program, uint32[2]: functions of the seed, of the kind
// of number drawn and of the element's index alone. Replicas with one seed draw the same numbers; no state
// is advanced.
//
// The words (a, b) of a seed are the number a * 2^32 + b. Its key is kernels::kRootKey, derived with that
// number (Domain::kSeedTensor) and with the kind (Domain::kDrawn); element i uses the 64 bits U of
// kernels/noise.h.
#pragma once

#include <cstdint>

#include "popsr/ir/op_def.h"
#include "popsr/kernels/noise.h"

namespace popsr {

/// Kinds of random numbers, which are independent of each other.
enum class Drawn : std::uint64_t { kUniform = 0, kNormal = 1, kMask = 2, kSeed = 3 };

/// Definition of a seed input.
InputDef seed_input(std::string_view name);
/// Throws ShapeError unless the input has two words.
void check_seed(const InferContext& context, std::size_t input);
/// Reads the two words of a seed as one number.
std::uint64_t read_seed(const std::byte* seed);
kernels::NoiseKey drawn_key(const kernels::KernelTable& kernels, std::uint64_t seed, Drawn drawn);

}  // namespace popsr
