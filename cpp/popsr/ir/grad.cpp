#include "popsr/ir/grad.h"

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

/// Axes along which a value of `shape` was repeated for a value of shape `from`.
std::vector<std::int64_t> broadcast_axes(const Shape& from, const Shape& shape) {
  const std::size_t lead = from.size() - shape.size();
  std::vector<std::int64_t> axes;
  for (std::size_t d = 0; d < from.size(); ++d) {
    if (d < lead || (shape[d - lead] == 1 && from[d] != 1)) axes.push_back(static_cast<std::int64_t>(d));
  }
  return axes;
}

}  // namespace

GradValue::GradValue(Grad& grad, TensorId tensor) {
  if (tensor != kNone) node_ = std::make_shared<Node>(Node{grad, nullptr, tensor});
}

GradValue::GradValue(Grad& grad, std::function<TensorId()> make)
    : node_(std::make_shared<Node>(Node{grad, std::move(make)})) {}

TensorId GradValue::tensor() const {
  if (!node_) return kNone;
  if (node_->make) node_->tensor = std::exchange(node_->make, nullptr)();
  return node_->tensor;
}

const TensorType& GradValue::type() const { return grad().ir().tensor(tensor()).type; }

const GradValue& GradValue::now() const {
  tensor();
  return *this;
}

Grad& GradValue::grad() const {
  POPSR_CHECK(node_ != nullptr);
  return node_->grad;
}

GradValue operator+(const GradValue& lhs, const GradValue& rhs) { return lhs.grad().call("add", {lhs, rhs}); }
GradValue operator-(const GradValue& lhs, const GradValue& rhs) { return lhs.grad().call("sub", {lhs, rhs}); }
GradValue operator*(const GradValue& lhs, const GradValue& rhs) { return lhs.grad().call("mul", {lhs, rhs}); }
GradValue operator/(const GradValue& lhs, const GradValue& rhs) { return lhs.grad().call("div", {lhs, rhs}); }
GradValue operator-(const GradValue& t) { return t.grad().call("negate", {t}); }

GradValue Grad::x(std::size_t i) {
  if (i >= op_.inputs.size() || op_.inputs[i] == kNone) return {};
  return {*this, [this, i] { return forward_(op_.inputs[i]); }};
}

GradValue Grad::y(std::size_t i) {
  return {*this, [this, i] { return forward_(op_.outputs[i]); }};
}

GradValue Grad::dy(std::size_t i) { return {*this, cotangents_[i]}; }

bool Grad::differentiates(std::size_t i) const {
  return i < op_.inputs.size() && op_.inputs[i] != kNone && wanted_[i] && is_float(in_type(i).dtype);
}

void Grad::set(std::size_t i, const GradValue& gradient) {
  if (differentiates(i)) gradients_[i] = gradient.tensor();
}

GradValue Grad::call(std::string_view op, std::vector<GradValue> inputs, std::vector<NamedAttribute> attrs) {
  return {*this, [this, op, inputs = std::move(inputs), attrs = std::move(attrs)] {
            return call_all(op, inputs, attrs).at(0).tensor();
          }};
}

std::vector<GradValue> Grad::call_all(std::string_view op, const std::vector<GradValue>& inputs,
                                      std::vector<NamedAttribute> attrs) {
  std::vector<TensorId> operands;
  operands.reserve(inputs.size());
  for (const GradValue& input : inputs) operands.push_back(input.tensor());
  const OpId id = ir_.emit(
      graph_, op, std::move(operands),
      {.attrs = std::move(attrs), .origin = op_.origin, .allow_stochastic = op_.noise.allow_stochastic});
  std::vector<GradValue> outputs;
  for (const TensorId output : ir_.op(id).outputs) outputs.emplace_back(*this, output);
  return outputs;
}

std::vector<NamedAttribute> Grad::same(const std::vector<AttrDef>& attrs) const {
  std::vector<NamedAttribute> named;
  for (const AttrDef& attr : attrs) named.emplace_back(std::string(attr.name), op_.attribute(attr.name));
  return named;
}

GradValue Grad::constant(double value, DType dtype) {
  if (is_narrow_float(dtype)) return cast(constant(value, DType::kFloat32), dtype);
  return {*this, [this, value, dtype] {
            return ir_.add_constant(graph_, "grad_constant", {dtype, {}},
                                    std::make_shared<const HostBytes>(scalar_bytes(value, dtype)));
          }};
}

GradValue Grad::scale(const GradValue& t, double factor) { return call("scale", {t}, {{"factor", factor}}); }

GradValue Grad::cast(const GradValue& t, DType dtype) { return call("cast", {t}, {{"data_type", dtype}}); }

GradValue Grad::reshape(const GradValue& t, Shape shape) {
  return call("reshape", {t}, {{"shape", std::move(shape)}});
}

GradValue Grad::reshape_to(const GradValue& t, Shape shape) {
  return {*this, [this, t, shape = std::move(shape)] {
            return t.type().shape == shape ? t.tensor() : reshape(t, shape).tensor();
          }};
}

GradValue Grad::sum_to_input(std::size_t i, const GradValue& t) { return sum_to(t, in_type(i).shape); }

GradValue Grad::sum_to(const GradValue& t, Shape shape) {
  return {*this, [this, t, shape = std::move(shape)] {
            const Shape from = t.type().shape;
            if (from == shape) return t.tensor();
            const std::vector<std::int64_t> axes = broadcast_axes(from, shape);
            const GradValue sum = axes.empty() ? t : call("sum", {t}, {{"axis", axes}, {"keepdims", true}});
            return reshape_to(sum, shape).tensor();
          }};
}

GradValue Grad::zeros_like_input(std::size_t i) {
  const Tensor& input = ir_.tensor(op_.inputs[i]);
  return call("init", {},
              {{"shape", input.type.shape}, {"dtype", input.type.dtype}, {"meta_shape", input.meta_shape}});
}

}  // namespace popsr
