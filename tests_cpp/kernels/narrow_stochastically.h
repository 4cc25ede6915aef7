// Stochastic narrowing of float and a residual, as ops store their results.
#pragma once

#include <cstdint>

#include "popsr/kernels/loader.h"

/// out = hi + lo (lo may be null), element i with the noise of element first + i.
inline void narrow_stochastically(const popsr::kernels::KernelTable& table, popsr::FloatFormat format,
                                  void* out, const float* hi, const float* lo, std::int64_t n,
                                  popsr::kernels::NoiseKey key, std::uint64_t first) {
  popsr::kernels::SrCall call;
  call.op = lo != nullptr ? popsr::kernels::SrOp::kAdd : popsr::kernels::SrOp::kCast;
  call.residual = true;
  call.rounding.format = format;
  call.rounding.key = key;
  call.rounding.first = first;
  call.out = out;
  call.in[0] = hi;
  call.in[1] = lo;
  call.formats[0] = call.formats[1] = popsr::FloatFormat::kF32;
  call.n = n;
  table.sr_apply(call);
}
