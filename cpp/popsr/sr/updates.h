// Steps of optimisers over many tensors: one call, and threads share the elements of all of them. The bits
// equal those of one call per tensor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "popsr/kernels/contract/round.h"
#include "popsr/sr/runs.h"

namespace popsr::kernels {

/// Contiguous buffers of one tensor, of n elements each. Unused moments are null.
struct SrWeight {
  std::int64_t n = 0;
  std::byte* w = nullptr;
  const std::byte* g = nullptr;
  std::byte* m = nullptr;
  std::byte* v = nullptr;
  FloatFormat formats[4] = {};  ///< Formats of w, g, m and v.
  bool is_first = false;        ///< True if m has no value yet.
  std::uint64_t step = 0;       ///< Step number, from 1.
  NoiseKey keys[3];             ///< Noise keys of w, m and v.
  std::uint64_t first = 0;      ///< Added to all numbers of elements.
  SrRuns runs;                  ///< Numbers of elements; none: in order from 0.
};

/// Scalars of SGD: d = g + weight_decay w; m = d at first, otherwise momentum m + (1 - dampening) d; w =
/// SR(w - lr m), or with Nesterov SR(w - lr (d + momentum m)). Computed in float32 up to the one rounding
/// of w; m is float32.
struct SrSgd {
  double lr = 0, momentum = 0, dampening = 0, weight_decay = 0;
  bool nesterov = false;
  bool maximize = false;  ///< True if the gradient is negated.
};

/// Scalars of Lion: w = SR(w - lr (sign(beta1 m + (1 - beta1) g) + weight_decay w)); m = beta2 m + (1 -
/// beta2) g, in float32.
struct SrLion {
  double lr = 0, beta1 = 0, beta2 = 0, weight_decay = 0;
  bool maximize = false;
};

/// Scalars of SrAdamw that do not change from step to step.
struct SrAdamwOptions {
  double lr = 0, beta1 = 0, beta2 = 0, eps = 0, weight_decay = 0;
  bool maximize = false;
};

/// Scalars of one step of one tensor, without its buffers.
SrAdamw adamw_step(const SrAdamwOptions& options, std::uint64_t step);

/// True if no element that a step writes is read or written by another tensor, or through another operand.
bool are_disjoint(std::span<const SrWeight> weights);

/// Runs one step of disjoint weights on up to `threads` threads (0: default_threads()).
void sr_step(const SrSgd& options, std::span<const SrWeight> weights, int threads);
void sr_step(const SrLion& options, std::span<const SrWeight> weights, int threads);
void sr_step(const SrAdamwOptions& options, std::span<const SrWeight> weights, int threads);

}  // namespace popsr::kernels
