#include <fmt/format.h>

#include "popsr/bindings/bindings.h"
#include "popsr/replica/partition.h"
#include "popsr/replica/replica_grouping.h"

namespace popsr::bindings {
namespace {

template <class Items, class Convert>
py::tuple tuple_of(const Items& items, const Convert& convert) {
  py::tuple result(items.size());
  for (std::size_t i = 0; i < items.size(); ++i) result[i] = convert(items[i]);
  return result;
}

py::tuple blocks_of(const Partition& partition) {
  return tuple_of(partition.blocks(), [](const std::vector<Replica>& block) {
    return tuple_of(block, [](Replica replica) { return py::int_(replica); });
  });
}

py::tuple labels_of(const Partition& partition) {
  return tuple_of(partition.labels(), [](std::uint32_t label) { return py::int_(label); });
}

std::int64_t stride_of(const ReplicaGrouping& grouping) {
  if (grouping.is_const()) return grouping.stride();
  PyErr_Format(PyExc_NotImplementedError, "stride: the grouping has no constant stride, got %s",
               grouping.to_string().c_str());
  throw py::error_already_set();
}

void bind_partition(py::module_& m) {
  py::class_<Partition>(m, "Partition",
                        "Which replicas hold bitwise the same value: blocks of replicas that agree.")
      .def_static(
          "from_labels",
          [](const std::vector<std::uint64_t>& labels) { return Partition::from_labels(labels); },
          py::arg("labels"), "Groups replicas of equal label.")
      .def_property_readonly("blocks", &blocks_of, "Members of each block, by smallest member.")
      .def_property_readonly("labels", &labels_of, "Block of each replica, numbered by first appearance.")
      .def_property_readonly("num_blocks", &Partition::num_blocks)
      .def_property_readonly("num_replicas", &Partition::replicas)
      .def("meet", &Partition::meet, py::arg("other"), "Common refinement.")
      .def("join", &Partition::join, py::arg("other"), "Transitive closure of the union.")
      .def("refines", &Partition::refines, py::arg("other"), "Does each block lie in a block of ``other``?")
      .def("__and__", &Partition::meet, py::is_operator())
      .def("__or__", &Partition::join, py::is_operator())
      .def(
          "__eq__", [](const Partition& a, const Partition& b) { return a == b; }, py::is_operator())
      .def("__hash__", [](const Partition& partition) { return py::hash(labels_of(partition)); })
      .def("__str__", &Partition::to_string)
      .def("__repr__",
           [](const Partition& partition) { return fmt::format("Partition('{}')", partition.to_string()); });
}

void bind_grouping(py::module_& m) {
  py::class_<ReplicaGrouping>(m, "ReplicaGrouping",
                              "A tiling of the replicas into groups of equal size; see Ir.replica_grouping.")
      .def_static("from_stride", &ReplicaGrouping::from_stride, py::arg("replicas"), py::arg("stride") = 1,
                  py::arg("group_size") = py::none(),
                  "Groups of `group_size` replicas, `stride` apart; by default replicas // stride. "
                  "ReplicaError unless they "
                  "tile the replicas.")
      .def_static(
          "from_assignment",
          [](const std::vector<std::int64_t>& assignment) {
            return ReplicaGrouping::from_assignment(assignment);
          },
          py::arg("assignment"),
          "Groups from the group of each replica. ReplicaError unless groups are of one size and numbered "
          "from 0 in "
          "order of first appearance.")
      .def_property_readonly("num_replicas", &ReplicaGrouping::replicas)
      .def_property_readonly("num_groups", &ReplicaGrouping::num_groups)
      .def_property_readonly("group_size", &ReplicaGrouping::group_size)
      .def_property_readonly("stride", &stride_of,
                             "Distance between members; NotImplementedError when it varies.")
      .def_property_readonly("is_const", &ReplicaGrouping::is_const)
      .def_property_readonly("assignment",
                             [](const ReplicaGrouping& grouping) { return grouping.assignment(); })
      .def("transpose", &ReplicaGrouping::transpose, "New group k holds the k-th member of every group.")
      .def("__eq__",
           [](const ReplicaGrouping& grouping, py::handle other) {
             if (py::isinstance<ReplicaGrouping>(other))
               return grouping == other.cast<const ReplicaGrouping&>();
             throw py::type_error("a ReplicaGrouping compares with a ReplicaGrouping only");
           })
      .def("__hash__",
           [](const ReplicaGrouping& grouping) {
             return py::hash(
                 tuple_of(grouping.assignment(), [](std::int64_t group) { return py::int_(group); }));
           })
      .def("__repr__", &ReplicaGrouping::to_string);
}

}  // namespace

void bind_replica(py::module_& m) {
  bind_partition(m);
  bind_grouping(m);
}

}  // namespace popsr::bindings
