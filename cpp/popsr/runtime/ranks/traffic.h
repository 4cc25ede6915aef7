// Bytes and messages between the ranks that run a program together.
#pragma once

#include <cstddef>
#include <cstdint>

namespace popsr {

/// Messages and bytes that one rank sent and received.
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

/// Traffic per rank of an all-gather of `bytes` bytes: one message to each other rank.
constexpr Traffic gathered_traffic(std::size_t bytes, std::int64_t ranks) {
  const auto others = bytes == 0 ? 0 : static_cast<std::uint64_t>(ranks - 1);
  return {others * bytes, others, others * bytes, others};
}

/// Bytes of payload that a rank may send with an agreement (RankLink::agree). The total over all ranks is
/// small, since every agreement carries room for it.
constexpr std::size_t max_payload(std::int64_t ranks) {
  return (std::size_t{1} << 12) / static_cast<std::size_t>(ranks);
}

/// Largest message; longer values are sent as several messages. Counts of MPI are 32-bit integers, and
/// libraries keep copies of messages that they send early.
inline constexpr std::size_t kMessageBytes = std::size_t{1} << 24;

/// Number of messages for a value of `bytes` bytes.
constexpr std::uint64_t messages_of(std::size_t bytes, std::size_t message_bytes) {
  return (bytes + message_bytes - 1) / message_bytes;
}

}  // namespace popsr
