// Locations: the line of the user's program that made an object.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "popsr/base/id.h"

namespace popsr {

struct LocationTag {
  static constexpr std::uint32_t kDefault = 0;
};
using LocationId = Id<LocationTag>;
inline constexpr LocationId kUnknownLocation{};

struct Location {
  std::string file;
  int line = 0;  ///< 0: `file` is the whole text, as "Cell In[8], line 2".
};

/// Interns lines of files; a program has few distinct ones.
class LocationTable {
 public:
  LocationId intern(const std::string& file, int line);
  const Location& operator[](LocationId id) const { return locations_[id]; }
  /// "model.py:31", "Cell In[8], line 2", or "" when unknown.
  std::string to_string(LocationId id) const;

 private:
  IdVector<LocationId, Location> locations_{Location{}};
  std::unordered_map<std::string, LocationId> ids_;
};

}  // namespace popsr
