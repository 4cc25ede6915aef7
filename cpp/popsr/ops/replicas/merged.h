// Names of the ops that several exchanges are merged into (transform/merge.h).
#pragma once

#include <string_view>

namespace popsr {

inline constexpr std::string_view kMultiAllReduce = "multi_replicated_all_reduce";
inline constexpr std::string_view kMultiAllGather = "multi_replicated_all_gather";
inline constexpr std::string_view kMultiReduceScatter = "multi_replicated_reduce_scatter";
inline constexpr std::string_view kMultiExchange = "multi_exchange";

}  // namespace popsr
