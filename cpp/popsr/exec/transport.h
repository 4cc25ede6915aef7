// Bytes between the ranks that run a program together. The core knows no library that moves them: whoever
// makes a session gives it one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace popsr {

struct OutgoingBytes {
  std::int64_t rank = 0;
  const std::byte* data = nullptr;
  std::size_t size = 0;
};
struct IncomingBytes {
  std::int64_t rank = 0;
  std::byte* data = nullptr;
  std::size_t size = 0;
};

/// All ranks make the same calls in the same order.
class Transport {
 public:
  virtual ~Transport() = default;
  virtual std::int64_t ranks() const = 0;
  virtual std::int64_t rank() const = 0;
  /// Returns when all messages have arrived and none of the outgoing memory is needed any more. Messages from
  /// one rank to another arrive in their order; sender and receiver agree about their sizes.
  virtual void exchange(std::span<const OutgoingBytes> outgoing, std::span<const IncomingBytes> incoming) = 0;
  /// all[r * mine.size() ...] = what rank r gave, of as many bytes.
  virtual void gather(std::span<const std::byte> mine, std::byte* all) = 0;
};

}  // namespace popsr
