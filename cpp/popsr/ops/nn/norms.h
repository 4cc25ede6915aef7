// Normalisation and its gradients: division of a tensor [samples, channels, ...] into rows.
#pragma once

#include <cstdint>
#include <vector>

#include "popsr/exec/block_kernel.h"
#include "popsr/ir/op_def.h"
#include "popsr/kernels/contract/kernel_table.h"
#include "popsr/ops/loops/tiles.h"

namespace popsr {

/// Extents of the division; `inner` is the number of elements of one channel of one sample. A row is one
/// group of channels of one sample.
struct NormShape {
  std::int64_t samples, channels, groups, inner;

  std::int64_t group() const { return channels / groups; }  ///< Number of channels of a row.
  std::int64_t row() const { return group() * inner; }
  std::int64_t rows() const { return samples * groups; }
  std::int64_t elements() const { return samples * channels * inner; }
  /// Number of rows that kernels process at once: each is a chain of additions, and several hide one
  /// another's latency. Two rows stay in the first-level cache where four do not.
  std::int64_t together() const {
    constexpr std::int64_t kFourFit = 1024, kTwoFit = 2560, kLong = 65536;
    if (row() > kLong) return 1;
    return row() > kFourFit && row() <= kTwoFit ? 2 : 4;
  }
};

/// Division of an operand of rank 2 or more.
NormShape norm_shape(const Shape& t, std::int64_t groups);

/// Constants of the plan.
struct Normalisation : NormShape {
  /// Computes the constants; `t` is the operand that is normalised.
  Normalisation(const EvalSpec& spec, const TensorType& t, std::int64_t num_groups, double epsilon);

  const kernels::KernelTable& kernels;
  DType dtype;
  kernels::Compute compute;
  const kernels::NormKernels& norm;
  double eps;
  bool narrow;
  bool stochastic;
  std::int64_t size, wide;  ///< Bytes of an element, as stored and as computed with.

  /// Elements of the dtype as the compute type: in `to` if they are narrow, otherwise in place.
  const std::byte* widened(const std::byte* from, std::int64_t n, std::byte* to) const;
  /// Bytes of n elements of the compute type, rounded up to the next cache line.
  std::int64_t padded(std::int64_t n) const { return whole_lines(n * wide); }
};

/// Normalisation with the attributes kNumGroups and kEps.
Normalisation group_normalisation(const EvalSpec& spec, const TensorType& t);

inline constexpr Attr<std::int64_t> kNumGroups{"num_groups"};
inline constexpr Attr<double> kEps{"eps"};

}  // namespace popsr
