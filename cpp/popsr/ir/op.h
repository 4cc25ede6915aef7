// Ops: uses of an OpDef in a graph.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "popsr/ir/attribute.h"
#include "popsr/ir/ids.h"
#include "popsr/ir/origin/location.h"
#include "popsr/ir/origin/place.h"

namespace popsr {

struct OpDef;

/// Line of the program that an op comes from, and the device that the contexts around it name. Ops that
/// transforms derive from others have the origin of these.
struct Origin {
  LocationId location = {};
  Place place = {};  ///< Device placement of the operands, unless the definition says otherwise.
  /// True if the op is part of a backward pass that another framework made: results are derivatives of values
  /// of their own replica. Ops of gradient graphs that autodiff makes have no mark (ir/gradient_graph.h).
  bool derivative = false;
};

/// Noise properties of ops that round or draw random numbers.
struct OpNoise {
  std::uint32_t index = 0;       ///< Number among such ops of the graph: a part of the op's noise key.
  bool allow_stochastic = true;  ///< False inside `with popsr.stochastic_rounding(False)`.
};

/// Call properties of ops that run graphs.
struct OpCall {
  std::vector<std::uint32_t> modified = {};  ///< Inputs marked as modified by reference.
  std::uint32_t index = 0;  ///< Number among such ops of the graph: a part of the noise keys in its graphs.
};

/// Slot of the op in the schedule of its graph.
struct OpSchedule {
  std::vector<OpId> after = {};  ///< Ops that this one is explicitly ordered after, by in_sequence.
  /// Parts of a merged op, which it runs at once, in any order (transform/schedule.cpp). Its operands are
  /// theirs, one after another.
  std::vector<OpId> parts = {};
  /// Merged op that this op is a part of, and in no schedule itself; kNone for others.
  OpId part_of = kNone;
  std::uint32_t position = 0;  ///< Position in Graph::ops; for a part, the position of the merged op.
};

struct Op {
  OpId id = kNone;
  GraphId graph;
  const OpDef* def = nullptr;
  std::vector<TensorId> inputs;  ///< Input tensors; kNone where an optional input is absent.
  std::vector<TensorId> outputs;
  std::vector<Attribute> attrs;  ///< Attribute values in the order of def->attrs.
  Origin origin = {};
  OpNoise noise = {};
  OpCall call = {};
  OpSchedule schedule = {};

  /// Value of a required attribute, or of one with a default that is not "absent"; InternalError if the op
  /// does not declare it.
  template <class T>
  const T& get(const Attr<T>& attr) const {
    return std::get<T>(attribute(attr.name));
  }
  template <class E>
  E get(const ChoiceAttr<E>& attr) const {
    return attr.value_of(std::get<std::string>(attribute(attr.name)));
  }
  /// Value of an attribute that may be absent.
  template <class T>
  std::optional<T> find(const Attr<T>& attr) const {
    const Attribute& value = attribute(attr.name);
    if (std::holds_alternative<std::monostate>(value)) return std::nullopt;
    return std::get<T>(value);
  }
  template <class E>
  std::optional<E> find(const ChoiceAttr<E>& attr) const {
    const Attribute& value = attribute(attr.name);
    if (std::holds_alternative<std::monostate>(value)) return std::nullopt;
    return attr.value_of(std::get<std::string>(value));
  }

  /// Attribute of that name; InternalError if the op does not declare it.
  const Attribute& attribute(std::string_view name) const;
};

}  // namespace popsr
