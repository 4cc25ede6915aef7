// 64-bit hashes of values, the same for every memory layout, number of threads and instruction-set level.
//
// Version 1: the elements in C order, little-endian; all NaNs of a dtype count as one. Pieces of 65,536 bytes
// are hashed by themselves, with zeros behind the last one up to a multiple of 64 bytes. Word w of a piece
// goes into lane w % 8:
//   lane = rotate_left((lane ^ word) * 0x9E3779B97F4A7C15, 29), at first 0xD6E8FEB86659FD93 * (number + 1)
//   piece = bytes of the piece; for each lane in order: piece = scatter(piece ^ lane)
//   value = all bytes; for each piece in order: value = scatter(value ^ piece); 0 becomes 1
// Each step is a bijection of the word that it takes: two values that differ in one word differ in their
// hash.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "popsr/base/dtype.h"
#include "popsr/base/layout/strided_view.h"
#include "popsr/base/threads/thread_pool.h"
#include "popsr/ir/tensor.h"

namespace popsr {

inline constexpr std::uint32_t kValueHashVersion = 1;

/// Hashes of several values of one type: `values` are their first elements; `view`: of dense memory, null for
/// dense values.
void hash_values(const TensorType& type, const StridedView* view, std::span<const std::byte* const> values,
                 std::span<std::uint64_t> hashes, ThreadPool& pool);

}  // namespace popsr
