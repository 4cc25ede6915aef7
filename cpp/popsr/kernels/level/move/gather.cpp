#include "popsr/kernels/level/move/gather.h"

#include <cstddef>

#include "popsr/kernels/contract/kernel_table.h"
#include "popsr/kernels/level/product/matmul_pack-inl.h"

namespace popsr::kernels {
namespace {

constexpr auto kMaxRank = static_cast<int>(kMaxGatherRank);
constexpr std::int64_t kTile = 16;
/// Bytes between addresses that lie in one set of a usual first-level cache. Decides speed only.
constexpr std::int64_t kSharedSets = 4096;

/// A view without size-1 axes and with mergeable neighbours merged; rank >= 1.
struct View {
  int rank = 0;
  std::int64_t shape[kMaxRank] = {};
  std::int64_t strides[kMaxRank] = {};
};

View simplify(int rank, const std::int64_t* shape, const std::int64_t* strides) {
  View view;
  for (int axis = 0; axis < rank; ++axis) {
    if (shape[axis] == 1) continue;
    const int last = view.rank - 1;
    if (last >= 0 && view.strides[last] == shape[axis] * strides[axis]) {
      view.shape[last] *= shape[axis];
      view.strides[last] = strides[axis];
      continue;
    }
    view.shape[view.rank] = shape[axis];
    view.strides[view.rank] = strides[axis];
    ++view.rank;
  }
  if (view.rank == 0) {
    view.rank = 1;
    view.shape[0] = 1;
    view.strides[0] = 1;
  }
  return view;
}

template <class T>
void copy_row(T* out, const T* in, std::int64_t n, std::int64_t stride) {
  if (stride == 1) {
    __builtin_memcpy(out, in, static_cast<std::size_t>(n) * sizeof(T));
  } else if (stride == 0) {
    const T value = in[0];
    for (std::int64_t i = 0; i < n; ++i) out[i] = value;
  } else {
    for (std::int64_t i = 0; i < n; ++i) out[i] = in[i * stride];
  }
}

/// out[y][x] = in[y + x * stride] from i[0] and j[0] on, up to i[1] and j[1].
template <class T>
void transpose_tile(T* out, const T* in, std::int64_t columns, std::int64_t stride,
                    const std::int64_t (&i)[2], const std::int64_t (&j)[2]) {
  std::int64_t y = i[0];
  if constexpr (sizeof(T) == 4) {
    using Block = Block4<T>;
    const std::int64_t whole = j[0] + (j[1] - j[0]) / 4 * 4;
    for (; y + 4 <= i[1]; y += 4) {
      for (std::int64_t x = j[0]; x < whole; x += 4) {
        typename Block::V block[4];
        load_transposed4(in + y + x * stride, stride, block);
        for (int q = 0; q < 4; ++q)
          *reinterpret_cast<typename Block::Unaligned*>(out + (y + q) * columns + x) = block[q];
      }
      for (std::int64_t x = whole; x < j[1]; ++x)
        for (int q = 0; q < 4; ++q) out[(y + q) * columns + x] = in[y + q + x * stride];
    }
  }
  for (; y < i[1]; ++y)
    for (std::int64_t x = j[0]; x < j[1]; ++x) out[y * columns + x] = in[y + x * stride];
}

/// out[i][j] = in[i + j * stride]: square tiles, so that both sides use whole cache lines. Where rows of
/// `out` share sets of the caches, some of them are finished before the next ones.
template <class T>
void transpose(T* out, const T* in, std::int64_t rows, std::int64_t columns, std::int64_t stride) {
  const auto tile = [&](std::int64_t i, std::int64_t j) {
    transpose_tile(out, in, columns, stride, {i, i + kTile < rows ? i + kTile : rows},
                   {j, j + kTile < columns ? j + kTile : columns});
  };
  if (columns * static_cast<std::int64_t>(sizeof(T)) % kSharedSets == 0) {
    for (std::int64_t i = 0; i < rows; i += kTile)
      for (std::int64_t j = 0; j < columns; j += kTile) tile(i, j);
  } else {
    for (std::int64_t j = 0; j < columns; j += kTile)
      for (std::int64_t i = 0; i < rows; i += kTile) tile(i, j);
  }
}

/// The innermost axes: one row, or a transposed matrix where the last axis but one has stride 1.
template <class T>
void copy_inner(T* out, const T* in, const View& view, bool transposed) {
  const int last = view.rank - 1;
  if (transposed) {
    transpose(out, in, view.shape[last - 1], view.shape[last], view.strides[last]);
  } else {
    copy_row(out, in, view.shape[last], view.strides[last]);
  }
}

template <class T>
void gather(T* out, const T* in, const View& view) {
  const int last = view.rank - 1;
  const bool transposed = last >= 1 && view.strides[last - 1] == 1 && view.strides[last] != 0;
  const int outer = transposed ? last - 1 : last;
  const std::int64_t inner_size = view.shape[last] * (transposed ? view.shape[last - 1] : 1);
  std::int64_t index[kMaxRank] = {};
  std::int64_t offset = 0;  // An odometer over the outer axes.
  for (;;) {
    copy_inner(out, in + offset, view, transposed);
    out += inner_size;
    int axis = outer - 1;
    for (; axis >= 0; --axis) {
      offset += view.strides[axis];
      if (++index[axis] < view.shape[axis]) break;
      offset -= view.strides[axis] * view.shape[axis];
      index[axis] = 0;
    }
    if (axis < 0) return;
  }
}

}  // namespace

void gather_strided(void* out, const void* in, int rank, const std::int64_t* shape,
                    const std::int64_t* strides, int element_size) {
  for (int axis = 0; axis < rank; ++axis) {
    if (shape[axis] == 0) return;
  }
  const View view = simplify(rank, shape, strides);
  switch (element_size) {
    case 1:
      return gather(static_cast<std::uint8_t*>(out), static_cast<const std::uint8_t*>(in), view);
    case 2:
      return gather(static_cast<std::uint16_t*>(out), static_cast<const std::uint16_t*>(in), view);
    case 4:
      return gather(static_cast<std::uint32_t*>(out), static_cast<const std::uint32_t*>(in), view);
    default:
      return gather(static_cast<std::uint64_t*>(out), static_cast<const std::uint64_t*>(in), view);
  }
}

}  // namespace popsr::kernels
