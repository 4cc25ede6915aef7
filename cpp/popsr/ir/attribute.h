// Attribute values of ops and their declarations.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "popsr/base/dtype.h"
#include "popsr/base/shape.h"
#include "popsr/ir/ids.h"
#include "popsr/replica/replica_grouping.h"

namespace popsr {

/// Wraps a StreamId so that the variant can tell it from an integer.
struct StreamRef {
  StreamId id = 0;
  bool operator==(const StreamRef&) const = default;
};

/// Likewise for remote buffers.
struct RemoteRef {
  RemoteId id = 0;
  bool operator==(const RemoteRef&) const = default;
};

/// std::monostate = absent (only as the value of an optional attribute).
using Attribute =
    std::variant<std::monostate, bool, std::int64_t, double, std::string, std::vector<std::int64_t>,
                 std::vector<double>, DType, GraphId, StreamRef, RemoteRef, ReplicaGrouping>;

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

/// The AttrType of values of type T.
template <class T>
consteval AttrType attr_type() {
  if constexpr (std::is_same_v<T, bool>) return AttrType::kBool;
  if constexpr (std::is_same_v<T, std::int64_t>) return AttrType::kInt;
  if constexpr (std::is_same_v<T, double>) return AttrType::kFloat;
  if constexpr (std::is_same_v<T, std::string>) return AttrType::kString;
  if constexpr (std::is_same_v<T, std::vector<std::int64_t>>) return AttrType::kInts;
  if constexpr (std::is_same_v<T, std::vector<double>>) return AttrType::kFloats;
  if constexpr (std::is_same_v<T, DType>) return AttrType::kDType;
  if constexpr (std::is_same_v<T, GraphId>) return AttrType::kGraph;
  if constexpr (std::is_same_v<T, StreamRef>) return AttrType::kStream;
  if constexpr (std::is_same_v<T, RemoteRef>) return AttrType::kRemote;
  if constexpr (std::is_same_v<T, ReplicaGrouping>) return AttrType::kGrouping;
}

/// The name and value of an attribute, for emitting an op.
using NamedAttribute = std::pair<std::string, Attribute>;

/// Handle of an attribute: its name and the type of its values. Declared once, beside the ops that have it:
/// `inline constexpr Attr<double> kFactor{"factor"}`. `op.get(kFactor)` reads it, `kFactor(0.5)` sets it.
template <class T>
struct Attr {
  std::string_view name;
  NamedAttribute operator()(T value) const { return {std::string(name), std::move(value)}; }
};

/// A value of an attribute that takes few: its name in programs.
template <class E>
struct Choice {
  std::string_view name;
  E value;
};

/// Handle of an attribute that takes few values: a string in programs, the enum E in C++.
template <class E>
struct ChoiceAttr {
  std::string_view name;
  std::span<const Choice<E>> choices;

  NamedAttribute operator()(E value) const { return {std::string(name), std::string(name_of(value))}; }
  std::string_view name_of(E value) const {
    for (const Choice<E>& choice : choices) {
      if (choice.value == value) return choice.name;
    }
    return {};
  }
  /// The value of that name, which Ir::emit found to be a choice.
  E value_of(std::string_view text) const {
    for (const Choice<E>& choice : choices) {
      if (choice.name == text) return choice.value;
    }
    return choices.front().value;
  }
};

struct AttrDef {
  std::string_view name;
  AttrType type;
  /// True if the attribute has a default, which may be "absent"; otherwise it is required.
  bool has_default = false;
  Attribute default_value = {};
  /// Set by popsr only; not a parameter of the Python function.
  bool internal = false;
  /// The strings that it takes; empty: any value of its type.
  std::vector<std::string_view> choices = {};
};

AttrDef required(std::string_view name, AttrType type);
AttrDef optional(std::string_view name, AttrType type, Attribute default_value = {});
AttrDef internal(std::string_view name, AttrType type, Attribute default_value = {});

template <class T>
AttrDef required(const Attr<T>& attr) {
  return {attr.name, attr_type<T>()};
}
/// Absent where it is not given.
template <class T>
AttrDef optional(const Attr<T>& attr) {
  return {attr.name, attr_type<T>(), true};
}
template <class T>
AttrDef optional(const Attr<T>& attr, std::type_identity_t<T> default_value) {
  return {attr.name, attr_type<T>(), true, std::move(default_value)};
}
/// Not a parameter of the Python function.
template <class T>
AttrDef internal(const Attr<T>& attr) {
  return {attr.name, attr_type<T>(), true, {}, true};
}
template <class T>
AttrDef internal(const Attr<T>& attr, std::type_identity_t<T> default_value) {
  return {attr.name, attr_type<T>(), true, std::move(default_value), true};
}

template <class E>
AttrDef required(const ChoiceAttr<E>& attr) {
  AttrDef def{attr.name, AttrType::kString};
  for (const Choice<E>& choice : attr.choices) def.choices.push_back(choice.name);
  return def;
}
template <class E>
AttrDef optional(const ChoiceAttr<E>& attr) {
  AttrDef def = required(attr);
  def.has_default = true;
  return def;
}
template <class E>
AttrDef optional(const ChoiceAttr<E>& attr, std::type_identity_t<E> default_value) {
  AttrDef def = optional(attr);
  def.default_value = std::string(attr.name_of(default_value));
  return def;
}

/// For dumps: "axis=1", "[0, 1]", "'mean'".
std::string to_string(const Attribute& value);

}  // namespace popsr
