// Short list of plain values, stored in place: for the operands of an op, of which a program has very many.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <type_traits>
#include <utility>

namespace popsr {

/// Vector like std::vector, but up to N elements need no heap memory.
template <class T, std::uint32_t N>
requires std::is_trivially_copyable_v<T>
class SmallVector {
 public:
  using value_type = T;
  using iterator = T*;
  using const_iterator = const T*;

  SmallVector() = default;
  SmallVector(std::initializer_list<T> values) : SmallVector(values.begin(), values.end()) {}
  template <std::input_iterator It>
  SmallVector(It first, It last) {
    append(first, last);
  }
  SmallVector(const SmallVector& other) : SmallVector(other.begin(), other.end()) {}
  SmallVector(SmallVector&& other) noexcept
      : size_(std::exchange(other.size_, 0)),
        room_(std::exchange(other.room_, N)),
        few_(other.few_),
        more_(std::move(other.more_)) {}
  SmallVector& operator=(const SmallVector& other) {
    if (this != &other) *this = SmallVector(other);
    return *this;
  }
  SmallVector& operator=(SmallVector&& other) noexcept {
    if (this == &other) return *this;
    size_ = std::exchange(other.size_, 0);
    room_ = std::exchange(other.room_, N);
    few_ = other.few_;
    more_ = std::move(other.more_);
    return *this;
  }
  ~SmallVector() = default;

  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T* data() { return more_ ? more_.get() : few_.data(); }
  const T* data() const { return more_ ? more_.get() : few_.data(); }
  T* begin() { return data(); }
  T* end() { return data() + size_; }
  const T* begin() const { return data(); }
  const T* end() const { return data() + size_; }
  T& operator[](std::size_t i) { return data()[i]; }
  const T& operator[](std::size_t i) const { return data()[i]; }
  T& front() { return *data(); }
  const T& front() const { return *data(); }
  T& back() { return data()[size_ - 1]; }
  const T& back() const { return data()[size_ - 1]; }

  void push_back(T value) {
    reserve(size_ + 1);
    data()[size_++] = value;
  }
  template <std::input_iterator It>
  void append(It first, It last) {
    if constexpr (std::forward_iterator<It>)
      reserve(size_ + static_cast<std::size_t>(std::distance(first, last)));
    for (; first != last; ++first) push_back(*first);
  }
  void assign(std::size_t count, T value) {
    size_ = 0;
    reserve(count);
    std::fill_n(data(), count, value);
    size_ = static_cast<std::uint32_t>(count);
  }
  void resize(std::size_t count) {
    reserve(count);
    if (count > size_) std::fill(end(), data() + count, T{});
    size_ = static_cast<std::uint32_t>(count);
  }
  void reserve(std::size_t count) {
    if (count <= room_) return;
    const std::size_t room = std::max(count, std::size_t{2} * room_);
    auto moved = std::make_unique<T[]>(room);
    std::copy(begin(), end(), moved.get());
    more_ = std::move(moved);
    room_ = static_cast<std::uint32_t>(room);
  }
  void clear() { size_ = 0; }

  friend bool operator==(const SmallVector& a, const SmallVector& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
  }

 private:
  std::uint32_t size_ = 0;
  std::uint32_t room_ = N;
  std::array<T, N> few_ = {};
  std::unique_ptr<T[]> more_;  ///< Memory of all elements, if there are more than N.
};

}  // namespace popsr
