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
  int line = 0;  ///< Line number; 0: `file` is the whole text, as in "Cell In[8], line 2".
};

/// Interned locations; a program has few distinct ones.
class LocationTable {
 public:
  LocationId intern(const std::string& file, int line);
  const Location& operator[](LocationId id) const { return locations_[id]; }
  /// Text such as "model.py:31" or "Cell In[8], line 2"; "" if unknown.
  std::string to_string(LocationId id) const;

 private:
  IdVector<LocationId, Location> locations_{Location{}};
  std::unordered_map<std::string, LocationId> ids_;
};

}  // namespace popsr
