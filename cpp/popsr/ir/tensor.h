// Tensors: values of a graph, and the state that outlives a run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "popsr/base/dtype.h"
#include "popsr/base/shape.h"
#include "popsr/ir/host_bytes.h"
#include "popsr/ir/ids.h"
#include "popsr/ir/origin/location.h"
#include "popsr/replica/replica_grouping.h"
#include "popsr/replica/variable_settings.h"

namespace popsr {

struct View;

struct TensorType {
  DType dtype = DType::kFloat32;
  Shape shape;
  bool operator==(const TensorType&) const = default;
};
std::string to_string(const TensorType& type);
/// Bytes of one value.
inline std::size_t bytes_of(const TensorType& type) {
  return static_cast<std::size_t>(num_elements(type.shape)) * size_of(type.dtype);
}

enum class TensorKind : std::uint8_t {
  kActivation,
  kInput,
  kVariable,
  kConstant,
  kShard,   ///< State of the main graph: a part of a variable, a different one on each member of its group.
  kRemote,  ///< State behind the ops that load and store it: an entry of a remote buffer.
};

/// The views of a tensor with memory of its own (ir/memory.h).
enum class Viewed : std::uint8_t {
  kNo,
  kWhole,   ///< Views of all of it alone.
  kPartly,  ///< Some views of a part of it: its elements may be written one by one.
};

/// Ops at both ends of a value.
struct TensorUses {
  OpId producer = kNone;
  OpId first_use = kNone;  ///< The first op that takes it.
};

/// Memory that holds the value.
struct TensorMemory {
  std::shared_ptr<const View> view;  ///< Null unless its elements are elements of other tensors.
  TensorId storage = kNone;          ///< The tensor whose allocation it is; itself unless an in-place output.
  Viewed viewed = Viewed::kNo;
  bool by_ref = false;  ///< Graph inputs only.
};

/// Variables: their value on the host, and the tensor that holds the value on the device. Of constants `data`
/// alone, of shards and remote entries `resident` alone.
struct TensorState {
  std::shared_ptr<const HostBytes> data;  ///< Of a variable [num_groups, *shape].
  std::optional<ReplicaGrouping> grouping;
  std::int64_t shard_over = 1;  ///< So many consecutive members of a group hold a part each.
  TensorId home = kNone;        ///< The kShard or kRemote tensor that is the device value, if any.
  TensorId resident = kNone;    ///< The variable whose home it is.
  LocationId location = {};     ///< Where it was made; op outputs have the location of their op.
  VariableRetrievalMode retrieval = VariableRetrievalMode::kOnePerGroup;
};

struct Tensor {
  TensorId id = kNone;
  GraphId graph;
  std::string name;  ///< Full id: "<graph id>/<scopes>/<name>".
  TensorType type;
  Shape meta_shape;
  TensorKind kind = TensorKind::kActivation;
  std::uint32_t index = 0;  ///< Position in Graph::tensors.
  TensorUses uses = {};
  TensorMemory memory = {};
  TensorState state = {};
};

}  // namespace popsr
