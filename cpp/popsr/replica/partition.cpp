#include "popsr/replica/partition.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <new>
#include <numeric>

#include "popsr/base/error.h"
#include "popsr/base/no_memory.h"
#include "popsr/replica/limits.h"

namespace popsr {
namespace {

std::uint64_t hash_labels(std::span<const std::uint32_t> labels) {
  std::uint64_t hash = 0x9E3779B97F4A7C15ULL;
  for (const std::uint32_t label : labels) hash = (hash ^ label) * 0xD6E8FEB86659FD93ULL + (hash >> 29);
  return hash;
}

/// Renumbers arbitrary keys by first appearance; returns the number of distinct keys.
std::int64_t canonicalize(std::span<const std::uint64_t> keys, std::vector<std::uint32_t>& labels) {
  std::unordered_map<std::uint64_t, std::uint32_t> seen;
  labels.resize(keys.size());
  for (std::size_t r = 0; r < keys.size(); ++r) {
    labels[r] = seen.try_emplace(keys[r], static_cast<std::uint32_t>(seen.size())).first->second;
  }
  return static_cast<std::int64_t>(seen.size());
}

}  // namespace

PartitionTable::PartitionTable(std::int64_t replicas) : replicas_(replicas) {
  if (replicas < 1 || replicas > kMaxReplicas) {
    raise<ReplicaError>("replication: too {} replicas, got {}, expected 1 to {}",
                        replicas < 1 ? "few" : "many", replicas, kMaxReplicas);
  }
  const auto n = static_cast<std::size_t>(replicas);
  try {
    intern(std::vector<std::uint32_t>(n, 0), 1);
    std::vector<std::uint32_t> singletons(n);
    std::iota(singletons.begin(), singletons.end(), 0U);
    bottom_ = intern(std::move(singletons), replicas);
  } catch (const std::bad_alloc&) {
    // Labels of both partitions, and one representative of each replica.
    throw NoMemory("replication", n * (2 * sizeof(std::uint32_t) + sizeof(Replica)));
  }
}

PartitionId PartitionTable::intern(std::vector<std::uint32_t> canonical, std::int64_t num_blocks) {
  const std::uint64_t hash = hash_labels(canonical);
  const auto [begin, end] = by_hash_.equal_range(hash);
  for (auto it = begin; it != end; ++it) {
    if (entries_[it->second].labels == canonical) return it->second;
  }
  Entry entry;
  entry.num_blocks = num_blocks;
  for (std::size_t r = 0; r < canonical.size(); ++r) {
    if (canonical[r] == entry.representatives.size())
      entry.representatives.push_back(static_cast<Replica>(r));
  }
  entry.labels = std::move(canonical);
  const auto id = PartitionId(entries_.size());
  entries_.push_back(std::move(entry));
  try {
    by_hash_.emplace(hash, id);
  } catch (...) {  // nobody would find it: it would be interned twice
    entries_.pop_back();
    throw;
  }
  return id;
}

PartitionId PartitionTable::from_keys(std::span<const std::uint64_t> keys) {
  POPSR_CHECK(keys.size() == static_cast<std::size_t>(replicas_));
  std::vector<std::uint32_t> canonical;
  const std::int64_t blocks = canonicalize(keys, canonical);
  return intern(std::move(canonical), blocks);
}

std::size_t PartitionTable::KeyHash::operator()(const RuleKey& key) const {
  std::uint64_t hash = 0;
  for (const std::uint64_t part :
       {key.rule, key.groups, static_cast<std::uint64_t>(key.parameter), std::uint64_t{key.in.value}}) {
    hash = (hash ^ part) * 0xD6E8FEB86659FD93ULL;
    hash ^= hash >> 29;
  }
  return static_cast<std::size_t>(hash);
}

PartitionId PartitionTable::meet_of_others(PartitionId a, PartitionId b) {
  const std::uint64_t memo = (std::uint64_t{std::min(a, b).value} << 32) | std::max(a, b).value;
  if (const auto it = meets_.find(memo); it != meets_.end()) return it->second;
  std::vector<std::uint64_t> keys(static_cast<std::size_t>(replicas_));
  for (std::size_t r = 0; r < keys.size(); ++r) {
    keys[r] = (static_cast<std::uint64_t>(entries_[a].labels[r]) << 32) | entries_[b].labels[r];
  }
  return meets_[memo] = from_keys(keys);
}

PartitionId PartitionTable::join(PartitionId a, PartitionId b) {
  if (a == b || b == bottom_) return a;
  if (a == bottom_) return b;
  if (a == top() || b == top()) return top();
  // Union-find over the blocks of a: each block of b links all the a-blocks it touches.
  std::vector<std::uint32_t> parent(static_cast<std::size_t>(num_blocks(a)));
  std::iota(parent.begin(), parent.end(), 0U);
  const auto find = [&parent](std::uint32_t x) {
    while (parent[x] != x) x = parent[x] = parent[parent[x]];
    return x;
  };
  for (std::size_t r = 0; r < static_cast<std::size_t>(replicas_); ++r) {
    const Replica first = entries_[b].representatives[entries_[b].labels[r]];
    parent[find(entries_[a].labels[r])] = find(entries_[a].labels[first]);
  }
  std::vector<std::uint64_t> keys(static_cast<std::size_t>(replicas_));
  for (std::size_t r = 0; r < keys.size(); ++r) keys[r] = find(entries_[a].labels[r]);
  return from_keys(keys);
}

bool PartitionTable::refines(PartitionId fine, PartitionId coarse) const {
  if (fine == coarse || coarse == top() || fine == bottom_) return true;
  const Entry& f = entries_[fine];
  const Entry& c = entries_[coarse];
  for (std::size_t r = 0; r < f.labels.size(); ++r) {
    if (c.labels[r] != c.labels[f.representatives[f.labels[r]]]) return false;
  }
  return true;
}

std::string PartitionTable::to_string(PartitionId id) const {
  std::vector<std::vector<Replica>> blocks(static_cast<std::size_t>(num_blocks(id)));
  for (std::size_t r = 0; r < entries_[id].labels.size(); ++r) {
    blocks[entries_[id].labels[r]].push_back(static_cast<Replica>(r));
  }
  std::string text;
  for (const auto& block : blocks) text += fmt::format("{{{}}}", fmt::join(block, ","));
  return text;
}

Partition Partition::from_labels(std::span<const std::uint64_t> labels) {
  auto table = std::make_shared<PartitionTable>(static_cast<std::int64_t>(labels.size()));
  const PartitionId id = table->from_keys(labels);
  return {std::move(table), id};
}

std::vector<std::vector<Replica>> Partition::blocks() const {
  std::vector<std::vector<Replica>> result(static_cast<std::size_t>(num_blocks()));
  const auto all = labels();
  for (std::size_t r = 0; r < all.size(); ++r) result[all[r]].push_back(static_cast<Replica>(r));
  return result;
}

PartitionId Partition::import_from(const Partition& other) const {
  if (replicas() != other.replicas()) {
    raise<ReplicaError>("partition: replica counts differ, got {} and {}, expected equal", replicas(),
                        other.replicas());
  }
  if (table_ == other.table_) return other.id_;
  const auto labels = other.labels();
  return table_->from_keys(std::vector<std::uint64_t>(labels.begin(), labels.end()));
}

Partition Partition::meet(const Partition& other) const {
  return {table_, table_->meet(id_, import_from(other))};
}
Partition Partition::join(const Partition& other) const {
  return {table_, table_->join(id_, import_from(other))};
}
bool Partition::refines(const Partition& other) const { return table_->refines(id_, import_from(other)); }
bool Partition::operator==(const Partition& other) const {
  return std::ranges::equal(labels(), other.labels());
}

}  // namespace popsr
