#include "popsr/sr/strided_range.h"

#include <algorithm>
#include <cstring>

namespace popsr::kernels {

StridedLoop::StridedLoop(const std::vector<std::int64_t>& full_shape,
                         const std::vector<std::vector<std::int64_t>>& full_strides)
    : strides(full_strides.size()) {
  for (std::size_t axis = 0; axis < full_shape.size(); ++axis) {
    n *= full_shape[axis];
    if (full_shape[axis] == 1) continue;
    bool merges = !shape.empty();
    for (std::size_t a = 0; merges && a < strides.size(); ++a) {
      merges = strides[a].back() == full_shape[axis] * full_strides[a][axis];
    }
    if (merges) {
      shape.back() *= full_shape[axis];
    } else {
      shape.push_back(full_shape[axis]);
    }
    for (std::size_t a = 0; a < strides.size(); ++a) {
      if (merges) strides[a].pop_back();
      strides[a].push_back(full_strides[a][axis]);
    }
  }
  if (!shape.empty()) return;
  shape.push_back(1);
  for (std::vector<std::int64_t>& of_array : strides) of_array.push_back(0);
}

bool StridedLoop::contiguous(std::size_t array, std::int64_t element_size) const {
  std::int64_t expected = element_size;
  for (std::size_t axis = shape.size(); axis-- > 0; expected *= shape[axis]) {
    if (shape[axis] > 1 && strides[array][axis] != expected) return false;
  }
  return true;
}

namespace {

template <std::size_t kSize, bool kGather>
void copy_row(std::byte* buffer, std::byte* array, std::int64_t n, std::int64_t stride) {
  if (stride == static_cast<std::int64_t>(kSize)) {
    std::memcpy(kGather ? buffer : array, kGather ? array : buffer, static_cast<std::size_t>(n) * kSize);
    return;
  }
  for (std::int64_t i = 0; i < n; ++i) {
    std::byte* element = array + i * stride;
    std::byte* slot = buffer + i * static_cast<std::int64_t>(kSize);
    std::memcpy(kGather ? slot : element, kGather ? element : slot, kSize);
  }
}

/// Rows along the last axis; the others are an odometer that starts at element `begin`.
template <std::size_t kSize, bool kGather>
void copy_range(std::byte* buffer, std::byte* array, const StridedLoop& loop,
                const std::vector<std::int64_t>& strides, std::int64_t begin, std::int64_t n) {
  const std::size_t last = loop.shape.size() - 1;
  std::vector<std::int64_t> index(loop.shape.size());
  std::int64_t rest = begin;
  for (std::size_t axis = last + 1; axis-- > 0;) {
    index[axis] = rest % loop.shape[axis];
    rest /= loop.shape[axis];
    array += index[axis] * strides[axis];
  }
  while (n > 0) {
    const std::int64_t count = std::min(n, loop.shape[last] - index[last]);
    copy_row<kSize, kGather>(buffer, array, count, strides[last]);
    buffer += count * static_cast<std::int64_t>(kSize);
    n -= count;
    index[last] += count;
    array += count * strides[last];
    for (std::size_t axis = last; axis > 0 && index[axis] == loop.shape[axis]; --axis) {
      array += strides[axis - 1] - loop.shape[axis] * strides[axis];
      index[axis] = 0;
      ++index[axis - 1];
    }
  }
}

template <bool kGather>
void copy_elements(std::byte* buffer, std::byte* array, const StridedLoop& loop,
                   const std::vector<std::int64_t>& strides, std::int64_t element_size, std::int64_t begin,
                   std::int64_t n) {
  switch (element_size) {
    case 1:
      return copy_range<1, kGather>(buffer, array, loop, strides, begin, n);
    case 2:
      return copy_range<2, kGather>(buffer, array, loop, strides, begin, n);
    case 4:
      return copy_range<4, kGather>(buffer, array, loop, strides, begin, n);
    default:
      return copy_range<8, kGather>(buffer, array, loop, strides, begin, n);
  }
}

}  // namespace

void gather_range(std::byte* out, const std::byte* in, const StridedLoop& loop, std::size_t array,
                  std::int64_t element_size, std::int64_t begin, std::int64_t n) {
  copy_elements<true>(out, const_cast<std::byte*>(in), loop, loop.strides[array], element_size, begin, n);
}

void scatter_range(std::byte* out, const std::byte* in, const StridedLoop& loop, std::size_t array,
                   std::int64_t element_size, std::int64_t begin, std::int64_t n) {
  copy_elements<false>(const_cast<std::byte*>(in), out, loop, loop.strides[array], element_size, begin, n);
}

}  // namespace popsr::kernels
