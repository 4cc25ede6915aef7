// Groups of replicas: PopXL's and PopART's classes.
#include <fmt/format.h>
#include <pybind11/native_enum.h>

#include <optional>

#include "popsr/bindings/bindings.h"
#include "popsr/bindings/classes.h"
#include "popsr/bindings/python_values.h"
#include "popsr/bindings/records.h"
#include "popsr/replica/comm_group.h"
#include "popsr/replica/replica_grouping.h"

namespace popsr::bindings {
namespace {

std::int64_t stride_of(const ReplicaGrouping& grouping) {
  if (grouping.is_const()) return grouping.stride();
  raise_as("UnsupportedError",
           fmt::format("stride: the grouping has no constant stride, got {}, expected is_const",
                       grouping.to_string()));
}

TupleOf<int> members_of(const ReplicaGrouping& grouping, std::int64_t group) {
  return tuple_of(grouping.group(group));
}

TupleOf<TupleOf<int>> groups_of(const ReplicaGrouping& grouping) {
  py::tuple result(static_cast<std::size_t>(grouping.num_groups()));
  for (std::size_t g = 0; g < result.size(); ++g) {
    result[g] = members_of(grouping, static_cast<std::int64_t>(g));
  }
  return result;
}

using Map = std::vector<std::int64_t>;

std::optional<Map> map_of(const ReplicaGrouping& grouping, Map (ReplicaGrouping::*map)() const) {
  return grouping.is_const() ? std::nullopt : std::optional((grouping.*map)());
}

bool equal_groupings(const ReplicaGrouping& grouping, py::handle other) {
  if (py::isinstance<ReplicaGrouping>(other)) return grouping == other.cast<const ReplicaGrouping&>();
  raise_as("ArgumentTypeError",
           fmt::format("replica_grouping: compares with a ReplicaGrouping only, got {}, expected one",
                       shown(other)));
}

ReplicaGrouping from_stride(const AnInt& replicas, const AnInt& stride,
                            const As<"typing.SupportsIndex | None">& group_size) {
  const char* const where = "replica_grouping";
  const std::int64_t n = read_int(where, "replicas", replicas);
  const std::int64_t distance = read_int(where, "stride", stride);
  std::optional<std::int64_t> size;
  if (!group_size.is_none()) size = read_int(where, "group_size", group_size);
  return ReplicaGrouping::from_stride(n, distance, size);
}

constexpr const char* kGroupingDoc =
    "A tiling of the replicas into groups of equal size: made by ``Ir.replica_grouping`` and\n"
    "``Ir.replica_grouping_from_assignments``. A value: groupings are equal when their assignments are.\n\n"
    "``const_rg`` is the grouping of constant stride that keeps a variable of these groups on the device: "
    "itself,\n"
    "or one that refines it. Then ``to_device_map[c]`` is the group that group ``c`` of ``const_rg`` lies "
    "in, and\n"
    "``to_host_map[g]`` is the first group of ``const_rg`` in group ``g``.";

void bind_grouping(py::module_& m) {
  using Class = ReplicaGrouping;
  py::class_<Class> grouping(m, "ReplicaGrouping", kGroupingDoc);
  guard(grouping)
      .def(py::init([](const py::args&, const py::kwargs&) -> std::unique_ptr<Class> {
        raise_as("StateError",
                 "replica_grouping: cannot be constructed, expected Ir.replica_grouping or "
                 "Ir.replica_grouping_from_assignments");
      }))
      .def_static("from_stride", &from_stride, py::arg("replicas"), py::arg("stride") = 1,
                  py::arg("group_size") = py::none(),
                  "Groups of `group_size` replicas, `stride` apart; by default replicas // stride. "
                  "ReplicaError unless they tile the replicas.")
      .def_static(
          "from_assignment",
          [](const Ints& assignment) {
            return Class::from_assignment(read_ints("replica_grouping", "assignment", assignment));
          },
          py::arg("assignment"),
          "Groups from the group of each replica. ReplicaError unless groups are of one size and numbered "
          "from 0 in order of first appearance.")
      .def_property_readonly("num_replicas", &Class::replicas, "Number of replicas.")
      .def_property_readonly("num_groups", &Class::num_groups, "Number of groups.")
      .def_property_readonly("group_size", &Class::group_size, "Members of a group.")
      .def_property_readonly("stride", &stride_of,
                             "Distance between members; NotImplementedError when it varies.")
      .def_property_readonly("is_const", &Class::is_const, "True if the stride is the same everywhere.")
      .def_property_readonly("assignment", &Class::assignment, "Group of each replica.")
      .def_property_readonly("groups", &groups_of, "Members of each group, ascending.")
      .def(
          "members",
          [](const Class& self, const AnInt& group) {
            return members_of(self, read_int("members", "group", group));
          },
          py::arg("group"), "Members of a group, ascending. ReplicaError when there is no such group.")
      .def_property_readonly("partition", py::overload_cast<>(&Class::partition, py::const_),
                             "The groups as blocks of a Partition.")
      .def_property_readonly("const_rg", &Class::const_grouping,
                             "Groups of constant stride that refine these.")
      .def_property_readonly(
          "to_device_map", [](const Class& self) { return map_of(self, &Class::to_device_map); },
          "Group of each group of ``const_rg``; None when the stride is constant.")
      .def_property_readonly(
          "to_host_map", [](const Class& self) { return map_of(self, &Class::to_host_map); },
          "First group of ``const_rg`` in each group; None when the stride is constant.")
      .def("transpose", &Class::transpose, "New group k holds the k-th member of every group.")
      .def("table", &Class::table, "Text with a row a group; the middle of long ones is left out.")
      .def("__eq__", &equal_groupings, py::arg("other"))
      .def("__hash__", [](const Class& self) { return py::hash(tuple_of(self.assignment())); })
      .def("__reduce__", [](const Class& self) { return rebuilt_by("_grouping", self.assignment()); })
      .def("__repr__", &Class::to_string);
  refuse_other_arguments(grouping, "ReplicaGrouping",
                         {{"from_stride", "replicas, stride=1, group_size=None", true},
                          {"from_assignment", "a sequence of ints", true},
                          {"members", "group"},
                          {"transpose", ""},
                          {"table", ""}});
}

constexpr const char* kCommGroupDoc =
    "Groups by kind and size, for any replica count.\n\n"
    "``All``: one group. ``Consecutive``: neighbours, {0..k-1}, {k..2k-1} and so on. ``Orthogonal``: {j, "
    "j+m, "
    "j+2m, ...}\nwith m = replicas / k groups. ``Ungrouped``: a group a replica. The size k has no meaning "
    "for "
    "``All`` and\n``Ungrouped``, but counts when two are compared.\n\n"
    "Args:\n"
    "    type: the kind. Default: All.\n"
    "    size: members of a group, at least 1 for Consecutive and Orthogonal.\n"
    "Raises:\n"
    "    ReplicaError: the size is too small.   TypeError: other arguments.";

void bind_comm_group_type(py::module_& m) {
  py::native_enum<CommGroupType>(m, "CommGroupType", "popsr._support.host.choices.Choices",
                                 "Kinds of groups of a CommGroup. ``None_`` is another name of Ungrouped.")
      .value("All", CommGroupType::kAll)
      .value("Consecutive", CommGroupType::kConsecutive)
      .value("Orthogonal", CommGroupType::kOrthogonal)
      .value("Ungrouped", CommGroupType::kUngrouped)
      .value("None_", CommGroupType::kUngrouped)
      .finalize();
}

CommGroup comm_group_from(const As<"ReplicaGrouping">& grouping) {
  if (py::isinstance<ReplicaGrouping>(grouping)) {
    return CommGroup::from_replica_grouping(grouping.cast<const ReplicaGrouping&>());
  }
  raise_as("ArgumentTypeError",
           fmt::format("comm_group: got {}, expected a ReplicaGrouping", shown(grouping)));
}

void bind_comm_group(py::module_& m) {
  const auto replicas_of = [](const AnInt& value) { return read_int("comm_group", "replicas", value); };
  py::class_<CommGroup> group(m, "CommGroup", kCommGroupDoc);
  guard(group)
      .def(py::init([](CommGroupType type, Integer size) {
             return std::make_unique<CommGroup>(type, size.value);
           }),
           py::arg("type") = CommGroupType::kAll, py::arg("size") = 0)
      .def(no_other_arguments<CommGroup>("comm_group", "a CommGroupType and an int"))
      .def_static(
          "from_replica_grouping", &comm_group_from, py::arg("grouping"),
          "The first that fits of Ungrouped, All, Orthogonal and Consecutive. ReplicaError when none does, "
          "as for {0,2}{1,3}{4,6}{5,7}.")
      .def_property_readonly("type", &CommGroup::type, "The kind of the groups.")
      .def_property_readonly("size", &CommGroup::size, "Members of a group; 0 for kinds that have no size.")
      .def(
          "to_replica_grouping",
          [=](const CommGroup& self, const AnInt& n) { return self.to_replica_grouping(replicas_of(n)); },
          py::arg("replicas"), "The groups. ReplicaError unless the size divides the replicas.")
      .def(
          "complement",
          [=](const CommGroup& self, const AnInt& n) { return self.complement(replicas_of(n)); },
          py::arg("replicas"),
          "The groups across these: Consecutive and Orthogonal swap, as do All and Ungrouped. ReplicaError "
          "unless the size divides the replicas.")
      .def(
          "table",
          [=](const CommGroup& self, const AnInt& n) {
            return self.to_replica_grouping(replicas_of(n)).table();
          },
          py::arg("replicas"), "Text with a row a group; the middle of long ones is left out.")
      .def(
          "__eq__", [](const CommGroup& a, const CommGroup& b) { return a == b; }, py::is_operator())
      .def("__hash__", [](const CommGroup& self) { return py::hash(py::str(self.to_string())); })
      .def("__reduce__",
           [](const CommGroup& self) { return rebuilt_by("CommGroup", self.type(), self.size()); })
      .def("__repr__", &CommGroup::to_string);
  refuse_other_arguments(group, "CommGroup",
                         {{"from_replica_grouping", "a ReplicaGrouping", true},
                          {"to_replica_grouping", "replicas"},
                          {"complement", "replicas"},
                          {"table", "replicas"}});
  group.attr("replicaGroupSize") = group.attr("size");
  group.attr("toReplicaGrouping") = group.attr("to_replica_grouping");
}

}  // namespace

void bind_groups(py::module_& m) {
  bind_grouping(m);
  bind_comm_group_type(m);
  bind_comm_group(m);
}

}  // namespace popsr::bindings
