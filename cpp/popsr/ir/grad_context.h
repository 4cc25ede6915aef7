// What an op's gradient rule is given: it emits ops of the gradient graph.
#pragma once

#include <functional>
#include <string_view>
#include <utility>
#include <vector>

#include "popsr/ir/ir.h"

namespace popsr {

/// Gradient of one forward op. All TensorIds it takes and returns belong to the gradient graph, except in
/// `op`.
class GradContext {
 public:
  GradContext(Ir& ir, GraphId graph, const Op& op, std::vector<TensorId> cotangents, std::vector<bool> wanted,
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

  /// The forward value of input / output i; asking makes it an input of the gradient graph.
  TensorId in(std::size_t i) { return forward_(op_.inputs[i]); }
  TensorId out(std::size_t i) { return forward_(op_.outputs[i]); }
  /// Types without making a connection.
  const TensorType& in_type(std::size_t i) const { return ir_.tensor(op_.inputs[i]).type; }
  const TensorType& out_type(std::size_t i) const { return ir_.tensor(op_.outputs[i]).type; }
  /// Gradient of output i; kNone when nothing flows into it.
  TensorId cotangent(std::size_t i) const { return cotangents_[i]; }
  /// Is the gradient of input i needed?
  bool wants(std::size_t i) const { return i < op_.inputs.size() && op_.inputs[i] != kNone && wanted_[i]; }
  void set(std::size_t i, TensorId gradient) { gradients_[i] = gradient; }
  const std::vector<TensorId>& gradients() const { return gradients_; }

  /// Emits an op into the gradient graph, at the forward op's location and place; returns output 0.
  TensorId emit(std::string_view op, std::vector<TensorId> inputs,
                std::vector<std::pair<std::string, Attribute>> attrs = {});
  /// The same; returns all outputs.
  std::vector<TensorId> emit_all(std::string_view op, std::vector<TensorId> inputs,
                                 std::vector<std::pair<std::string, Attribute>> attrs = {});
  /// A scalar constant of that dtype.
  TensorId scalar(double value, DType dtype);
  /// Undoes broadcasting: sums `t` to `shape` (NumPy rules).
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

}  // namespace popsr
