// Tiles: conversion between stored dtypes and compute types.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "popsr/base/cost.h"
#include "popsr/base/dtype.h"
#include "popsr/kernels/contract/kernel_table.h"

namespace popsr {

/// The arithmetic type of a dtype, as an index into the kernel table.
kernels::Compute compute_of(DType dtype);
/// Bytes of one element of a compute type.
std::size_t size_of(kernels::Compute compute);

/// Bytes, rounded up to whole cache lines: arrays in scratch memory begin at one.
template <std::integral Bytes>
constexpr Bytes whole_lines(Bytes bytes) {
  return (bytes + 63) / 64 * 64;
}

/// The compute type of float or double.
template <class T>
constexpr kernels::Compute kComputeOf = sizeof(T) == 4 ? kernels::Compute::kF32 : kernels::Compute::kF64;

/// dst (of the compute type) = n elements of `dtype`, converted as `cast` does. Any n.
void load_tile(const kernels::KernelTable& kernels, DType dtype, kernels::Compute compute, void* dst,
               const std::byte* src, std::int64_t n);
/// n elements of a float dtype as numbers of T: where they are, or widened into `room`.
template <class T>
const T* widened(const kernels::KernelTable& kernels, DType dtype, const std::byte* src, std::int64_t n,
                 T* room) {
  if (!is_narrow_float(dtype)) return reinterpret_cast<const T*>(src);
  load_tile(kernels, dtype, kComputeOf<T>, room, src, n);
  return room;
}
/// The same with room that grows.
template <class T>
const T* widened(const kernels::KernelTable& kernels, DType dtype, const std::byte* src, std::int64_t n,
                 std::vector<T>& room) {
  if (is_narrow_float(dtype)) room.resize(static_cast<std::size_t>(n));
  return widened(kernels, dtype, src, n, room.data());
}
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

}  // namespace popsr
