// Reductions that one rank begins and others continue, in the order of their replicas.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "popsr/kernels/contract/noise_key.h"

namespace popsr {

class ThreadPool;

/// Some elements of the values of a rank's members of a group, ascending.
struct ChainStep {
  std::span<const std::byte* const> members;
  std::size_t offset = 0;  ///< Of the elements in each value, in bytes.
  std::int64_t elements = 0;
  std::byte* state = nullptr;  ///< ReductionChain::state_size bytes each.
  bool continues = false;      ///< `state` holds the partial results of the ranks before.
  ThreadPool& pool;
};

/// The result of elements whose last member was added.
struct ChainEnd {
  const std::byte* state = nullptr;
  std::byte* out = nullptr;
  std::int64_t elements = 0;
  const kernels::NoiseKey* key = nullptr;  ///< Null when rounded to nearest.
  std::uint64_t first = 0;                 ///< Noise index of the first element.
  ThreadPool& pool;
};

/// Adds members one after another as the op's kernel does, so that the bits do not depend on where the chain
/// is cut.
struct ReductionChain {
  std::size_t message_size = 0;  ///< Bytes of an element that a rank sends to the next: they begin its state.
  std::size_t state_size = 0;    ///< Bytes of an element on one rank.
  std::function<void(const ChainStep&)> add = {};
  std::function<void(const ChainEnd&)> finish = {};
};

}  // namespace popsr
