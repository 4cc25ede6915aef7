// Initial values of variables and constants.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace popsr {

/// Bytes that never change: our own, or a caller's memory that `owner` keeps alive (a mapped file is not
/// copied).
class HostBytes {
 public:
  explicit HostBytes(std::vector<std::byte> bytes) {
    auto owned = std::make_shared<const std::vector<std::byte>>(std::move(bytes));
    bytes_ = *owned;
    owner_ = std::move(owned);
  }
  HostBytes(std::shared_ptr<const void> owner, std::span<const std::byte> bytes)
      : owner_(std::move(owner)), bytes_(bytes) {}

  const std::byte* data() const { return bytes_.data(); }
  std::size_t size() const { return bytes_.size(); }

 private:
  std::shared_ptr<const void> owner_;
  std::span<const std::byte> bytes_;
};

}  // namespace popsr
