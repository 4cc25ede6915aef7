// Attributes shared by ops of several families; all others are declared beside their ops.
#pragma once

#include "popsr/ir/attribute.h"

namespace popsr {

inline constexpr Attr<std::int64_t> kAxis{"axis"};
inline constexpr Attr<std::int64_t> kDim{"dim"};
inline constexpr Attr<Shape> kShape{"shape"};
inline constexpr Attr<Shape> kMetaShape{"meta_shape"};
inline constexpr Attr<DType> kDType{"dtype"};
inline constexpr Attr<DType> kDataType{"data_type"};
inline constexpr Attr<double> kFactor{"factor"};
inline constexpr Attr<double> kAvailableMemoryProportion{"available_memory_proportion"};

}  // namespace popsr
