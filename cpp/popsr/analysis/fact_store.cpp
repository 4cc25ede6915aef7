#include "popsr/analysis/fact_store.h"

#include "popsr/base/containers/sorted.h"
#include "popsr/base/error.h"

namespace popsr {

void FactStore::reserve(std::size_t ops) {
  ops += ops / 8;  // more may be added later
  all_->first.reserve(ops + 1);
  all_->outputs.reserve(ops);
}

void FactStore::add(std::span<const PartitionId> outputs, std::optional<PartitionId> seeds) {
  POPSR_CHECK(all_->first.size() == size_ + 1);  // no other copy grew
  if (seeds) {
    all_->seeds.resize(size_);
    all_->seeds.push_back(*seeds);
  }
  all_->outputs.insert(all_->outputs.end(), outputs.begin(), outputs.end());
  all_->first.push_back(static_cast<std::uint32_t>(all_->outputs.size()));
  ++size_;
}

void FactStore::add(OpFacts facts) {
  const auto op = static_cast<std::uint32_t>(size_);
  add(facts.outputs, std::nullopt);
  all_->running.push_back(op);
  all_->graphs.push_back(std::move(facts));
  running_ = all_->running.size();
}

FactView FactStore::operator[](std::size_t op) const {
  FactView view;
  const auto running = find_sorted(all_->running, static_cast<std::uint32_t>(op));
  if (running) view = all_->graphs[*running];
  view.outputs = outputs(op);
  if (op < all_->seeds.size()) view.seeds = all_->seeds[op];
  return view;
}

}  // namespace popsr
