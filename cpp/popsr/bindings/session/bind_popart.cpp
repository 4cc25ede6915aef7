#include "popsr/analysis/popart/popart_analysis.h"
#include "popsr/base/error.h"
#include "popsr/bindings/bindings.h"
#include "popsr/bindings/classes.h"
#include "popsr/bindings/gil.h"
#include "popsr/bindings/records.h"
#include "popsr/effects/verify.h"

namespace popsr::bindings {
namespace {

std::vector<Record<"PopartValue">> values(const PopartAnalysis& facts, TensorId tensor) {
  facts.is_equal(checked_tensor(facts.ir(), tensor));  // throws when there are none
  const Graph& graph = facts.ir().graph(facts.ir().tensor(tensor).graph);
  std::vector<Record<"PopartValue">> result;
  for (const auto& [time, equal] : facts.values().of(tensor)) {
    std::optional<OpId> op;
    if (time != kInitially) op = graph.ops[static_cast<std::size_t>(time)];
    result.push_back(Record<"PopartValue">::of(time, op, equal));
  }
  return result;
}

void check_operand(std::string_view what, std::size_t index, std::size_t count) {
  if (index < count) return;
  raise<OutOfRangeError>("analyze: no such {}, got {}, expected 0 <= index < {}", what, index, count);
}

bool is_input_equal(const PopartAnalysis& facts, OpId id, std::size_t index) {
  const Op& op = facts.ir().op(checked_op(facts.ir(), id));
  check_operand("input", index, op.inputs.size());
  return op.inputs[index] == kNone || facts.is_input_equal(id, index);
}

bool is_output_equal(const PopartAnalysis& facts, OpId id, std::size_t index) {
  check_operand("output", index, facts.ir().op(checked_op(facts.ir(), id)).outputs.size());
  return facts.is_output_equal(id, index);
}

}  // namespace

void bind_popart(py::module_& m) {
  py::class_<PopartAnalysis, std::shared_ptr<PopartAnalysis>> analysis(m, "PopartAnalysis");
  guard(analysis)
      .def(py::init([](const std::shared_ptr<Ir>& ir) {
        const WithoutGil released;
        verify(*ir);
        return make_owning<PopartAnalysis>(ir, *ir);
      }))
      .def(
          "is_equal",
          [](const PopartAnalysis& self, TensorId tensor) {
            return self.is_equal(checked_tensor(self.ir(), tensor));
          },
          py::arg("tensor"))
      .def(
          "is_equal_at",
          [](const PopartAnalysis& self, TensorId tensor, Time time) {
            return self.is_equal_at(checked_tensor(self.ir(), tensor), time);
          },
          py::arg("tensor"), py::arg("time"))
      .def("is_input_equal", &is_input_equal, py::arg("id"), py::arg("index"))
      .def("is_output_equal", &is_output_equal, py::arg("id"), py::arg("index"))
      .def(
          "attributes",
          [](const PopartAnalysis& self, OpId op) {
            py::typing::Dict<py::str, py::str> result;
            for (const auto& [name, value] : self.attributes(checked_op(self.ir(), op))) {
              result[py::str(name)] = value;
            }
            return result;
          },
          py::arg("op"))
      .def("values", &values, py::arg("tensor"))
      .def("disagreements", [](const PopartAnalysis& self) {
        self.check_fresh();
        return self.disagreements();
      });
}

}  // namespace popsr::bindings
