#include "popsr/analysis/numbers/number_table.h"

#include <algorithm>
#include <utility>

namespace popsr {

Number NumberTable::fresh() {
  const Number number = next();
  newest_.push_back(number);
  return number;
}

Number NumberTable::of(Kind kind, Key key, std::size_t operands) {
  Number newest;
  for (std::size_t i = key.size() - operands; i < key.size(); ++i)
    newest = std::max(newest, newest_[Number(key[i])]);
  key.push_back(static_cast<std::uint32_t>(kind));
  const auto [it, is_new] = numbers_.try_emplace(std::move(key), next());
  if (is_new) newest_.push_back(newest);
  return it->second;
}

Number NumberTable::choice(Number condition, Number if_true, Number if_false) {
  if (if_true == if_false) return if_true;
  const Number number = of(Kind::kChoice, {condition.value, if_true.value, if_false.value}, 3);
  choices_.try_emplace(number, Choice{condition, if_true, if_false});
  return number;
}

}  // namespace popsr
