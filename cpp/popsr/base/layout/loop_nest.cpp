#include "popsr/base/layout/loop_nest.h"

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
  std::int64_t* const top = loops_.data() + (rank_ - 1) * width_;
  if (top[0] == 1) {  // the nest of one element
    top[0] = extent;
    std::ranges::copy(strides, top + 1);
    return;
  }
  bool merges = true;
  for (std::size_t array = 0; array < strides.size(); ++array) {
    merges = merges && strides[array] == top[1 + array] * top[0];
  }
  if (merges) {
    top[0] *= extent;
    return;
  }
  loops_.grow(++rank_ * width_);
  std::int64_t* const added = loops_.data() + (rank_ - 1) * width_;
  added[0] = extent;
  std::ranges::copy(strides, added + 1);
}

LoopNest LoopNest::outer(std::size_t first) const {
  LoopNest nest(arrays());
  for (std::size_t loop = first; loop < rank_; ++loop) {
    nest.add_outer(extent(loop), {this->loop(loop) + 1, arrays()});
  }
  return nest;
}

std::int64_t LoopNest::count() const {
  std::int64_t elements = 1;
  for (std::size_t loop = 0; loop < rank_; ++loop) elements *= extent(loop);
  return elements;
}

std::int64_t LoopNest::offset_of(std::int64_t flat, std::size_t array) const {
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

std::int64_t NestPosition::rows_ahead(std::int64_t most) const {
  if (index_[0] != 0) return 0;
  return nest_.rank() == 1 ? std::min<std::int64_t>(most, 1) : std::min(most, nest_.extent(1) - index_[1]);
}

void NestPosition::seek(std::int64_t flat) {
  std::int64_t *const index = index_.data(), *const offset = offset_.data();
  const std::size_t arrays = nest_.arrays(), last = nest_.rank() - 1;
  std::fill_n(offset, arrays, std::int64_t{0});
  for (std::size_t number = 0; number <= last; ++number) {
    const std::int64_t* const loop = nest_.loop(number);
    index[number] = number == last ? flat : flat % loop[0];
    if (number != last) flat /= loop[0];
    for (std::size_t array = 0; array < arrays; ++array) offset[array] += index[number] * loop[1 + array];
  }
}

void NestPosition::advance(std::int64_t count, std::size_t number) {
  std::int64_t *const index = index_.data(), *const offset = offset_.data();
  const std::size_t arrays = nest_.arrays();
  for (; number < nest_.rank(); ++number) {
    const std::int64_t* const loop = nest_.loop(number);
    index[number] += count;
    const bool wraps = index[number] == loop[0];
    const std::int64_t steps = wraps ? count - loop[0] : count;
    for (std::size_t array = 0; array < arrays; ++array) offset[array] += steps * loop[1 + array];
    if (!wraps) return;
    index[number] = 0;
    count = 1;
  }
}

void NestPosition::move_to(std::int64_t flat, std::int64_t count) {
  const std::int64_t row = nest_.extent(0), rows = count / row;
  if (nest_.rank() > 1 && rows * row == count && rows_ahead(rows) == rows) return advance(rows, 1);
  seek(flat);
}

namespace {

/// n elements = the one at `from`.
template <std::size_t kSize>
void fill_row(std::byte* to, const std::byte* from, std::int64_t n) {
  using Word =
      std::conditional_t<kSize == 1, std::uint8_t,
                         std::conditional_t<kSize == 2, std::uint16_t,
                                            std::conditional_t<kSize == 4, std::uint32_t, std::uint64_t>>>;
  Word value;
  std::memcpy(&value, from, kSize);
  for (std::int64_t i = 0; i < n; ++i) std::memcpy(to + i * static_cast<std::int64_t>(kSize), &value, kSize);
}

template <std::size_t kSize>
void copy_row(std::byte* to, std::int64_t to_step, const std::byte* from, std::int64_t from_step,
              std::int64_t n) {
  constexpr auto kStep = static_cast<std::int64_t>(kSize);
  if (to_step == kStep && from_step == kStep) {
    std::memcpy(to, from, static_cast<std::size_t>(n) * kSize);
    return;
  }
  if (to_step == kStep && from_step == 0) return fill_row<kSize>(to, from, n);
  for (std::int64_t i = 0; i < n; ++i) std::memcpy(to + i * to_step, from + i * from_step, kSize);
}

/// One side of a copy.
template <class Byte>
struct Side {
  Byte* base;
  std::size_t array;
  std::int64_t step, row_step;  ///< Bytes from one element to the next, and from one row to the next.

  Side(const LoopNest& nest, Byte* element0, std::size_t number, std::int64_t size)
      : base(element0), array(number) {
    const bool contiguous = number == kContiguous;
    step = contiguous ? size : nest.stride(0, number);
    row_step = contiguous ? size * nest.extent(0) : nest.rank() > 1 ? nest.stride(1, number) : 0;
  }
  Byte* at(const NestPosition& position, std::int64_t done) const {
    return base + (array == kContiguous ? done : position.offset(array));
  }
};

template <std::size_t kSize>
void copy_rows(const LoopNest& nest, const Side<std::byte>& to, const Side<const std::byte>& from,
               NestPosition at, std::int64_t n) {
  constexpr auto kStep = static_cast<std::int64_t>(kSize);
  const std::int64_t row = nest.extent(0);
  for (std::int64_t done = 0; done < n;) {
    std::byte* to_row = to.at(at, done * kStep);
    const std::byte* from_row = from.at(at, done * kStep);
    const std::int64_t rows = at.rows_ahead((n - done) / row);
    if (rows == 0) {
      const std::int64_t count = std::min(at.left_in_row(), n - done);
      copy_row<kSize>(to_row, to.step, from_row, from.step, count);
      at.advance(count);
      done += count;
      continue;
    }
    for (std::int64_t i = 0; i < rows; ++i, to_row += to.row_step, from_row += from.row_step) {
      copy_row<kSize>(to_row, to.step, from_row, from.step, row);
    }
    done += rows * row;
    if (done < n) at.advance(nest.rank() > 1 ? rows : row, nest.rank() > 1 ? 1 : 0);
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
                std::size_t from_array, std::int64_t size, const NestPosition& begin, std::int64_t n) {
  const Side<std::byte> writes(nest, to, to_array, size);
  const Side<const std::byte> reads(nest, from, from_array, size);
  with_size(size, [&](auto bytes) { copy_rows<bytes()>(nest, writes, reads, begin, n); });
}

void copy_range(const LoopNest& nest, std::byte* to, std::size_t to_array, const std::byte* from,
                std::size_t from_array, std::int64_t size, std::int64_t begin, std::int64_t n) {
  if (n > 0) copy_range(nest, to, to_array, from, from_array, size, NestPosition(nest, begin), n);
}

}  // namespace popsr
