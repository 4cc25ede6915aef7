// Results of ops on shares that were seen before. Layers repeat: most ops of a gradient graph do to the same
// shares the same as others did.
#pragma once

#include <array>
#include <cstdint>
#include <unordered_map>

#include "popsr/ir/op_def.h"
#include "popsr/replica/partition.h"

namespace popsr {

/// All that the share of an op's result follows from, of ops whose partition rule is the meet of their inputs,
/// and of collectives.
struct StepKey {
  static constexpr std::size_t kMaxInputs = 4;

  const OpDef* def = nullptr;
  std::uint64_t groups = 0;  ///< Of a collective: ReplicaGrouping::identity().
  std::uint32_t how = 0;     ///< Of a collective: its operation.
  bool gradients = false;    ///< In a gradient graph.
  PartitionId exec = {};
  std::array<std::uint64_t, kMaxInputs> inputs = {};  ///< Shares, and facts of what is not a gradient.
  bool operator==(const StepKey&) const = default;
};

struct StepKeyHash {
  std::size_t operator()(const StepKey& key) const {
    std::uint64_t hash = reinterpret_cast<std::uintptr_t>(key.def);
    const auto add = [&hash](std::uint64_t value) {
      hash = (hash ^ value) * 0x9E3779B97F4A7C15ULL;
      hash ^= hash >> 29;
    };
    add(key.groups);
    add(std::uint64_t{key.how} << 33 | std::uint64_t{key.gradients} << 32 | key.exec.value);
    for (const std::uint64_t input : key.inputs) add(input);
    return hash;
  }
};

template <class Value>
using StepMemo = std::unordered_map<StepKey, Value, StepKeyHash>;

}  // namespace popsr
