// Convolution kernels: the kernel table by element type, scratch, and the split of work.
#pragma once

#include <algorithm>

#include "popsr/base/cost.h"
#include "popsr/base/threads/thread_pool.h"
#include "popsr/ops/loops/blocks.h"
#include "popsr/ops/loops/tiles.h"

namespace popsr {

/// True if elements of that dtype are numbers of T.
template <class T>
bool has_type(DType dtype) {
  return dtype == (sizeof(T) == 4 ? DType::kFloat32 : DType::kFloat64);
}

template <class T>
void convolve(const kernels::KernelTable& table, const kernels::ConvArgs& args) {
  (sizeof(T) == 4 ? table.conv_f32 : table.conv_f64)(args);
}

template <class T>
void convolve_lines(const kernels::KernelTable& table, const kernels::ConvLinesArgs& args) {
  (sizeof(T) == 4 ? table.conv_lines_f32 : table.conv_lines_f64)(args);
}

template <class T>
void convolve_plane(const kernels::KernelTable& table, const kernels::ConvPlaneArgs& args) {
  (sizeof(T) == 4 ? table.conv_plane_f32 : table.conv_plane_f64)(args);
}

/// Packs to[k*width + x] = from[k*from_k + x*from_x].
template <class T>
void pack(const kernels::KernelTable& table, T* to, std::int64_t width, const T* from, std::int64_t from_k,
          std::int64_t from_x, std::int64_t k) {
  (sizeof(T) == 4 ? table.pack_f32 : table.pack_f64)(to, width, from, from_k, from_x, k, width);
}

template <class T>
void widen(const kernels::KernelTable& table, DType dtype, T* to, const std::byte* from, std::int64_t n) {
  load_tile(table, dtype, kComputeOf<T>, to, from, n);
}

/// Number of elements rounded up to whole cache lines.
template <class T>
std::int64_t padded(std::int64_t elements) {
  constexpr auto kLine = static_cast<std::int64_t>(64 / sizeof(T));
  return (elements + kLine - 1) / kLine * kLine;
}

template <class T>
T* scratch(std::int64_t elements) {
  return static_cast<T*>(
      thread_scratch(static_cast<std::size_t>(std::max<std::int64_t>(elements, 1)) * sizeof(T)));
}

/// Tiles of rows as kernels::ConvArgs counts them.
struct RowTiles {
  std::int64_t rows, tiles;

  RowTiles(const kernels::KernelTable& table, std::int64_t rows)
      : rows(rows), tiles((rows + table.conv_rows - 1) / table.conv_rows) {}
  std::int64_t first(std::int64_t tile) const { return rows * tile / tiles; }
  std::int64_t size(std::int64_t tile) const { return first(tile + 1) - first(tile); }
};

/// Calls body(begin, end, own) on fixed parts of [0, units). `work`: multiply-adds, or as many copied
/// elements. `own` is scratch of `elements` elements of the thread; on the calling thread it is `mine`.
template <class T, class Body>
void split_work(ThreadPool& pool, std::int64_t units, std::int64_t work, T* mine, std::int64_t elements,
                const Body& body) {
  const std::int64_t parts = threads_for(kProductWork, work, units, pool.threads());
  const PartScratch rooms(mine);
  const std::size_t bytes = static_cast<std::size_t>(std::max<std::int64_t>(elements, 1)) * sizeof(T);
  pool.run(static_cast<int>(parts), [&](int part) {
    const std::int64_t begin = units * part / parts, end = units * (part + 1) / parts;
    if (begin < end) body(begin, end, static_cast<T*>(rooms.of_thread(bytes)));
  });
}

}  // namespace popsr
