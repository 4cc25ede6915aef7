#include "popsr/ir/origin/location.h"

#include <fmt/format.h>

#include <utility>

namespace popsr {

LocationId LocationTable::intern(const std::string& file, int line) {
  std::string text = fmt::format("{}:{}", file, line);
  if (const auto known = ids_.find(text); known != ids_.end()) return known->second;
  // In this order: when memory runs out between the two, the place is not known yet.
  locations_.push_back({file, line});
  const auto id = LocationId(locations_.size() - 1);
  ids_.emplace(std::move(text), id);
  return id;
}

std::string LocationTable::to_string(LocationId id) const {
  return id == kUnknownLocation ? "" : fmt::format("{}:{}", locations_[id].file, locations_[id].line);
}

}  // namespace popsr
