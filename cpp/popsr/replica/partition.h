// Replica partitions: which replicas hold bitwise the same value. The one representation of that fact.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "popsr/base/id.h"

namespace popsr {

using Replica = std::uint32_t;

/// Tag of the number of an interned partition, see PartitionTable.
struct PartitionTag {
  static constexpr std::uint32_t kDefault = 0;  ///< Default id: equal everywhere.
};
using PartitionId = Id<PartitionTag>;

/// Cache key for a function of a partition and of groups of replicas.
struct RuleKey {
  std::uint64_t rule = 0;    ///< Function, by its address; 0: the partition itself.
  std::uint64_t groups = 0;  ///< Groups, by ReplicaGrouping::identity().
  std::int64_t parameter = 0;
  PartitionId in = {};
  bool operator==(const RuleKey&) const = default;
};

/// Interner of the partitions of {0..N-1}: each distinct partition exists once, so == is an integer compare.
/// Not thread safe; one table per Ir.
///
/// Lattice order: P refines Q iff each block of P lies in a block of Q. top() is one block, bottom()
/// singletons. meet = common refinement (a value made of several inputs); join = transitive closure of the
/// union (seeds only).
class PartitionTable {
 public:
  /// Makes a table for that many replicas. Throws ReplicaError unless replicas >= 1.
  explicit PartitionTable(std::int64_t replicas);

  std::int64_t replicas() const { return replicas_; }
  PartitionId top() const { return {}; }
  PartitionId bottom() const { return bottom_; }

  /// Partition that groups replicas of equal key; any key values. keys.size() must be replicas().
  PartitionId from_keys(std::span<const std::uint64_t> keys);

  /// Block of each replica, numbered by first appearance.
  std::span<const std::uint32_t> labels(PartitionId id) const { return entries_[id].labels; }
  std::int64_t num_blocks(PartitionId id) const { return entries_[id].num_blocks; }
  /// Smallest replica of each block, ascending.
  std::span<const Replica> representatives(PartitionId id) const { return entries_[id].representatives; }

  PartitionId meet(PartitionId a, PartitionId b) {
    if (a == b || b == top()) return a;
    if (a == top()) return b;
    if (a == bottom_ || b == bottom_) return bottom_;
    return meet_of_others(a, b);
  }
  PartitionId join(PartitionId a, PartitionId b);
  bool refines(PartitionId fine, PartitionId coarse) const;

  /// Returns the cached result of `make` for this key, so that rules that take O(replicas) run once per
  /// key. `keep_alive` owns the objects that the key refers to by address.
  template <class Make>
  PartitionId remember(const RuleKey& key, const std::shared_ptr<const void>& keep_alive, Make&& make) {
    if (const auto it = remembered_.find(key); it != remembered_.end()) return it->second.result;
    const PartitionId result = make();
    remembered_.emplace(key, Remembered{result, keep_alive});
    return result;
  }

  /// Text such as "{0,1}{2,3}".
  std::string to_string(PartitionId id) const;
  std::size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    std::vector<std::uint32_t> labels;
    std::vector<Replica> representatives;
    std::int64_t num_blocks = 0;
  };
  struct KeyHash {
    std::size_t operator()(const RuleKey& key) const;
  };
  struct Remembered {
    PartitionId result = {};
    std::shared_ptr<const void> keep_alive;
  };
  PartitionId meet_of_others(PartitionId a, PartitionId b);
  PartitionId intern(std::vector<std::uint32_t> canonical, std::int64_t num_blocks);

  std::int64_t replicas_;
  PartitionId bottom_ = {};
  IdVector<PartitionId, Entry> entries_;
  std::unordered_multimap<std::uint64_t, PartitionId> by_hash_;
  std::unordered_map<std::uint64_t, PartitionId> meets_;
  std::unordered_map<RuleKey, Remembered, KeyHash> remembered_;
};

/// Partition as a value, which users see. Compares by its blocks, also between tables.
class Partition {
 public:
  Partition(std::shared_ptr<PartitionTable> table, PartitionId id) : table_(std::move(table)), id_(id) {}
  /// Partition that groups replicas of equal label.
  static Partition from_labels(std::span<const std::uint64_t> labels);

  PartitionId id() const { return id_; }
  std::int64_t replicas() const { return table_->replicas(); }
  std::int64_t num_blocks() const { return table_->num_blocks(id_); }
  std::span<const std::uint32_t> labels() const { return table_->labels(id_); }
  std::vector<std::vector<Replica>> blocks() const;
  /// Lattice operations; they throw ReplicaError if the replica counts differ.
  Partition meet(const Partition& other) const;
  Partition join(const Partition& other) const;
  bool refines(const Partition& other) const;
  bool operator==(const Partition& other) const;
  std::string to_string() const { return table_->to_string(id_); }

 private:
  PartitionId import_from(const Partition& other) const;

  std::shared_ptr<PartitionTable> table_;
  PartitionId id_;
};

}  // namespace popsr
