// Binary search in ascending vectors.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <vector>

#include "popsr/base/error.h"

namespace popsr {

/// Index of `value` in an ascending vector; nullopt if it is absent.
template <class T>
std::optional<std::size_t> find_sorted(const std::vector<T>& values, const T& value) {
  const auto it = std::ranges::lower_bound(values, value);
  if (it == values.end() || *it != value) return std::nullopt;
  return static_cast<std::size_t>(it - values.begin());
}

/// Index of a value that is known to be in an ascending vector.
template <class T>
std::size_t sorted_index(const std::vector<T>& values, const T& value) {
  const std::optional<std::size_t> index = find_sorted(values, value);
  POPSR_CHECK(index.has_value());
  return *index;
}

}  // namespace popsr
