// Reductions that one rank begins and others continue, in the order of their replicas.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "popsr/kernels/contract/noise_key.h"

namespace popsr {

class ThreadPool;

/// One step: adds a range of elements of this rank's members of a group, in ascending order of replicas.
struct ChainStep {
  std::span<const std::byte* const> members;
  std::size_t offset = 0;  ///< Byte offset of the range in each member's value.
  std::int64_t elements = 0;
  std::byte* state = nullptr;  ///< Partial results, ReductionChain::state_size bytes per element.
  /// True if `state` holds the partial results of the ranks before; otherwise the chain starts here.
  bool continues = false;
  ThreadPool& pool;
};

/// The final step: rounds the state of elements whose last member was added.
struct ChainEnd {
  const std::byte* state = nullptr;
  std::byte* out = nullptr;
  std::int64_t elements = 0;
  const kernels::NoiseKey* key = nullptr;  ///< Noise key; null when rounded to nearest.
  std::uint64_t first = 0;                 ///< Noise index of the first element.
  ThreadPool& pool;
};

/// Reduction that adds members one after another as the op's kernel does, so that the bits do not depend on
/// which ranks the chain is divided among.
struct ReductionChain {
  /// Bytes per element that a rank sends to the next: the beginning of the element's state.
  std::size_t message_size = 0;
  std::size_t state_size = 0;  ///< Bytes of state per element on one rank.
  std::function<void(const ChainStep&)> add = {};
  std::function<void(const ChainEnd&)> finish = {};
};

}  // namespace popsr
