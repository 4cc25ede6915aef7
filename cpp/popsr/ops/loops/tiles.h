// Tiles: conversion between stored dtypes and compute types, and the fixed split of work among threads.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "popsr/ir/eval.h"
#include "popsr/kernels/contract/kernel_table.h"

namespace popsr {

inline constexpr std::int64_t kTile = 1024;               ///< Elements of a tile.
inline constexpr std::int64_t kParallelElements = 32768;  ///< Smaller work runs on the calling thread.

/// The arithmetic type of a dtype, as an index into the kernel table.
kernels::Compute compute_of(DType dtype);
/// Bytes of one element of a compute type.
std::size_t size_of(kernels::Compute compute);

/// dst (of the compute type) = n elements of `dtype`, converted as `cast` does. Any n.
void load_tile(const kernels::KernelTable& kernels, DType dtype, kernels::Compute compute, void* dst,
               const std::byte* src, std::int64_t n);
/// n elements of `dtype` = hi + lo (`lo` may be null; read for narrow floats only). Narrow floats are rounded
/// once: with the noise of elements first, first+1, ... under `key`, to nearest even when it is null. Any n.
/// A wide dtype equal to the compute type is copied, unless dst is hi.
void store_tile(const kernels::KernelTable& kernels, kernels::Compute compute, DType dtype, std::byte* dst,
                const void* hi, const float* lo, std::int64_t n, const kernels::NoiseKey* key,
                std::uint64_t first);
/// One element of any dtype as a double.
double read_scalar(const kernels::KernelTable& kernels, DType dtype, const std::byte* src);

/// tile[1 .. n-1] = tile[0], elements of `size` bytes.
inline void repeat_first(std::byte* tile, std::int64_t size, std::int64_t n) {
  for (std::int64_t done = 1; done < n; done *= 2) {
    std::memcpy(tile + done * size, tile, static_cast<std::size_t>(std::min(done, n - done) * size));
  }
}

/// n elements of `size` bytes from `from`, `from_step` bytes apart, to `to`.
inline void copy_elements(std::byte* to, std::int64_t to_step, const std::byte* from, std::int64_t from_step,
                          std::int64_t n, std::int64_t size) {
  const auto copy = [&]<std::size_t kSize>(std::integral_constant<std::size_t, kSize>) {
    for (std::int64_t i = 0; i < n; ++i) std::memcpy(to + i * to_step, from + i * from_step, kSize);
  };
  if (size == 8) return copy(std::integral_constant<std::size_t, 8>{});
  if (size == 4) return copy(std::integral_constant<std::size_t, 4>{});
  if (size == 2) return copy(std::integral_constant<std::size_t, 2>{});
  copy(std::integral_constant<std::size_t, 1>{});
}

/// The key of the output's block, or null when `stochastic` is false.
inline const kernels::NoiseKey* noise_key(const BlockRun& run, bool stochastic, std::size_t output,
                                          std::int64_t block) {
  return stochastic ? &run.noise[output][block] : nullptr;
}

/// Calls body(begin, end) on fixed parts of [0, total), cut at multiples of `grain`; on the calling thread
/// alone when `elements`, the size of the whole work, is small.
template <class Body>
void parallel_for(ThreadPool& pool, std::int64_t total, std::int64_t grain, std::int64_t elements,
                  const Body& body) {
  const std::int64_t pieces = (total + grain - 1) / grain;
  const std::int64_t parts =
      elements < kParallelElements ? 1 : std::min<std::int64_t>(pool.threads(), pieces);
  if (parts <= 1) {
    if (total > 0) body(std::int64_t{0}, total);
    return;
  }
  pool.run(static_cast<int>(parts), [&](int part) {
    const std::int64_t begin = pieces * part / parts * grain;
    const std::int64_t end = std::min(total, pieces * (part + 1) / parts * grain);
    if (begin < end) body(begin, end);
  });
}

/// Output = the bytes of one input, which has as many.
BlockKernel copy_kernel(const EvalSpec& spec, std::size_t input = 0, std::size_t output = 0);

}  // namespace popsr
