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
/// Grad::set or `tensor` asks for its value, after its operands from left to right, and only once.
class GradValue {
 public:
  GradValue() = default;
  GradValue(Grad& grad, TensorId tensor);
  GradValue(Grad& grad, std::function<TensorId()> make);

  /// False if there is no value: an absent operand or gradient.
  explicit operator bool() const { return node_ != nullptr; }
  /// Emits the value and returns it; kNone if there is no value.
  TensorId tensor() const;
  /// Emits the value and returns its type.
  const TensorType& type() const;
  /// Emits the value before the expressions that follow, and returns it.
  const GradValue& now() const;
  /// Context of the rule; there must be a value.
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

/// Context of a gradient rule, for one forward op. TensorIds that its functions take and return belong to
/// the gradient graph, except in `op`.
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

  /// Forward value of input (output) i; it becomes an input of the gradient graph when it is emitted. No
  /// value for an optional input that is absent.
  GradValue x(std::size_t i = 0);
  GradValue y(std::size_t i = 0);
  /// Gradient of output i; no value if no gradient flows into it.
  GradValue dy(std::size_t i = 0);
  /// Types of the operands; asking for them does not make them inputs of the gradient graph.
  const TensorType& in_type(std::size_t i) const { return ir_.tensor(op_.inputs[i]).type; }
  const TensorType& out_type(std::size_t i) const { return ir_.tensor(op_.outputs[i]).type; }
  /// True if the gradient of input i is needed and can exist (floating).
  bool differentiates(std::size_t i) const;
  /// Sets the gradient of input i if it is needed; otherwise nothing of the expression is emitted.
  void set(std::size_t i, const GradValue& gradient);
  const std::vector<TensorId>& gradients() const { return gradients_; }

  /// Expression for output 0 of an op in the gradient graph, at the forward op's location and place.
  GradValue call(std::string_view op, std::vector<GradValue> inputs, std::vector<NamedAttribute> attrs = {});
  /// Emits an op at once and returns all its outputs; see call().
  std::vector<GradValue> call_all(std::string_view op, const std::vector<GradValue>& inputs,
                                  std::vector<NamedAttribute> attrs = {});
  /// Attribute with the forward op's value, for an op that is called.
  template <class Handle>
  NamedAttribute same(const Handle& attr) const {
    return {std::string(attr.name), op_.attribute(attr.name)};
  }
  /// Attributes with the forward op's values.
  std::vector<NamedAttribute> same(const std::vector<AttrDef>& attrs) const;
  template <class Handle>
  decltype(auto) get(const Handle& attr) const {
    return op_.get(attr);
  }
  template <class Handle>
  auto find(const Handle& attr) const {
    return op_.find(attr);
  }

  /// Scalar constant of that dtype.
  GradValue constant(double value, DType dtype);
  /// Expression t * factor, by the op "scale".
  GradValue scale(const GradValue& t, double factor);
  GradValue cast(const GradValue& t, DType dtype);
  GradValue reshape(const GradValue& t, Shape shape);
  /// Expression for `t` in that shape; `t` itself if it has the shape already.
  GradValue reshape_to(const GradValue& t, Shape shape);
  /// Reverses broadcasting: sums `t` to the shape of input i (NumPy rules).
  GradValue sum_to_input(std::size_t i, const GradValue& t);
  GradValue sum_to(const GradValue& t, Shape shape);
  /// Zeros of the type of input i.
  GradValue zeros_like_input(std::size_t i);

 private:
  Ir& ir_;
  GraphId graph_;
  const Op& op_;
  std::vector<TensorId> cotangents_;
  std::vector<bool> wanted_;
  std::function<TensorId(TensorId)> forward_;
  std::vector<TensorId> gradients_;
};

}  // namespace popsr
