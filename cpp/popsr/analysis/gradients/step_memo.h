// Results of ops on shares that were found lately. Layers repeat: most ops that take gradients do to the same
// shares the same as others did.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "popsr/ir/op_def.h"
#include "popsr/replica/partition.h"

namespace popsr {

/// A few results by key; of keys that share a place the last one stays.
template <class Key, class Value>
class Recent {
 public:
  /// Null if it is not there, or not any more. Valid until the next put().
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

inline constexpr std::uint64_t kHashFactor = 0x9E3779B97F4A7C15ULL;

/// All that the share of a collective's result follows from.
struct CollectiveStep {
  const OpDef* def = nullptr;
  std::uint64_t groups = 0;  ///< ReplicaGrouping::identity().
  std::uint32_t share = 0;
  PartitionId exec = {};
  std::uint32_t how = 0;        ///< Its operation, if it has one.
  std::uint32_t gradients = 0;  ///< 1 in a gradient graph.
  bool operator==(const CollectiveStep&) const = default;
  std::uint64_t hash() const {
    const std::uint64_t first = (reinterpret_cast<std::uintptr_t>(def) ^ groups << 7) * kHashFactor;
    return (first ^ first >> 29 ^ std::uint64_t{share} << 8 ^ std::uint64_t{exec.value} << 20 ^ how << 1 ^
            std::uint64_t{gradients}) *
           kHashFactor;
  }
};

/// The same of ops that each replica does alone, whose results are equal where their inputs are.
struct LocalStep {
  /// As large as the other members: a key without gaps is copied at once.
  enum class Kind : std::uint32_t { kSum, kInGradients, kLinear, kOther };

  std::uint32_t share = 0;  ///< The sum of the shares.
  std::uint32_t with = 0;   ///< The meet of the facts of what is not a gradient; of a sum, the other share.
  PartitionId exec = {};
  Kind kind = Kind::kSum;
  bool operator==(const LocalStep&) const = default;
  std::uint64_t hash() const {
    return (std::uint64_t{share} << 32 ^ std::uint64_t{with} << 10 ^ std::uint64_t{exec.value} << 22 ^
            static_cast<std::uint64_t>(kind)) *
           kHashFactor;
  }
};

}  // namespace popsr
