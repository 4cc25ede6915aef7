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
#include "popsr/base/layout/shape.h"
#include "popsr/ir/ids.h"
#include "popsr/replica/replica_grouping.h"

namespace popsr {

/// Value of an attribute. std::monostate means absent: an optional attribute that is not given.
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

/// AttrType of values of type T.
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
  if constexpr (std::is_same_v<T, StreamId>) return AttrType::kStream;
  if constexpr (std::is_same_v<T, RemoteId>) return AttrType::kRemote;
  if constexpr (std::is_same_v<T, ReplicaGrouping>) return AttrType::kGrouping;
}

/// Name and value of an attribute, for emitting an op.
using NamedAttribute = std::pair<std::string, Attribute>;

/// Handle of an attribute: its name and the type of its values. Declared once, beside the ops that have it:
/// `inline constexpr Attr<double> kFactor{"factor"}`. `op.get(kFactor)` reads it, `kFactor(0.5)` sets it.
template <class T>
struct Attr {
  std::string_view name;
  NamedAttribute operator()(T value) const { return {std::string(name), std::move(value)}; }
};

/// One of the values of a choice attribute, and its name in programs.
template <class E>
struct Choice {
  std::string_view name;
  E value;
};

/// Handle of an attribute with named choices: a string in programs, the enum E in C++.
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
  /// Value of the choice with that name. Ir::emit has checked that there is one.
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
  /// True if only popsr sets the attribute; it is not a parameter of the Python function.
  bool internal = false;
  /// Strings that the attribute accepts; empty: any value of its type.
  std::vector<std::string_view> choices = {};
};

template <class T>
AttrDef required(const Attr<T>& attr) {
  return {attr.name, attr_type<T>()};
}
/// Declares an attribute that may be absent.
template <class T>
AttrDef optional(const Attr<T>& attr) {
  return {attr.name, attr_type<T>(), true};
}
template <class T>
AttrDef optional(const Attr<T>& attr, std::type_identity_t<T> default_value) {
  return {attr.name, attr_type<T>(), true, std::move(default_value)};
}
/// Declares an attribute that is not a parameter of the Python function.
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

/// Text for dumps: "axis=1", "[0, 1]", "'mean'".
std::string to_string(const Attribute& value);

}  // namespace popsr
