// Kernels of stochastic rounding, see round.h and KernelTable.
#pragma once

#include <cstdint>

#include "popsr/kernels/contract/round.h"

namespace popsr::kernels {

/// Executes a call of any op, formats and mode.
void sr_apply(const SrCall& call);

/// Executes a call through tiles of doubles, as sr_apply does for calls without a faster kernel.
void sr_apply_tiles(const SrCall& call);

void sr_adamw(const SrAdamw& step);
void sr_reduce(SrReduction& reduction);
void sr_value_add(const SrValueAdd& call);

/// U of every pair of the value form; call.out is ignored.
void sr_value_bits(std::uint64_t* out, const SrValueAdd& call);

}  // namespace popsr::kernels
