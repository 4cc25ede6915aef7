// Stochastic rounding of arrays: any strides, any number of threads, the same bits. Kernels get contiguous
// pieces: other data goes through a buffer of one tile per thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "popsr/kernels/contract/round.h"
#include "popsr/sr/runs.h"

namespace popsr::kernels {

/// Array for kernels: its elements in C order; strides in bytes, of any sign, 0 where one element is
/// repeated.
struct SrArray {
  std::byte* data = nullptr;
  FloatFormat format = FloatFormat::kF32;
  std::vector<std::int64_t> strides;
};
using SrShape = std::vector<std::int64_t>;

/// Number of threads for `n` elements, at most `threads` (0: default_threads()).
int parts_for(std::int64_t n, int threads);

/// Calls body(part) for part = 0 .. parts - 1 on the shared pool, or on this thread alone while another
/// call uses the pool. Every thread runs in the kernels' floating-point environment.
void run_parts(int parts, void (*body)(const void* context, int part), const void* context);

/// Runs a call on arrays: `call` has op, rounding and scalar; its buffers, formats, n and stream are
/// ignored. `arrays`: the output, then the operands, of one shape. The noise of `call.rounding.first`
/// belongs to the element of number 0; without `runs` it is the first in C order.
void sr_run(const SrCall& call, const SrShape& shape, const std::vector<SrArray>& arrays, int threads,
            SrRuns runs = {});

/// Runs an AdamW step on arrays: `step` has scalars, keys and first; `arrays`: w, g, m, v of one shape.
void sr_run_adamw(const SrAdamw& step, const SrShape& shape, const std::vector<SrArray>& arrays, int threads,
                  SrRuns runs = {});

/// Runs an addition of the value form on arrays: `call` has format, key and biased; `arrays`: out, x, y of
/// one shape.
void sr_run_value(const SrValueAdd& call, const SrShape& shape, const std::vector<SrArray>& arrays,
                  int threads);

}  // namespace popsr::kernels
