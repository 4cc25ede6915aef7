// The registry as plain data: tests and tools enumerate it instead of keeping lists.
#include <algorithm>

#include "popsr/bindings/bindings.h"
#include "popsr/bindings/records.h"
#include "popsr/kernels/contract/elementwise.h"
#include "popsr/ops/infer.h"
#include "popsr/ops/registry.h"

namespace popsr::bindings {
namespace {

using namespace py::literals;

py::list dtype_names(DTypeSet set) {
  py::list names;
  for (const DTypeInfo& each : kDTypes) {
    if (set.contains(each.dtype)) names.append(std::string(each.name));
  }
  return names;
}

py::list inputs_of(const OpDef& def) {
  py::list inputs;
  for (const InputDef& input : def.inputs) {
    inputs.append(py::dict("name"_a = std::string(input.name), "dtypes"_a = dtype_names(input.dtypes),
                           "optional"_a = input.optional, "influences"_a = input.influences,
                           "variadic"_a = input.variadic));
  }
  return inputs;
}

py::list choices_of(const AttrDef& attr) {
  py::list choices;
  for (const std::string_view choice : attr.choices) choices.append(std::string(choice));
  return choices;
}

py::list attrs_of(const OpDef& def) {
  py::list attrs;
  for (const AttrDef& attr : def.attrs) {
    attrs.append(py::dict("name"_a = std::string(attr.name), "type"_a = std::string(to_string(attr.type)),
                          "required"_a = !attr.has_default, "default"_a = to_python(attr.default_value),
                          "internal"_a = attr.internal, "choices"_a = choices_of(attr)));
  }
  return attrs;
}

std::string control_of(const OpDef& def) {
  switch (def.program.control) {
    case Control::kNone:
      return "none";
    case Control::kCall:
      return "call";
    case Control::kRepeat:
      return "repeat";
    case Control::kConditional:
      return "conditional";
  }
  return "?";
}

/// Result of a request for a gradient: its kernel, zeros, nothing (an error where nothing else flows),
/// or an error at once.
std::string gradient_of(const OpDef& def) {
  if (std::ranges::find(def.grad.inputs, &zero_gradient) != def.grad.inputs.end()) return "zeros";
  if (def.grad.exists() ||
      (def.program.control == Control::kCall || def.program.control == Control::kConditional))
    return "yes";
  return def.grad.missing == NoGrad::kThrows ? "error" : "none";
}

/// Inputs that have a gradient rule; True for a rule of all of them.
py::object differentiated(const OpDef& def) {
  if (def.grad.inputs.empty()) return py::bool_(def.grad.exists());
  py::list inputs;
  for (std::size_t i = 0; i < def.grad.inputs.size(); ++i) {
    if (def.grad.inputs[i] != nullptr) inputs.append(i);
  }
  return inputs;
}

std::string meet_of(const OpDef& def) {
  if (std::ranges::all_of(def.inputs, &InputDef::influences)) {
    return def.inputs.empty() ? "equal everywhere" : "meet of inputs";
  }
  std::string names;
  for (const InputDef& input : def.inputs) {
    if (input.influences) names += (names.empty() ? "meet of " : ", ") + std::string(input.name);
  }
  return names.empty() ? "equal everywhere" : names;
}

std::string partition_of(const OpDef& def) {
  if (!def.replicas.rule_text.empty()) return std::string(def.replicas.rule_text);
  if (def.program.control != Control::kNone) return "as in the graphs it runs";
  if (def.replicas.partition == meet_of_inputs) return meet_of(def);
  return def.replicas.partition == equal_everywhere ? "equal everywhere" : "";
}

/// The row of the element-wise kernel that the op is, or None.
py::object elementwise_row(const OpDef& def) {
  if (!def.kernel.elementwise) return py::none();
  const kernels::ElementwiseRow row = kernels::row_of(*def.kernel.elementwise);
  return py::dict("name"_a = row.name, "operands"_a = row.operands, "scalars"_a = row.scalars,
                  "flops"_a = row.flops);
}

Keyed<"OpSchema"> schema_of(const OpDef& def) {
  py::list effects;
  for (const Effect& effect : def.memory.effects) effects.append(py::make_tuple(effect.input, effect.output));
  return py::dict("name"_a = std::string(def.name), "inputs"_a = inputs_of(def), "attrs"_a = attrs_of(def),
                  "internal"_a = def.program.internal, "effects"_a = effects,
                  "view"_a = def.memory.view != nullptr,
                  "rounding"_a = def.numerics.rounding != Rounding::kNone, "random"_a = def.numerics.random,
                  "linear"_a = def.is_linear(), "moves"_a = def.moves(), "pointwise"_a = def.is_pointwise(),
                  "has_grad"_a = def.grad.exists(), "grad_throws"_a = def.grad.missing == NoGrad::kThrows,
                  "gradient"_a = gradient_of(def), "differentiated"_a = differentiated(def),
                  "partition"_a = partition_of(def), "collective"_a = def.kernel.collective != nullptr,
                  "observable"_a = def.program.observable, "control"_a = control_of(def),
                  "family"_a = std::string(def.program.family), "elementwise"_a = elementwise_row(def),
                  "flops"_a = def.kernel.flops != nullptr);
}

/// Element types by name. `array`: the name of NumPy's or ml_dtypes' type with arithmetic.
py::typing::Dict<py::str, Keyed<"DTypeInfo">> dtypes() {
  py::typing::Dict<py::str, Keyed<"DTypeInfo">> rows;
  for (const DTypeInfo& row : kDTypes) {
    py::object format = py::none();
    if (row.format) {
      const FloatFormatInfo& f = info(*row.format);
      format = py::dict("exponent_bits"_a = f.exponent_bits, "mantissa_bits"_a = f.mantissa_bits,
                        "bias"_a = f.bias, "max_code"_a = f.max_code, "inf_code"_a = f.inf_code,
                        "nan_code"_a = f.nan_code, "negative_zero"_a = f.negative_zero,
                        "greatest"_a = greatest(*row.format));
    }
    const std::string name(row.name);
    rows[py::str(name)] = py::dict("array"_a = row.format ? info(*row.format).name : name,
                                   "size"_a = row.size, "format"_a = format);
  }
  return rows;
}

}  // namespace

void bind_schemas(py::module_& m) {
  m.def("dtypes", &dtypes);
  m.def("op_schemas", [] {
    py::typing::List<Keyed<"OpSchema">> schemas;
    const auto registry = default_registry();
    for (const std::string_view name : registry->names()) schemas.append(schema_of(registry->at(name)));
    return schemas;
  });
}

}  // namespace popsr::bindings
