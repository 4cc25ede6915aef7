// Counter-based noise: which key, which counter, which bits. Stateless; the cipher is ARS-7
// (KernelTable::ars7).
//
// THE LAYOUT IS FINAL: changing anything in this file or in level/ars*.h changes every random bit of every
// program.
//
//   key of a use   seed_key(seed), then derived one component at a time: step, call path, loop indices, op,
//                  output, smallest replica of the seed block. Each derivation is one encryption, so
//                  components are never mixed by arithmetic on integers.
//   derive_key     ars7(counter = (component, domain), key): 128 bits, the new key
//   element i      U = word 0 << 48 | word 1 << 32 | word 2 << 16 | word 3, where word d is 16-bit lane i mod
//                  8 (lane 0 in the low bits) of ars7(counter = (i div 8, d), key)
//
// Element counters have a high half of 0 .. 3 under the key of an output's seed block, which derives no key
// further; counters of derived keys have a high half of at least 1 under keys that draw nothing.
#pragma once

#include <cstdint>

#include "popsr/kernels/contract/kernel_table.h"

namespace popsr::kernels {

/// Kind of a component of a noise key; separates, for example, op 3 of call 5 from call 3 of op 5.
enum class Domain : std::uint64_t {
  kSeed = 0x101,
  kStep = 0x102,
  kCall = 0x103,
  kLoop = 0x104,
  kIteration = 0x105,
  kOp = 0x106,
  kOutput = 0x107,
  kReplica = 0x108,
  // popsr.sr: keys that users derive, each of which may draw as well. A text is its length in bytes, then its
  // UTF-8 bytes, eight to a component, the first in the low bits.
  kInteger = 0x201,
  kTextLength = 0x202,
  kText = 0x203,
  kAt = 0x204,
  kMoment = 0x205,  ///< Outputs of one step of an optimiser other than the weights.
  kValue = 0x206,   ///< Keys of the value form.
  // Seeds that are tensors of a program: its words as one number, the first on top, then what is drawn.
  kSeedTensor = 0x301,
  kDrawn = 0x302,
};

inline NoiseKey derive_key(const KernelTable& table, NoiseKey key, Domain domain, std::uint64_t component) {
  return table.ars7(component, static_cast<std::uint64_t>(domain), key);
}

/// Start of every chain: fractional bits of pi, a key that is neither zero nor ours to choose.
inline constexpr NoiseKey kRootKey = {0x243F6A8885A308D3ULL, 0x13198A2E03707344ULL};

inline NoiseKey seed_key(const KernelTable& table, std::uint64_t seed) {
  return derive_key(table, kRootKey, Domain::kSeed, seed);
}

}  // namespace popsr::kernels
