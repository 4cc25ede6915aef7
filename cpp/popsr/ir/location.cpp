#include "popsr/ir/location.h"

#include <fmt/format.h>

namespace popsr {

LocationId LocationTable::intern(const std::string& file, int line) {
  const auto [it, fresh] =
      ids_.try_emplace(fmt::format("{}:{}", file, line), static_cast<LocationId>(locations_.size()));
  if (fresh) locations_.push_back({file, line});
  return it->second;
}

std::string LocationTable::to_string(LocationId id) const {
  return id == 0 ? "" : fmt::format("{}:{}", locations_[id].file, locations_[id].line);
}

}  // namespace popsr
