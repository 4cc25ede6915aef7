// Numbers for expressions: the same number for the same expression, so that two values are compared at once.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "popsr/ir/op.h"
#include "popsr/ir/tensor.h"

namespace popsr {

struct NumberTag {
  static constexpr std::uint32_t kDefault = 0;
};
using Number = Id<NumberTag>;

class NumberTable {
 public:
  /// Function that an expression applies to its operands.
  enum class Kind : std::uint32_t { kLeaf, kPlace, kNext, kConstant, kOp, kView, kWritten, kChoice };
  using Key = std::vector<std::uint32_t>;

  /// A number that no other expression has.
  Number fresh();
  /// `key`: what is applied, and at its end so many numbers of operands.
  Number of(Kind kind, Key key, std::size_t operands);
  /// The newest of the numbers from fresh() that the expression is made of; Number() if there is none.
  Number newest(Number number) const { return newest_[number]; }
  /// Greater than all numbers so far.
  Number next() const { return newest_.next(); }
  /// `holds` where `condition` is true, `fails` where it is false.
  Number choice(Number condition, Number holds, Number fails);
  struct Choice {
    Number condition, holds, fails;
  };
  /// Null for a number that is not of a choice.
  const Choice* find_choice(Number number) const {
    const auto it = choices_.find(number);
    return it == choices_.end() ? nullptr : &it->second;
  }

 private:
  struct Hash {
    std::size_t operator()(const Key& key) const {
      std::uint64_t hash = 0;
      for (const std::uint32_t word : key) hash = (hash ^ word) * 0x9E3779B97F4A7C15ULL + (hash >> 29);
      return hash;
    }
  };
  std::unordered_map<Key, Number, Hash> numbers_;
  std::unordered_map<Number, Choice> choices_;
  IdVector<Number, Number> newest_{Number()};
};

}  // namespace popsr
