// Normalisation and its gradients: division of a tensor [samples, channels, ...] into rows.
#pragma once

#include <cstdint>
#include <vector>

#include "popsr/exec/block_kernel.h"
#include "popsr/ir/op_def.h"
#include "popsr/kernels/contract/kernel_table.h"
#include "popsr/ops/loops/tiles.h"

namespace popsr {

/// `inner`: elements of one channel of one sample. A row is one group of channels of one sample.
struct NormShape {
  std::int64_t samples, channels, groups, inner;

  std::int64_t group() const { return channels / groups; }  ///< Channels of a row.
  std::int64_t row() const { return group() * inner; }
  std::int64_t rows() const { return samples * groups; }
  std::int64_t elements() const { return samples * channels * inner; }
  /// Rows that kernels take at once: each is a chain of additions, which fill one another's latency. Two rows
  /// stay in the first-level cache where four do not.
  std::int64_t together() const {
    constexpr std::int64_t kFourFit = 1024, kTwoFit = 2560, kLong = 65536;
    if (row() > kLong) return 1;
    return row() > kFourFit && row() <= kTwoFit ? 2 : 4;
  }
};

/// Of an operand of rank 2 or more.
NormShape norm_shape(const Shape& t, std::int64_t groups);

/// Constants of the plan.
struct Normalisation : NormShape {
  /// `t`: the operand that is normalised.
  Normalisation(const EvalSpec& spec, const TensorType& t, std::int64_t num_groups, double epsilon);

  const kernels::KernelTable& kernels;
  DType dtype;
  kernels::Compute compute;
  const kernels::NormKernels& norm;
  double eps;
  bool narrow;
  bool stochastic;
  std::int64_t size, wide;  ///< Bytes of an element, as stored and as computed with.

  /// n elements of the dtype as the compute type: in `to` where they are narrow, else where they are.
  const std::byte* widened(const std::byte* from, std::int64_t n, std::byte* to) const;
  /// Bytes of n elements of the compute type, to the next cache line.
  std::int64_t padded(std::int64_t n) const { return whole_lines(n * wide); }
};

/// By the attributes kNumGroups and kEps.
Normalisation group_normalisation(const EvalSpec& spec, const TensorType& t);

inline constexpr Attr<std::int64_t> kNumGroups{"num_groups"};
inline constexpr Attr<double> kEps{"eps"};

}  // namespace popsr
