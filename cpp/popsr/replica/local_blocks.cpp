#include "popsr/replica/local_blocks.h"

namespace popsr {

const LocalBlocks::Entry& LocalBlocks::entry(PartitionId id) const {
  const auto [it, is_new] = entries_.try_emplace(id);
  if (!is_new) return it->second;
  const std::span<const std::uint32_t> global = table_.labels(id);
  std::vector<std::uint32_t> local(static_cast<std::size_t>(table_.num_blocks(id)), kAbsentBlock);
  Entry& entry = it->second;
  for (Replica r = ranks_.begin(); r < ranks_.end(); ++r) {
    if (local[global[r]] != kAbsentBlock) continue;
    local[global[r]] = static_cast<std::uint32_t>(entry.representatives.size());
    entry.representatives.push_back(r);
  }
  for (const std::uint32_t label : global) entry.labels.push_back(local[label]);
  return entry;
}

}  // namespace popsr
