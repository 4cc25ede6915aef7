// Copy-on-write array: a copy costs a pointer for each chunk, a write after it the copy of one chunk.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <vector>

namespace popsr {

/// Copy-on-write vector. Copies must not be written by several threads at a time.
template <class T>
class SharedVector {
 public:
  SharedVector() = default;
  SharedVector(std::size_t size, const T& value) { grow(size, value); }

  std::size_t size() const { return size_; }
  const T& operator[](std::size_t i) const { return (*chunks_[i / kChunk])[i % kChunk]; }

  void set(std::size_t i, const T& value) {
    std::shared_ptr<Chunk>& chunk = chunks_[i / kChunk];
    if (chunk.use_count() > 1) chunk = std::make_shared<Chunk>(*chunk);
    (*chunk)[i % kChunk] = value;
  }

  /// Grows to `size`, which is not less than before, with copies of `value`.
  void grow(std::size_t size, const T& value) {
    std::size_t at = size_;
    for (; at < size && at % kChunk != 0; ++at) {
      if (at < chunks_.size() * kChunk) set(at, value);
    }
    for (; at < size; at += kChunk) {
      chunks_.push_back(std::make_shared<Chunk>());
      chunks_.back()->fill(value);
    }
    size_ = size;
  }

 private:
  static constexpr std::size_t kChunk = 1024;
  using Chunk = std::array<T, kChunk>;
  std::vector<std::shared_ptr<Chunk>> chunks_;
  std::size_t size_ = 0;
};

}  // namespace popsr
