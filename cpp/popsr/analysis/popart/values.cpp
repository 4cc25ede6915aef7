#include "popsr/analysis/popart/values.h"

#include <algorithm>
#include <iterator>

#include "popsr/base/error.h"

namespace popsr {
namespace {

/// The first value of that time or later.
auto from(auto& values, Time time) {
  return std::ranges::lower_bound(values, time, {}, &std::pair<Time, bool>::first);
}

}  // namespace

bool PopartValues::set(TensorId tensor, Time time, bool value) {
  std::vector<std::pair<Time, bool>>& values = times_[tensor];
  const auto it = from(values, time);
  if (it == values.end() || it->first != time) {
    values.emplace(it, time, value);
    return changed_ = true;
  }
  if (value && !it->second) disagreements_.insert(tensor);
  const bool falls = it->second && !value;
  it->second = it->second && value;
  changed_ |= falls;
  return falls;
}

bool PopartValues::at(TensorId tensor, Time time) const {
  const auto it = from(times_[tensor], time);
  POPSR_CHECK(it != times_[tensor].end() && it->first == time);
  return it->second;
}

bool PopartValues::before(TensorId tensor, Time time) const {
  const auto next = from(times_[tensor], time);
  POPSR_CHECK(next != times_[tensor].begin());
  return std::prev(next)->second;
}

bool PopartValues::last(TensorId tensor) const {
  POPSR_CHECK(known(tensor));
  return times_[tensor].back().second;
}

void PopartValues::clear_flags() {
  changed_ = false;
  disagreements_.clear();
}

}  // namespace popsr
