// Growing array whose elements never move.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

namespace popsr {

/// Array whose references stay valid while it grows, like std::deque. The blocks of std::deque hold only
/// two or three big elements; here neighbours are adjacent in memory.
template <class T>
class StableVector {
 public:
  std::size_t size() const { return size_; }
  T& operator[](std::size_t i) { return blocks_[i / kBlock][i % kBlock]; }
  const T& operator[](std::size_t i) const { return blocks_[i / kBlock][i % kBlock]; }
  T& back() { return (*this)[size_ - 1]; }
  void push_back(T value) {
    if (size_ == blocks_.size() * kBlock) {
      std::vector<T> block;
      block.reserve(kBlock);
      blocks_.push_back(std::move(block));
    }
    blocks_.back().push_back(std::move(value));
    ++size_;
  }
  /// Drops the last elements, so that `size` are left.
  void truncate(std::size_t size) noexcept {
    for (; size_ > size; --size_) {
      blocks_.back().pop_back();
      if (blocks_.back().empty()) blocks_.pop_back();
    }
  }

 private:
  static constexpr std::size_t kBlock = 512;
  std::vector<std::vector<T>> blocks_;
  std::size_t size_ = 0;
};

}  // namespace popsr
