#include "popsr/analysis/fact_store.h"

#include "popsr/base/sorted.h"

#include <algorithm>

namespace popsr {

void FactStore::reserve(std::size_t ops) {
  first_.reserve(ops + 1);
  outputs_.reserve(ops);
}

void FactStore::add(std::span<const PartitionId> outputs, std::optional<PartitionId> seeds) {
  if (seeds) {
    seeds_.resize(size());
    seeds_.push_back(*seeds);
  }
  outputs_.insert(outputs_.end(), outputs.begin(), outputs.end());
  first_.push_back(static_cast<std::uint32_t>(outputs_.size()));
}

void FactStore::add(OpFacts facts) {
  running_.push_back(static_cast<std::uint32_t>(size()));
  add(facts.outputs, std::nullopt);
  graphs_.push_back(std::move(facts));
}

FactView FactStore::operator[](std::size_t op) const {
  FactView view;
  if (const auto running = find_sorted(running_, static_cast<std::uint32_t>(op))) view = graphs_[*running];
  view.outputs = std::span(outputs_).subspan(first_[op], first_[op + 1] - first_[op]);
  if (op < seeds_.size()) view.seeds = seeds_[op];
  return view;
}

}  // namespace popsr
