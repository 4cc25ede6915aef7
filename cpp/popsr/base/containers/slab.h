// Aligned memory with one owner.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace popsr {

/// Memory aligned to kAlignment bytes. Large slabs use large pages if the system has them, and take
/// memory page by page as they are written.
class Slab {
 public:
  static constexpr std::size_t kAlignment = 64;
  enum class Fill : std::uint8_t { kZeros, kNone };

  explicit Slab(std::size_t bytes, Fill fill = Fill::kZeros);
  std::byte* data() const { return data_.get(); }
  std::size_t size() const { return size_; }

 private:
  struct Free {
    std::size_t bytes = 0;
    void operator()(std::byte* data) const;
  };
  std::size_t size_ = 0;
  std::unique_ptr<std::byte, Free> data_;
};

}  // namespace popsr
