// Bytes and messages between the ranks that run a program together.
#pragma once

#include <cstddef>
#include <cstdint>

namespace popsr {

/// Of one rank.
struct Traffic {
  std::uint64_t sent_bytes = 0, sent_messages = 0;
  std::uint64_t received_bytes = 0, received_messages = 0;

  Traffic& operator+=(const Traffic& more) {
    sent_bytes += more.sent_bytes;
    sent_messages += more.sent_messages;
    received_bytes += more.received_bytes;
    received_messages += more.received_messages;
    return *this;
  }
  bool operator==(const Traffic&) const = default;
};

/// Of each rank that gives all others so many bytes, as one message to each.
constexpr Traffic gathered_traffic(std::size_t bytes, std::int64_t ranks) {
  const auto others = bytes == 0 ? 0 : static_cast<std::uint64_t>(ranks - 1);
  return {others * bytes, others, others * bytes, others};
}

/// Bytes that a rank can give with its word that it makes a call: few in all, as every call has room for
/// them.
constexpr std::size_t max_payload(std::int64_t ranks) {
  return (std::size_t{1} << 12) / static_cast<std::size_t>(ranks);
}

/// Longer values are sent as several messages: counts of MPI are 32-bit integers, and libraries keep copies
/// of messages that they send early.
inline constexpr std::size_t kMessageBytes = std::size_t{1} << 24;

/// Messages of a value of so many bytes.
constexpr std::uint64_t messages_of(std::size_t bytes, std::size_t message_bytes) {
  return (bytes + message_bytes - 1) / message_bytes;
}

}  // namespace popsr
