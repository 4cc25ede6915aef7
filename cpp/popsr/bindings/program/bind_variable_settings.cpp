#include "popsr/replica/variable_settings.h"

#include <fmt/format.h>
#include <pybind11/native_enum.h>

#include <array>
#include <optional>
#include <utility>

#include "popsr/bindings/bindings.h"
#include "popsr/bindings/classes.h"
#include "popsr/bindings/python_values.h"
#include "popsr/bindings/records.h"

namespace popsr::bindings {
namespace {

constexpr const char* kWhere = "variable_settings";

constexpr const char* kModeDoc =
    "What the host reads of a variable.\n\n"
    "OnePerGroup: the value of the first member of each group. AllReplicas: a value a replica, in replica "
    "order.\n"
    "AllReduceReplicas: sized as OnePerGroup; PopART does not support it, and no variable can be made with "
    "it.";

constexpr const char* kSettingsDoc =
    R"(Groups of replicas that share a variable's value, and what the host reads.

For N replicas in G groups, a variable of shape [2, 3, 4] has these host arrays; the dimension of groups
is left out when there is one group, and the axis of replicas when there is one replica:

=======================================  ==  ================  =====================  =====================
N = 4                                    G   initial data      read with OnePerGroup  read with AllReplicas
=======================================  ==  ================  =====================  =====================
CommGroup(CommGroupType.All)             1   [2, 3, 4]         [2, 3, 4]              [4, 2, 3, 4]
CommGroup(CommGroupType.Consecutive, 2)  2   [2, 2, 3, 4]      [2, 2, 3, 4]           [4, 2, 3, 4]
CommGroup(CommGroupType.Orthogonal, 2)   2   [2, 2, 3, 4]      [2, 2, 3, 4]           [4, 2, 3, 4]
CommGroup(CommGroupType.Ungrouped)       4   [4, 2, 3, 4]      [4, 2, 3, 4]           [4, 2, 3, 4]
=======================================  ==  ================  =====================  =====================

Made as ``VariableSettings()``, ``(mode)``, ``(CommGroup[, mode])``, ``(stride, size[, mode])`` or
``(ReplicaGrouping[, mode])``. Queries take the number of replicas; ReplicaError when the groups do not
tile them; settings of a ReplicaGrouping fit its number only. Settings made of different things differ, also
if their groups agree. PopART's names work as well: ``getGroupCount`` and so on.

Where PopART's answers disagree, the groups decide: ``CommGroup(CommGroupType.All, 1)`` is one group,
groups of one replica have stride 1, and a size that does not divide the replicas is an error everywhere.

Args:
    comm_group: the groups. Default: one of all replicas.
    replica_grouping: the groups, instead.
    stride: distance between members of a group, with ``size``, instead.
    size: members of a group.
    retrieval_mode: what the host reads. Default: one value a group.
Raises:
    ReplicaError: stride or size is below 1.   TypeError: other arguments.)";

/// A method of one argument, the number of replicas.
template <auto query>
auto of_replicas() {
  return [](const VariableSettings& self, const AnInt& replicas) {
    return (self.*query)(read_int(kWhere, "replicas", replicas));
  };
}

/// A method that maps a shape.
template <auto map>
auto of_shape() {
  return [](const VariableSettings& self, const Ints& shape, const AnInt& replicas) {
    return TupleOf<int>(
        to_tuple((self.*map)(read_ints(kWhere, "shape", shape), read_int(kWhere, "replicas", replicas))));
  };
}

/// A property of the groups.
template <class Result>
auto of_groups(const char* property) {
  return [property](const VariableSettings& self, const AnInt& replicas) {
    const py::object groups = py::cast(self.replica_grouping(read_int(kWhere, "replicas", replicas)));
    return py::reinterpret_steal<Result>(py::object(groups.attr(property)).release());
  };
}

Replica representative(const VariableSettings& self, const AnInt& replicas, const AnInt& group) {
  return self.representative(read_int(kWhere, "replicas", replicas), read_int(kWhere, "group", group));
}

/// PopART's form takes the group alone.
Replica group_representative(const VariableSettings& self, const AnInt& first,
                             const As<"typing.SupportsIndex | None">& second) {
  if (!second.is_none()) return representative(self, first, py::reinterpret_borrow<AnInt>(second));
  return self.representative(read_int(kWhere, "group", first));
}

TupleOf<int> shape_on_replica(const VariableSettings& self, const Ints& full, const AnInt& replicas,
                              const As<"str">& name) {
  return to_tuple(self.shape_on_replica(read_ints(kWhere, "full_shape", full),
                                        read_int(kWhere, "replicas", replicas),
                                        read_text(kWhere, "name", name)));
}

std::optional<CommGroup> comm_group(const VariableSettings& self) {
  return self.comm_group() == nullptr ? std::nullopt : std::optional(*self.comm_group());
}

Reduced reduced(const VariableSettings& self) {
  if (const CommGroup* group = self.comm_group()) return rebuilt_by("VariableSettings", *group, self.mode());
  if (const ReplicaGrouping* groups = self.grouping()) {
    return rebuilt_by("VariableSettings", *groups, self.mode());
  }
  const auto [stride, size] = self.stride_and_size().value();
  return rebuilt_by("VariableSettings", stride, size, self.mode());
}

CommGroup shared_domain(const VariableSettings& self) {
  if (const CommGroup* group = self.comm_group()) return *group;
  raise_as("ReplicaError",
           fmt::format("{}: the settings have no CommGroup, got {}, expected ones that were made of one",
                       kWhere, self.to_string()));
}

// popsr's name, PopART's.
constexpr std::array<std::pair<const char*, const char*>, 7> kPopartNames = {{
    {"replica_grouping", "getReplicaGrouping"},
    {"group_count", "getGroupCount"},
    {"group_size", "getRealGroupSize"},
    {"stride", "getStride"},
    {"returned_count", "numReplicasReturningVariable"},
    {"shape_on_host", "shapeOnHost"},
    {"shape_on_replica", "shapeOnReplica"},
}};

using SettingsClass = py::class_<VariableSettings>;

void def_constructors(SettingsClass& settings) {
  using Mode = VariableRetrievalMode;
  const py::arg_v mode = py::arg("retrieval_mode") = VariableSettings::kDefaultMode;
  guard(settings)
      .def(py::init([](const std::optional<CommGroup>& group, Mode mode) {
             return std::make_unique<VariableSettings>(group.value_or(CommGroup()), mode);
           }),
           py::arg("comm_group") = py::none(), mode)
      .def(py::init([](Mode mode) { return std::make_unique<VariableSettings>(mode); }),
           py::arg("retrieval_mode"))
      .def(py::init([](const std::optional<ReplicaGrouping>& grouping, Mode mode) {
             return grouping ? std::make_unique<VariableSettings>(*grouping, mode)
                             : std::make_unique<VariableSettings>(mode);
           }),
           py::arg("replica_grouping"), mode)
      .def(py::init([](Integer stride, Integer size, Mode mode) {
             return std::make_unique<VariableSettings>(stride.value, size.value, mode);
           }),
           py::arg("stride"), py::arg("size"), mode)
      .def(no_other_arguments<VariableSettings>(
          kWhere, "a CommGroup, a ReplicaGrouping or (stride, size), then a VariableRetrievalMode"));
}

void def_queries(SettingsClass& settings) {
  using Class = VariableSettings;
  const py::arg replicas("replicas"), shape("shape");
  settings.def("replica_grouping", of_replicas<&Class::replica_grouping>(), replicas, "The groups.")
      .def("groups", of_groups<TupleOf<TupleOf<int>>>("groups"), replicas,
           "Members of each group, ascending.")
      .def("partition", of_groups<As<"Partition">>("partition"), replicas,
           "The groups as blocks of a Partition.")
      .def("group_count", of_replicas<&Class::group_count>(), replicas, "Number of groups.")
      .def("group_size", of_replicas<&Class::group_size>(), replicas, "Members of a group.")
      .def("stride", of_groups<As<"int">>("stride"), replicas,
           "Distance between members of a group; NotImplementedError when it varies.")
      .def("representative", &representative, replicas, py::arg("group"),
           "Lowest replica of a group. ReplicaError when there is no such group.")
      .def("getGroupRepresentative", &group_representative, py::arg("group_or_replicas"),
           py::arg("group") = py::none(),
           "``representative`` of a group by its number alone, ``(group)``, or as ``(replicas, group)``.")
      .def("returned_count", of_replicas<&Class::returned_count>(), replicas,
           "Values that the host reads: one a group, or one a replica.")
      .def("shape_on_host", of_shape<&Class::shape_on_host>(), shape, replicas,
           "Shape of the initial data: ``(groups, *shape)``, or ``shape`` if there is one group.")
      .def("returned_shape", of_shape<&Class::returned_shape>(), shape, replicas,
           "Shape of what the host reads: ``(returned_count, *shape)``, or ``shape`` if that is one value.")
      .def("shape_on_replica", &shape_on_replica, py::arg("full_shape"), replicas, py::arg("name") = "",
           "Shape of the variable whose initial data has ``full_shape``. ShapeError, with ``name``, unless "
           "that starts with the number of groups.");
  refuse_other_arguments(settings, "VariableSettings",
                         {{"replica_grouping", "replicas"},
                          {"groups", "replicas"},
                          {"partition", "replicas"},
                          {"group_count", "replicas"},
                          {"group_size", "replicas"},
                          {"stride", "replicas"},
                          {"representative", "replicas, group"},
                          {"getGroupRepresentative", "group_or_replicas, group=None"},
                          {"returned_count", "replicas"},
                          {"shape_on_host", "shape, replicas"},
                          {"returned_shape", "shape, replicas"},
                          {"shape_on_replica", "full_shape, replicas, name=''"}});
  for (const auto& [ours, popart] : kPopartNames) settings.attr(popart) = settings.attr(ours);
}

}  // namespace

void bind_variable_settings(py::module_& m) {
  using Mode = VariableRetrievalMode;
  py::native_enum<Mode>(m, "VariableRetrievalMode", "popsr._support.host.choices.Choices", kModeDoc)
      .value("OnePerGroup", Mode::kOnePerGroup)
      .value("AllReplicas", Mode::kAllReplicas)
      .value("AllReduceReplicas", Mode::kAllReduceReplicas)
      .finalize();
  SettingsClass settings(m, "VariableSettings", kSettingsDoc);
  def_constructors(settings);
  def_queries(settings);
  settings
      .def_property_readonly("comm_group", &comm_group,
                             "What the settings were made of; None for other groups.")
      .def_property_readonly("retrieval_mode", &VariableSettings::mode, "What the host reads.")
      .def("getSharedVariableDomain", &shared_domain, "``comm_group``; ReplicaError when there is none.")
      .def("getRetrievalMode", &VariableSettings::mode)
      .def(
          "__eq__", [](const VariableSettings& a, const VariableSettings& b) { return a == b; },
          py::is_operator())
      .def("__hash__", [](const VariableSettings& self) { return py::hash(py::str(self.to_string())); })
      .def("__reduce__", &reduced)
      .def("__repr__", &VariableSettings::to_string);
  refuse_other_arguments(settings, "VariableSettings",
                         {{"getSharedVariableDomain", ""}, {"getRetrievalMode", ""}});
}

}  // namespace popsr::bindings
