// Names of partitions of four replicas, of streams and of types that tests of the analysis share.
#pragma once

#include <string>

#include "popsr/base/dtype.h"
#include "popsr/ir/stream.h"
#include "popsr/ir/tensor.h"

namespace popsr::test {

inline const std::string kAll = "{0,1,2,3}", kEach = "{0}{1}{2}{3}", kPairs = "{0,1}{2,3}";
inline constexpr auto kEqual = StreamMode::kBroadcast, kUnequal = StreamMode::kReplicate;
inline const TensorType kHalf{DType::kFloat32, {2}}, kCondition{DType::kBool, {}};

}  // namespace popsr::test
