// ARS-7 (Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", 2011): seven AES rounds
// with a key schedule that adds Weyl constants. The same bits from the software rounds, AES-NI and VAES.
#pragma once

#include <cstdint>

#include "popsr/kernels/contract/kernel_table.h"

namespace popsr::kernels {

/// Encrypts the 128-bit counter.
NoiseKey ars7(std::uint64_t counter_lo, std::uint64_t counter_hi, NoiseKey key);

/// Word number `word` of the noise of elements 8 * first_block ... 8 * (first_block + blocks) - 1: block j is
/// the ciphertext of counter (j, word), eight little-endian 16-bit lanes.
void noise_words(std::uint16_t* out, std::int64_t blocks, std::uint64_t first_block, std::uint64_t word,
                 NoiseKey key);

/// All 64 bits of one element.
std::uint64_t noise_of(std::uint64_t element, NoiseKey key);

/// See KernelTable::uniform_bits.
void uniform_bits(std::uint64_t* out, std::int64_t n, NoiseKey key, std::uint64_t first);

}  // namespace popsr::kernels
