// Transport of bytes between the ranks that run a program together. The core links no communication
// library: whoever makes a session passes an implementation.
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

/// Messages between ranks. All ranks make the same calls in the same order.
class Transport {
 public:
  virtual ~Transport() = default;
  virtual std::int64_t ranks() const = 0;
  virtual std::int64_t rank() const = 0;
  /// Sends and receives messages; returns when all have arrived and the outgoing memory is no longer
  /// needed. Messages from one rank to another arrive in order; sender and receiver agree about the sizes.
  virtual void exchange(std::span<const OutgoingBytes> outgoing, std::span<const IncomingBytes> incoming) = 0;
  /// All-gather: all[r * mine.size() ...] receives the bytes of rank r; `mine` has the same size on all
  /// ranks.
  virtual void gather(std::span<const std::byte> mine, std::byte* all) = 0;
};

}  // namespace popsr
