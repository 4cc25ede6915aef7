// What the registry declares, as plain data: tests and tools enumerate it instead of keeping lists.
#include <algorithm>

#include "popsr/bindings/bindings.h"
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

py::list attrs_of(const OpDef& def) {
  py::list attrs;
  for (const AttrDef& attr : def.attrs) {
    attrs.append(py::dict("name"_a = std::string(attr.name), "type"_a = std::string(to_string(attr.type)),
                          "required"_a = !attr.has_default, "default"_a = to_python(attr.default_value),
                          "internal"_a = attr.internal));
  }
  return attrs;
}

std::string control_of(const OpDef& def) {
  switch (def.control) {
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

/// What a gradient that is asked for becomes: its kernel, zeros, nothing (an error where nothing else flows),
/// or an error at once.
std::string gradient_of(const OpDef& def) {
  if (def.grad == zero_gradient) return "zeros";
  if (def.grad != nullptr || (def.control == Control::kCall || def.control == Control::kConditional))
    return "yes";
  return def.no_grad == NoGrad::kThrows ? "throws" : "none";
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
  if (!def.partition_says.empty()) return std::string(def.partition_says);
  if (def.control != Control::kNone) return "that of the graphs it runs";
  if (def.partition == meet_of_inputs) return meet_of(def);
  return def.partition == equal_everywhere ? "equal everywhere" : "";
}

py::dict schema_of(const OpDef& def) {
  py::list effects;
  for (const Effect& effect : def.effects) effects.append(py::make_tuple(effect.input, effect.output));
  return py::dict("name"_a = std::string(def.name), "inputs"_a = inputs_of(def), "attrs"_a = attrs_of(def),
                  "internal"_a = def.internal, "effects"_a = effects, "view"_a = def.view != nullptr,
                  "rounding"_a = def.rounding != Rounding::kNone, "random"_a = def.random,
                  "has_grad"_a = def.grad != nullptr, "grad_throws"_a = def.no_grad == NoGrad::kThrows,
                  "gradient"_a = gradient_of(def), "partition"_a = partition_of(def),
                  "exchange"_a = def.exchange != nullptr, "observable"_a = def.observable,
                  "control"_a = control_of(def));
}

/// Element types by name. `array`: the name of NumPy's or ml_dtypes' type with arithmetic.
py::dict dtypes() {
  py::dict rows;
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
    py::list schemas;
    const auto registry = default_registry();
    for (const std::string_view name : registry->names()) schemas.append(schema_of(registry->at(name)));
    return schemas;
  });
}

}  // namespace popsr::bindings
