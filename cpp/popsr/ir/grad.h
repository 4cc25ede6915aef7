// Gradient rules: values of the gradient graph, and the context of a rule.
#pragma once

#include <functional>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "popsr/ir/ir.h"

namespace popsr {

class Grad;

/// A tensor of the gradient graph, or the op that will make it. Expressions are lazy: an op is emitted when
/// Grad::set or `tensor` asks for its value, after its operands from left to right, and once.
class GradValue {
 public:
  GradValue() = default;
  GradValue(Grad& grad, TensorId tensor);
  GradValue(Grad& grad, std::function<TensorId()> make);

  /// False: no value, an absent operand or gradient.
  explicit operator bool() const { return node_ != nullptr; }
  /// Emits the value; kNone where there is none.
  TensorId tensor() const;
  /// Emits the value.
  const TensorType& type() const;
  /// Emits the value before what follows; returns it.
  const GradValue& now() const;
  /// The rule's context; there must be a value.
  Grad& grad() const;

 private:
  struct Node {
    Grad& grad;
    std::function<TensorId()> make;
    TensorId tensor = kNone;
  };
  std::shared_ptr<Node> node_;
};

GradValue operator+(const GradValue& lhs, const GradValue& rhs);
GradValue operator-(const GradValue& lhs, const GradValue& rhs);
GradValue operator*(const GradValue& lhs, const GradValue& rhs);
GradValue operator/(const GradValue& lhs, const GradValue& rhs);
GradValue operator-(const GradValue& t);

/// Gradient of one forward op. All TensorIds it takes and returns belong to the gradient graph, except in
/// `op`.
class Grad {
 public:
  Grad(Ir& ir, GraphId graph, const Op& op, std::vector<TensorId> cotangents, std::vector<bool> wanted,
       std::function<TensorId(TensorId)> forward)
      : ir_(ir),
        graph_(graph),
        op_(op),
        cotangents_(std::move(cotangents)),
        wanted_(std::move(wanted)),
        forward_(std::move(forward)),
        gradients_(op.inputs.size(), kNone) {}

  const Op& op() const { return op_; }
  Ir& ir() { return ir_; }
  GraphId graph() const { return graph_; }

  /// The forward value of input / output i; it becomes an input of the gradient graph when it is emitted. No
  /// value for an optional input that is absent.
  GradValue x(std::size_t i = 0);
  GradValue y(std::size_t i = 0);
  /// Gradient of output i; no value when nothing flows into it.
  GradValue dy(std::size_t i = 0);
  /// Types without making a connection.
  const TensorType& in_type(std::size_t i) const { return ir_.tensor(op_.inputs[i]).type; }
  const TensorType& out_type(std::size_t i) const { return ir_.tensor(op_.outputs[i]).type; }
  /// True if the gradient of input i is needed and can exist (floating).
  bool differentiates(std::size_t i) const;
  /// Sets the gradient of input i where it is needed; otherwise nothing of the expression is emitted.
  void set(std::size_t i, const GradValue& gradient);
  const std::vector<TensorId>& gradients() const { return gradients_; }

  /// Output 0 of an op in the gradient graph, at the forward op's location and place.
  GradValue call(std::string_view op, std::vector<GradValue> inputs, std::vector<NamedAttribute> attrs = {});
  /// Emits such an op at once; returns all outputs.
  std::vector<GradValue> call_all(std::string_view op, const std::vector<GradValue>& inputs,
                                  std::vector<NamedAttribute> attrs = {});
  /// The attribute as the forward op has it, for an op that is called.
  template <class Handle>
  NamedAttribute same(const Handle& attr) const {
    return {std::string(attr.name), op_.attribute(attr.name)};
  }
  /// The same of several attributes.
  std::vector<NamedAttribute> same(const std::vector<AttrDef>& attrs) const;
  template <class Handle>
  decltype(auto) get(const Handle& attr) const {
    return op_.get(attr);
  }
  template <class Handle>
  auto find(const Handle& attr) const {
    return op_.find(attr);
  }

  /// A scalar constant of that dtype.
  GradValue constant(double value, DType dtype);
  /// t * factor by the op "scale".
  GradValue scale(const GradValue& t, double factor);
  GradValue cast(const GradValue& t, DType dtype);
  GradValue reshape(const GradValue& t, Shape shape);
  /// The same; `t` itself where it has that shape.
  GradValue reshape_to(const GradValue& t, Shape shape);
  /// Undoes broadcasting: sums `t` to the shape of input i (NumPy rules).
  GradValue sum_to_input(std::size_t i, const GradValue& t);
  GradValue sum_to(const GradValue& t, Shape shape);
  /// Zeros of the type of input i.
  GradValue zeros_like_input(std::size_t i);

  // To be replaced by the above.
  TensorId in(std::size_t i) { return forward_(op_.inputs[i]); }
  TensorId out(std::size_t i) { return forward_(op_.outputs[i]); }
  TensorId cotangent(std::size_t i) const { return cotangents_[i]; }
  bool wants(std::size_t i) const { return i < op_.inputs.size() && op_.inputs[i] != kNone && wanted_[i]; }
  void set(std::size_t i, TensorId gradient) { gradients_[i] = gradient; }
  TensorId emit(std::string_view op, std::vector<TensorId> inputs, std::vector<NamedAttribute> attrs = {});
  std::vector<TensorId> emit_all(std::string_view op, std::vector<TensorId> inputs,
                                 std::vector<NamedAttribute> attrs = {});
  TensorId scalar(double value, DType dtype);
  TensorId sum_to(TensorId t, const Shape& shape);
  const TensorType& type(TensorId t) const { return ir_.tensor(t).type; }

 private:
  Ir& ir_;
  GraphId graph_;
  const Op& op_;
  std::vector<TensorId> cotangents_;
  std::vector<bool> wanted_;
  std::function<TensorId(TensorId)> forward_;
  std::vector<TensorId> gradients_;
};
using GradContext = Grad;  // To be replaced by Grad.

}  // namespace popsr
