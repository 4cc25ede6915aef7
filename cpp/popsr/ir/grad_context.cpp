#include "popsr/ir/grad_context.h"

#include <cstring>
#include <utility>

#include "popsr/base/error.h"
#include "popsr/ir/op_def.h"

namespace popsr {
namespace {

template <class T>
void put(std::vector<std::byte>& bytes, T value) {
  bytes.resize(sizeof(T));
  std::memcpy(bytes.data(), &value, sizeof(T));
}

/// Bytes of a small exact value; gradients need only simple ones (0, 1, counts).
std::vector<std::byte> scalar_bytes(double value, DType dtype) {
  std::vector<std::byte> bytes;
  switch (dtype) {
    case DType::kFloat64:
      put(bytes, value);
      break;
    case DType::kFloat32:
      put(bytes, static_cast<float>(value));
      break;
    default:
      raise<InternalError>("scalar: no constant of dtype {}", info(dtype).name);
  }
  return bytes;
}

}  // namespace

TensorId GradContext::emit(std::string_view op, std::vector<TensorId> inputs,
                           std::vector<std::pair<std::string, Attribute>> attrs) {
  return emit_all(op, std::move(inputs), std::move(attrs)).at(0);
}

std::vector<TensorId> GradContext::emit_all(std::string_view op, std::vector<TensorId> inputs,
                                            std::vector<std::pair<std::string, Attribute>> attrs) {
  const OpId id = ir_.emit(graph_, op, std::move(inputs),
                           {.attrs = std::move(attrs),
                            .location = op_.location,
                            .place = op_.place,
                            .allow_stochastic = op_.allow_stochastic});
  return ir_.op(id).outputs;
}

TensorId GradContext::scalar(double value, DType dtype) {
  if (is_narrow_float(dtype)) {
    return emit("cast", {scalar(value, DType::kFloat32)}, {{"data_type", dtype}});
  }
  return ir_.add_constant(graph_, "grad_constant", {dtype, {}},
                          std::make_shared<const HostBytes>(scalar_bytes(value, dtype)));
}

TensorId GradContext::sum_to(TensorId t, const Shape& shape) {
  const Shape from = type(t).shape;
  if (from == shape) return t;
  const std::size_t lead = from.size() - shape.size();
  std::vector<std::int64_t> axes;
  for (std::size_t d = 0; d < from.size(); ++d) {
    if (d < lead || (shape[d - lead] == 1 && from[d] != 1)) axes.push_back(static_cast<std::int64_t>(d));
  }
  const TensorId sum = axes.empty() ? t : emit("sum", {t}, {{"axis", std::move(axes)}, {"keepdims", true}});
  return type(sum).shape == shape ? sum : emit("reshape", {sum}, {{"shape", shape}});
}

}  // namespace popsr
