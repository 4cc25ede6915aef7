// Steps of optimisers over many tensors: one call, and threads share the elements of all of them. The bits
// are those of one call per tensor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "popsr/kernels/contract/round.h"

namespace popsr::kernels {

/// One tensor's contiguous buffers of n elements. Unused moments are null.
struct SrWeight {
  std::int64_t n = 0;
  std::byte* w = nullptr;
  const std::byte* g = nullptr;
  std::byte* m = nullptr;
  std::byte* v = nullptr;
  FloatFormat formats[4] = {};  ///< Of w, g, m, v.
  bool is_first = false;        ///< m has no value yet.
  std::uint64_t step = 0;       ///< From 1.
  NoiseKey keys[3];             ///< Of w, m, v.
};

/// d = g + weight_decay w; m = d at first, else momentum m + (1 - dampening) d; w = SR(w - lr m), or of
/// d + momentum m as Nesterov does it. In float32 up to the one rounding of w; m is float32.
struct SrSgd {
  double lr = 0, momentum = 0, dampening = 0, weight_decay = 0;
  bool nesterov = false;
  bool maximize = false;  ///< The gradient counts negatively.
};

/// w = SR(w - lr (sign(beta1 m + (1 - beta1) g) + weight_decay w)); m = beta2 m + (1 - beta2) g, in float32.
struct SrLion {
  double lr = 0, beta1 = 0, beta2 = 0, weight_decay = 0;
  bool maximize = false;
};

/// The scalars of SrAdamw that no step changes.
struct SrAdamwOptions {
  double lr = 0, beta1 = 0, beta2 = 0, eps = 0, weight_decay = 0;
  bool maximize = false;
};

/// The step of one tensor, without its buffers.
SrAdamw adamw_step(const SrAdamwOptions& options, std::uint64_t step);

/// True if what a step writes is nowhere read or written by another tensor, or as another operand.
bool are_disjoint(std::span<const SrWeight> weights);

/// Steps of disjoint weights on up to `threads` threads (0: default_threads()).
void sr_step(const SrSgd& options, std::span<const SrWeight> weights, int threads);
void sr_step(const SrLion& options, std::span<const SrWeight> weights, int threads);
void sr_step(const SrAdamwOptions& options, std::span<const SrWeight> weights, int threads);

}  // namespace popsr::kernels
