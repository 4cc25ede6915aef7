// Limits of the number of replicas.
#pragma once

#include <cstdint>

namespace popsr {

/// Largest number of replicas. Partitions and groupings take memory for each replica: more is a mistake, or
/// an attack.
inline constexpr std::int64_t kMaxReplicas = std::int64_t{1} << 20;

}  // namespace popsr
