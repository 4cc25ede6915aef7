// Initial values of variables and constants.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace popsr {

/// Bytes that popsr never changes: owned ones, or a caller's memory that `owner` keeps alive (a mapped file
/// is not copied).
class HostBytes {
 public:
  explicit HostBytes(std::vector<std::byte> bytes) {
    auto owned = std::make_shared<const std::vector<std::byte>>(std::move(bytes));
    bytes_ = *owned;
    owner_ = std::move(owned);
  }
  HostBytes(std::shared_ptr<const void> owner, std::span<const std::byte> bytes, bool may_change = false)
      : owner_(std::move(owner)), bytes_(bytes), may_change_(may_change) {}

  const std::byte* data() const { return bytes_.data(); }
  std::size_t size() const { return bytes_.size(); }
  /// True for a mapped file, which its owner may write to.
  bool may_change() const { return may_change_; }

 private:
  std::shared_ptr<const void> owner_;
  std::span<const std::byte> bytes_;
  bool may_change_ = false;
};

}  // namespace popsr
