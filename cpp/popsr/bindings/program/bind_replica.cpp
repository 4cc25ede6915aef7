#include <fmt/format.h>

#include "popsr/bindings/bindings.h"
#include "popsr/bindings/classes.h"
#include "popsr/bindings/python_values.h"
#include "popsr/bindings/records.h"
#include "popsr/replica/limits.h"
#include "popsr/replica/partition.h"

namespace popsr::bindings {
namespace {

TupleOf<TupleOf<int>> blocks_of(const Partition& partition) {
  return tuple_of(partition.blocks(), [](const std::vector<Replica>& block) { return tuple_of(block); });
}

Partition from_labels(const Ints& labels) {
  const std::vector<std::int64_t> read = read_ints("Partition.from_labels", "labels", labels);
  return Partition::from_labels(std::vector<std::uint64_t>(read.begin(), read.end()));
}

/// One line: of long partitions the first and the last blocks.
std::string repr_of(const Partition& partition) {
  constexpr std::size_t kMost = 150, kHead = 90, kTail = 30;
  const std::string text = partition.to_string();
  if (text.size() <= kMost) return fmt::format("Partition('{}')", text);
  return fmt::format("Partition('{}…{}' of {} blocks of {} replicas)", text.substr(0, kHead),
                     text.substr(text.size() - kTail), partition.num_blocks(), partition.replicas());
}

TupleOf<int> labels_of(const Partition& partition) { return tuple_of(partition.labels()); }

}  // namespace

void bind_replica(py::module_& m) {
  m.attr("MAX_REPLICAS") = kMaxReplicas;
  py::class_<Partition> partition(
      m, "Partition", "Which replicas hold bitwise the same value: blocks of replicas that agree.");
  guard(partition)
      .def(py::init([](const py::args&, const py::kwargs&) -> std::unique_ptr<Partition> {
        raise_as("ArgumentTypeError",
                 "Partition: cannot be constructed, expected Partition.from_labels(labels)");
      }))
      .def_static("from_labels", &from_labels, py::arg("labels"), "Groups replicas of equal label.")
      .def_property_readonly("blocks", &blocks_of, "Members of each block, by smallest member.")
      .def_property_readonly("labels", &labels_of, "Block of each replica, numbered by first appearance.")
      .def_property_readonly("num_blocks", &Partition::num_blocks, "Number of blocks.")
      .def_property_readonly("num_replicas", &Partition::replicas, "Number of replicas.")
      .def("meet", &Partition::meet, py::arg("other"), "Common refinement.")
      .def("join", &Partition::join, py::arg("other"), "Transitive closure of the union.")
      .def("refines", &Partition::refines, py::arg("other"),
           "True if each block lies in a block of ``other``.")
      .def("__and__", &Partition::meet, py::is_operator())
      .def("__or__", &Partition::join, py::is_operator())
      .def(
          "__eq__", [](const Partition& a, const Partition& b) { return a == b; }, py::is_operator())
      .def("__reduce__", [](const Partition& self) { return rebuilt_by("_partition", labels_of(self)); })
      .def("__hash__", [](const Partition& partition) { return py::hash(labels_of(partition)); })
      .def("__str__", &Partition::to_string)
      .def("__repr__", &repr_of);
  refuse_other_arguments(partition, "Partition",
                         {{"from_labels", "a sequence of ints", true},
                          {"meet", "a Partition"},
                          {"join", "a Partition"},
                          {"refines", "a Partition"}});
}

}  // namespace popsr::bindings
