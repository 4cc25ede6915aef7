// Steps of random programs that differentiate: a layer, which is a chain of ops from its first input to its
// output, a call of it, and one of its gradient graph.
#pragma once

#include <cstdint>
#include <map>

#include "fuzz/programs/random_graphs.h"
#include "popsr/transform/autodiff.h"

namespace popsr::test {

class RandomLayers : public RandomGraphs {
 public:
  using RandomGraphs::RandomGraphs;

 protected:
  void layer();

 private:
  void link(TensorId last);
  void link_elementwise(TensorId last);
  void link_along_axis(TensorId last);
  void link_members(TensorId last);
  void link_graph(TensorId last);
  void differentiate(const Callable& callable);
  TensorId operand(const ExpectedConnection& each, const Callable& callable, OpId forward);

  std::map<GraphId, GradGraph> gradients_;  ///< Gradient graph by forward graph.
};

}  // namespace popsr::test
