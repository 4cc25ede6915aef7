#include "popsr/ir/origin/location.h"

#include <fmt/format.h>

#include <utility>

namespace popsr {
namespace {

std::string location_text(const std::string& file, int line) {
  return line == 0 ? file : fmt::format("{}:{}", file, line);
}

}  // namespace

LocationId LocationTable::intern(const std::string& file, int line) {
  std::string text = location_text(file, line);
  if (const auto known = ids_.find(text); known != ids_.end()) return known->second;
  // In this order: when memory runs out between the two, the place is not known yet.
  locations_.push_back({file, line});
  const auto id = LocationId(locations_.size() - 1);
  ids_.emplace(std::move(text), id);
  return id;
}

std::string LocationTable::to_string(LocationId id) const {
  return id == kUnknownLocation ? "" : location_text(locations_[id].file, locations_[id].line);
}

}  // namespace popsr
