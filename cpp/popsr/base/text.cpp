#include "popsr/base/text.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

namespace popsr {
namespace {

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replace = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replace, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row.back();
}

}  // namespace

std::string close_matches(std::string_view name, std::span<const std::string_view> names) {
  std::vector<std::pair<std::size_t, std::string_view>> ranked;
  ranked.reserve(names.size());
  for (const std::string_view each : names) ranked.emplace_back(edit_distance(name, each), each);
  const std::size_t shown = std::min<std::size_t>(3, ranked.size());
  std::partial_sort(ranked.begin(), ranked.begin() + static_cast<std::ptrdiff_t>(shown), ranked.end());
  std::string text;
  for (std::size_t i = 0; i < shown; ++i) {
    text += (i == 0 ? "'" : ", '") + std::string(ranked[i].second) + "'";
  }
  return text;
}

}  // namespace popsr
