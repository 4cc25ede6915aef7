// Attribute values of ops and their declarations.
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "popsr/base/dtype.h"
#include "popsr/base/shape.h"
#include "popsr/ir/ids.h"
#include "popsr/replica/replica_grouping.h"

namespace popsr {

/// std::monostate = absent (only as the value of an optional attribute).
using Attribute =
    std::variant<std::monostate, bool, std::int64_t, double, std::string, std::vector<std::int64_t>,
                 std::vector<double>, DType, GraphId, StreamId, RemoteId, ReplicaGrouping>;

enum class AttrType {
  kBool,
  kInt,
  kFloat,
  kString,
  kInts,
  kFloats,
  kDType,
  kGraph,
  kStream,
  kRemote,
  kGrouping
};

struct AttrDef {
  std::string_view name;
  AttrType type;
  /// Has a default (which may be "absent")? If not, the attribute is required.
  bool has_default = false;
  Attribute default_value = {};
  /// Set by popsr only; not a parameter of the Python function.
  bool internal = false;
};

AttrDef required(std::string_view name, AttrType type);
AttrDef optional(std::string_view name, AttrType type, Attribute default_value = {});
AttrDef internal(std::string_view name, AttrType type, Attribute default_value = {});

/// For dumps: "axis=1", "[0, 1]", "'mean'".
std::string to_string(const Attribute& value);

}  // namespace popsr
