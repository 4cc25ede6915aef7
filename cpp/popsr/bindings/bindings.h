// The Python module in parts: one bind_<topic>.cpp each. The only folder that knows pybind11.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <memory>
#include <optional>
#include <string>

#include "popsr/ir/ir.h"
#include "popsr/ir/op_def.h"

namespace popsr::bindings {

namespace py = pybind11;

void bind_process(py::module_& m);            ///< Floating-point environment, end of the interpreter.
void bind_errors(py::module_& m);             ///< Translates popsr::Error and its children to popsr.errors.
void bind_replica(py::module_& m);            ///< Partition.
void bind_groups(py::module_& m);             ///< ReplicaGrouping, CommGroup.
void bind_variable_settings(py::module_& m);  ///< VariableSettings, VariableRetrievalMode.
void bind_ir(py::module_& m);                 ///< Ir: graphs, tensors, ops and streams by id; emission.
void bind_transaction(py::module_& m);        ///< Calls that change a program completely or not at all.
void bind_iteration(py::module_& m);          ///< Function iter() of classes that are not Iterables.
void bind_schemas(py::module_& m);            ///< Function op_schemas(): declarations of the registry.
void bind_analysis(py::module_& m);           ///< SeedRules, PartitionAnalysis.
void bind_popart(py::module_& m);             ///< PopartAnalysis.
void bind_explain(py::module_& m);            ///< Explainer: facts over time, explanations, lints.
void bind_transform(py::module_& m);          ///< autodiff, merging.
void bind_ranks(py::module_& m);              ///< RankLink: processes that run a program together.
void bind_session(py::module_& m);            ///< Session, threads.
void bind_sr(py::module_& m);                 ///< Submodule sr: stochastic rounding of NumPy arrays.
void bind_fields(py::module_& m);             ///< Submodule fields: residues in a chain of prime fields.
void bind_dlpack(py::module_& m);             ///< Capsules of DLPack, read and made.

py::object to_python(const Attribute& value);
/// Attribute value from a Python object. Throws AttributeValueError naming op, attribute, got and expected.
Attribute to_attribute(const Ir& ir, const OpDef& op, const AttrDef& def, py::handle value);
std::string_view to_string(AttrType type);
py::tuple to_tuple(const Shape& shape);
/// Copy of the bytes as uint8[n]; the caller views it as its dtype.
py::array copy_of_bytes(const std::byte* data, std::size_t bytes);

/// Checked id: ids come from Python as plain integers. Throws InternalError if out of range.
GraphId checked_graph(const Ir& ir, GraphId id);
TensorId checked_tensor(const Ir& ir, TensorId id);
OpId checked_op(const Ir& ir, OpId id);

/// Id from an int or None in Python.
template <class Tag>
std::optional<Id<Tag>> optional_id(Id<Tag> id) {
  return id == kNone ? std::nullopt : std::optional(id);
}

}  // namespace popsr::bindings

/// Type caster between ids and ints of Python.
template <class Tag>
struct pybind11::detail::type_caster<popsr::Id<Tag>> {
  using Number = make_caster<std::uint32_t>;
  PYBIND11_TYPE_CASTER(popsr::Id<Tag>, Number::name);
  bool load(handle source, bool convert) {
    Number number;
    if (!number.load(source, convert)) return false;
    value = popsr::Id<Tag>(cast_op<std::uint32_t>(number));
    return true;
  }
  static handle cast(popsr::Id<Tag> id, return_value_policy policy, handle parent) {
    return Number::cast(id.value, policy, parent);
  }
};
