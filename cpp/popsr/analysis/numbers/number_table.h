// Numbers for expressions: equal expressions have equal numbers, so that two values are compared at once.
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

  /// Returns a number that no other expression has.
  Number fresh();
  /// Number of an expression. `key`: the function's symbols, followed by the numbers of `operands` operands.
  Number of(Kind kind, Key key, std::size_t operands);
  /// Newest number from fresh() that the expression contains; Number() if there is none.
  Number newest(Number number) const { return newest_[number]; }
  /// Number greater than all numbers so far.
  Number next() const { return newest_.next(); }
  /// Number of a select: `holds` where `condition` is true, `fails` where it is false.
  Number choice(Number condition, Number if_true, Number if_false);
  struct Choice {
    Number condition, if_true, if_false;
  };
  /// Operands of a number made by choice(); null for other numbers.
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
