#include "popsr/base/loop_nest.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

namespace popsr {

LoopNest::LoopNest(std::size_t arrays) : width_(arrays + 1), loops_(arrays + 1) { loops_[0] = 1; }

LoopNest::LoopNest(const Shape& shape, std::span<const Shape> strides) : LoopNest(strides.size()) {
  std::vector<std::int64_t> step(strides.size());
  for (std::size_t d = shape.size(); d-- > 0;) {
    for (std::size_t array = 0; array < strides.size(); ++array) step[array] = strides[array][d];
    add_outer(shape[d], step);
  }
}

void LoopNest::add_outer(std::int64_t extent, std::span<const std::int64_t> strides) {
  if (extent == 1) return;
  const std::size_t top = rank_ - 1;
  if (this->extent(top) == 1) {  // the nest of one element
    loops_[top * width_] = extent;
    std::ranges::copy(strides, loops_.begin() + static_cast<std::ptrdiff_t>(top * width_) + 1);
    return;
  }
  bool merges = true;
  for (std::size_t array = 0; array < strides.size(); ++array) {
    merges = merges && strides[array] == stride(top, array) * this->extent(top);
  }
  if (merges) {
    loops_[top * width_] *= extent;
    return;
  }
  loops_.push_back(extent);
  loops_.insert(loops_.end(), strides.begin(), strides.end());
  ++rank_;
}

LoopNest LoopNest::inside(std::int64_t extent, std::span<const std::int64_t> strides) const {
  LoopNest nest(0);
  nest.rank_ = rank_;
  nest.width_ = width_;
  nest.loops_.reserve(loops_.size() + width_);
  nest.loops_ = loops_;
  nest.add_outer(extent, strides);
  return nest;
}

LoopNest LoopNest::outer(std::size_t first) const {
  LoopNest nest(arrays());
  for (std::size_t loop = first; loop < rank_; ++loop) {
    nest.add_outer(extent(loop), {&loops_[loop * width_ + 1], arrays()});
  }
  return nest;
}

std::int64_t LoopNest::count() const {
  std::int64_t elements = 1;
  for (std::size_t loop = 0; loop < rank_; ++loop) elements *= extent(loop);
  return elements;
}

std::int64_t LoopNest::offset(std::int64_t flat, std::size_t array) const {
  std::int64_t sum = 0;
  for (std::size_t loop = 0; loop + 1 < rank_; ++loop) {
    sum += flat % extent(loop) * stride(loop, array);
    flat /= extent(loop);
  }
  return sum + flat * stride(rank_ - 1, array);
}

bool LoopNest::contiguous(std::size_t array, std::int64_t unit) const {
  for (std::size_t loop = 0; loop < rank_; ++loop) {
    if (extent(loop) > 1 && stride(loop, array) != unit) return false;
    unit *= extent(loop);
  }
  return true;
}

void NestPosition::seek(std::int64_t flat) {
  for (std::size_t array = 0; array < nest_.arrays(); ++array) offset_[array] = 0;
  for (std::size_t loop = 0; loop < nest_.rank(); ++loop) {
    const bool outermost = loop + 1 == nest_.rank();
    index_[loop] = outermost ? flat : flat % nest_.extent(loop);
    if (!outermost) flat /= nest_.extent(loop);
    for (std::size_t array = 0; array < nest_.arrays(); ++array) {
      offset_[array] += index_[loop] * nest_.stride(loop, array);
    }
  }
}

void NestPosition::advance(std::int64_t count) {
  for (std::size_t loop = 0; loop < nest_.rank(); ++loop) {
    index_[loop] += count;
    const bool wraps = index_[loop] == nest_.extent(loop);
    const std::int64_t steps = wraps ? count - nest_.extent(loop) : count;
    for (std::size_t array = 0; array < nest_.arrays(); ++array) {
      offset_[array] += steps * nest_.stride(loop, array);
    }
    if (!wraps) return;
    index_[loop] = 0;
    count = 1;
  }
}

void NestPosition::move_to(std::int64_t flat, std::int64_t count) {
  const std::int64_t rows = count / nest_.extent(0);
  if (index_[0] != 0 || rows * nest_.extent(0) != count || index_[1] + rows >= nest_.extent(1)) {
    return seek(flat);
  }
  index_[1] += rows;
  for (std::size_t array = 0; array < nest_.arrays(); ++array) {
    offset_[array] += rows * nest_.stride(1, array);
  }
}

namespace {

template <std::size_t kSize>
void copy_row(std::byte* to, std::int64_t to_step, const std::byte* from, std::int64_t from_step,
              std::int64_t n) {
  constexpr auto kStep = static_cast<std::int64_t>(kSize);
  if (to_step == kStep && from_step == kStep) {
    std::memcpy(to, from, static_cast<std::size_t>(n) * kSize);
    return;
  }
  for (std::int64_t i = 0; i < n; ++i) std::memcpy(to + i * to_step, from + i * from_step, kSize);
}

template <std::size_t kSize>
void copy_rows(const LoopNest& nest, std::byte* to, std::size_t to_array, const std::byte* from,
               std::size_t from_array, std::int64_t begin, std::int64_t n) {
  constexpr auto kStep = static_cast<std::int64_t>(kSize);
  const std::int64_t to_step = to_array == kContiguous ? kStep : nest.stride(0, to_array);
  const std::int64_t from_step = from_array == kContiguous ? kStep : nest.stride(0, from_array);
  NestPosition at(nest, begin);
  for (std::int64_t done = 0; done < n;) {
    const std::int64_t count = std::min(at.left_in_row(), n - done);
    copy_row<kSize>(to + (to_array == kContiguous ? done * kStep : at.offset(to_array)), to_step,
                    from + (from_array == kContiguous ? done * kStep : at.offset(from_array)), from_step,
                    count);
    done += count;
    at.advance(count);
  }
}

/// Calls body with the size as a constant: 1, 2, 4 or 8.
template <class Body>
void with_size(std::int64_t size, const Body& body) {
  if (size == 4) return body(std::integral_constant<std::size_t, 4>{});
  if (size == 8) return body(std::integral_constant<std::size_t, 8>{});
  if (size == 2) return body(std::integral_constant<std::size_t, 2>{});
  body(std::integral_constant<std::size_t, 1>{});
}

}  // namespace

void copy_elements(std::byte* to, std::int64_t to_step, const std::byte* from, std::int64_t from_step,
                   std::int64_t n, std::int64_t size) {
  with_size(size, [&](auto bytes) { copy_row<bytes()>(to, to_step, from, from_step, n); });
}

void copy_range(const LoopNest& nest, std::byte* to, std::size_t to_array, const std::byte* from,
                std::size_t from_array, std::int64_t size, std::int64_t begin, std::int64_t n) {
  with_size(size, [&](auto bytes) { copy_rows<bytes()>(nest, to, to_array, from, from_array, begin, n); });
}

}  // namespace popsr
