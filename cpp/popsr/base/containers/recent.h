// Cache of recent results, for passes that ask the same few questions again and again.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace popsr {

/// Factor of multiplicative hashes: the high bits of a product with it depend on all bits of the other
/// factor.
inline constexpr std::uint64_t kHashFactor = 0x9E3779B97F4A7C15ULL;

/// Direct-mapped cache: keys that share a slot evict each other.
template <class Key, class Value>
class Recent {
 public:
  /// Cached value; null if it is not there. Valid until the next put().
  const Value* find(const Key& key) const {
    const Entry& entry = entries_[key.hash() >> (64 - kBits)];
    return entry.used && entry.key == key ? &entry.value : nullptr;
  }
  void put(const Key& key, const Value& value) { entries_[key.hash() >> (64 - kBits)] = {key, value, true}; }
  void clear() { entries_ = {}; }

 private:
  static constexpr int kBits = 7;
  struct Entry {
    Key key = {};
    Value value = {};
    bool used = false;
  };
  std::array<Entry, std::size_t{1} << kBits> entries_ = {};
};

}  // namespace popsr
