// Digests of bytes, to compare the data of several processes. They detect mistakes, not attacks.
#pragma once

#include <array>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

namespace popsr {

/// Bijection that scatters consecutive numbers (D. Stafford's Mix13).
constexpr std::uint64_t scatter(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

/// Digest of 128 bits of a sequence of bytes, the same on all processors of one byte order.
class Digest {
 public:
  using Value = std::array<std::uint64_t, 2>;

  Digest& add(std::span<const std::byte> bytes) {
    word(bytes.size());
    std::size_t at = 0;
    for (; at + sizeof(std::uint64_t) <= bytes.size(); at += sizeof(std::uint64_t)) {
      std::uint64_t next;
      std::memcpy(&next, bytes.data() + at, sizeof(next));
      word(next);
    }
    std::uint64_t rest = 0;
    if (at < bytes.size()) std::memcpy(&rest, bytes.data() + at, bytes.size() - at);
    word(rest);
    return *this;
  }
  Digest& add(std::string_view text) { return add(std::as_bytes(std::span(text))); }
  Digest& add(std::integral auto number) {
    word(static_cast<std::uint64_t>(number));
    return *this;
  }
  Value value() const { return {scatter(state_[0]), scatter(state_[1])}; }

 private:
  void word(std::uint64_t next) {
    state_[0] = std::rotl((state_[0] ^ next) * 0x9E3779B97F4A7C15ULL, 29);
    state_[1] = (std::rotl(state_[1], 31) + next) * 0xD6E8FEB86659FD93ULL;
  }

  Value state_ = {0x243F6A8885A308D3ULL, 0x13198A2E03707344ULL};
};

}  // namespace popsr
