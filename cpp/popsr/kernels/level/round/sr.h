// The kernels of stochastic rounding, see round.h and KernelTable.
#pragma once

#include <cstdint>

#include "popsr/kernels/contract/round.h"

namespace popsr::kernels {

/// Any op, formats and mode.
void sr_apply(const SrCall& call);

/// The same through tiles of doubles whatever the call is: what sr_apply does where it has no faster kernel.
void sr_apply_tiles(const SrCall& call);

void sr_adamw(const SrAdamw& step);
void sr_reduce(SrReduction& reduction);
void sr_value_add(const SrValueAdd& call);

/// U of every pair of the value form; call.out is not looked at.
void sr_value_bits(std::uint64_t* out, const SrValueAdd& call);

}  // namespace popsr::kernels
