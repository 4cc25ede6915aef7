// Values outside of the graphs: streams of the host, and remote buffers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "popsr/base/layout/shape.h"
#include "popsr/ir/ids.h"
#include "popsr/ir/origin/location.h"
#include "popsr/ir/tensor.h"
#include "popsr/replica/replica_grouping.h"

namespace popsr {

/// Rows of the host's data: one for each replica, one for all, one for each replica that must be equal when
/// fed, one for each group.
enum class StreamMode : std::uint8_t { kReplicate, kBroadcast, kEqual, kGroups };

struct Stream {
  StreamId id = kNone;
  std::string name;
  TensorType type;
  bool to_device = true;
  StreamMode mode = StreamMode::kReplicate;
  LocationId location = {};
  std::optional<ReplicaGrouping> groups = {};  ///< Groups of mode kGroups.
};

/// Number of rows of a stream in a program of `replicas`.
inline std::int64_t num_rows(const Stream& stream, std::int64_t replicas) {
  if (stream.groups) return stream.groups->num_groups();
  return stream.mode == StreamMode::kBroadcast ? 1 : replicas;
}

/// Row that a replica loads or stores.
inline std::size_t row_of(const Stream& stream, Replica replica) {
  if (stream.groups) return static_cast<std::size_t>(stream.groups->assignment()[replica]);
  return stream.mode == StreamMode::kBroadcast ? 0 : replica;
}

/// Memory that holds `entries` values on each replica and is reached by remote loads and stores alone.
struct RemoteBuffer {
  RemoteId id = kNone;
  TensorType type;   ///< Type of one entry on one replica.
  Shape meta_shape;  ///< Shape of the tensors that the entries are shards of; empty if they are not shards.
  std::vector<TensorId> entries;  ///< Tensors of kind kRemote; zeros before anything is stored.
};

}  // namespace popsr
