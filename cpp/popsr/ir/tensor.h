// Tensors: values of a graph, and the state that outlives a run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "popsr/base/dtype.h"
#include "popsr/base/layout/shape.h"
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

/// Views of a tensor that has memory of its own (effects/memory.h).
enum class Viewed : std::uint8_t {
  kNo,
  kWhole,   ///< All views show the whole tensor.
  kPartly,  ///< Some views show a part of it, so its elements may be written one by one.
};

/// Ops that produce and use a value.
struct TensorUses {
  OpId producer = kNone;
  OpId first_use = kNone;  ///< First op that uses the value.
};

/// Memory that holds the value.
struct TensorMemory {
  std::shared_ptr<const View> view;  ///< View that the tensor is; null if it has memory of its own.
  /// Tensor whose allocation holds the value; the tensor itself, unless it is an output written in place.
  TensorId storage = kNone;
  Viewed viewed = Viewed::kNo;
  bool by_ref = false;  ///< True for inputs passed by reference; graph inputs only.
};

/// State of a variable: its value on the host, and the tensor that holds the value on the device. Constants
/// use `data` alone, shards and remote entries `resident` alone.
struct TensorState {
  std::shared_ptr<const HostBytes> data;  ///< Initial values; for a variable [num_groups, *shape].
  std::optional<ReplicaGrouping> grouping;
  std::int64_t shard_over = 1;  ///< Number of consecutive members of a group that hold a part each.
  TensorId home = kNone;        ///< Tensor of kind kShard or kRemote that holds the device value, if any.
  TensorId resident = kNone;    ///< Variable whose home this tensor is.
  /// Line of the program that made it; outputs of ops have the location of their op.
  LocationId location = {};
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
