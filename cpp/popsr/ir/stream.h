// Values outside of the graphs: streams of the host, and remote buffers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "popsr/base/shape.h"
#include "popsr/ir/ids.h"
#include "popsr/ir/origin/location.h"
#include "popsr/ir/tensor.h"

namespace popsr {

/// The rows that replicas load from a stream: one for each, one for all, one for each that must be equal when
/// fed.
enum class StreamMode : std::uint8_t { kReplicate, kBroadcast, kEqual };

struct Stream {
  StreamId id = kNone;
  std::string name;
  TensorType type;
  bool to_device = true;
  StreamMode mode = StreamMode::kReplicate;
  LocationId location = {};
};

/// Memory that keeps `entries` values on each replica and is reached by remote loads and stores alone.
struct RemoteBuffer {
  RemoteId id = kNone;
  TensorType type;                ///< Of one entry on one replica.
  Shape meta_shape;               ///< Entries are shards of tensors of that shape, unless empty.
  std::vector<TensorId> entries;  ///< kRemote tensors; zeros before anything is stored.
};

}  // namespace popsr
