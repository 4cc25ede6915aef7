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

/// Arithmetic type of a dtype, as an index into the kernel table.
kernels::Compute compute_of(DType dtype);
/// Bytes of one element of a compute type.
std::size_t size_of(kernels::Compute compute);

/// Bytes rounded up to whole cache lines, at which arrays in scratch memory begin.
template <std::integral Bytes>
constexpr Bytes whole_lines(Bytes bytes) {
  return (bytes + 63) / 64 * 64;
}

/// Compute type of float or double.
template <class T>
constexpr kernels::Compute kComputeOf = sizeof(T) == 4 ? kernels::Compute::kF32 : kernels::Compute::kF64;

/// Loads n elements of `dtype` to dst, converted to the compute type as `cast` does. Any n.
void load_tile(const kernels::KernelTable& kernels, DType dtype, kernels::Compute compute, void* dst,
               const std::byte* src, std::int64_t n);
/// Elements of a float dtype as numbers of T: in place if they have that type, otherwise widened into `room`.
template <class T>
const T* widened(const kernels::KernelTable& kernels, DType dtype, const std::byte* src, std::int64_t n,
                 T* room) {
  if (!is_narrow_float(dtype)) return reinterpret_cast<const T*>(src);
  load_tile(kernels, dtype, kComputeOf<T>, room, src, n);
  return room;
}
/// Overload whose room grows as needed.
template <class T>
const T* widened(const kernels::KernelTable& kernels, DType dtype, const std::byte* src, std::int64_t n,
                 std::vector<T>& room) {
  if (is_narrow_float(dtype)) room.resize(static_cast<std::size_t>(n));
  return widened(kernels, dtype, src, n, room.data());
}
/// Stores n elements of `dtype`, hi + lo (`lo` may be null; read for narrow floats only). Narrow floats are
/// rounded once: with the noise of elements first, first+1, ... under `key`, or to nearest even if it is
/// null. Any n. A wide dtype equal to the compute type is copied, unless dst is hi.
void store_tile(const kernels::KernelTable& kernels, kernels::Compute compute, DType dtype, std::byte* dst,
                const void* hi, const float* lo, std::int64_t n, const kernels::NoiseKey* key,
                std::uint64_t first);
/// Reads one element of any dtype as a double.
double read_scalar(const kernels::KernelTable& kernels, DType dtype, const std::byte* src);

/// Repeats the first element: tile[1 .. n-1] = tile[0], elements of `size` bytes.
inline void repeat_first(std::byte* tile, std::int64_t size, std::int64_t n) {
  for (std::int64_t done = 1; done < n; done *= 2) {
    std::memcpy(tile + done * size, tile, static_cast<std::size_t>(std::min(done, n - done) * size));
  }
}

}  // namespace popsr
