// Graphs of random programs: calls, loops and conditionals that are opened and closed, and called again.
#pragma once

#include <optional>
#include <set>
#include <string_view>
#include <vector>

#include "fuzz/programs/random_every_op.h"

namespace popsr::test {

class RandomGraphs : public RandomEveryOp {
 public:
  using RandomEveryOp::RandomEveryOp;

 protected:
  /// A graph that can be called again.
  struct Callable {
    GraphId graph;
    std::vector<bool> written;  ///< True per input that is written.
  };
  static constexpr std::size_t kMaxDepth = 3;
  static constexpr std::size_t kOpenings = 40;

  /// Starts a call, a loop or a conditional; kind < kOpenings.
  void open(std::size_t kind);
  /// Ends the innermost graph that is open.
  void close();
  /// Other arguments for a graph that is called already: call sites that may disagree.
  void call_again();

  /// Takes the innermost frame away; the graph can be called from now on.
  Frame close_frame();
  /// Emits the op and gives some of its inputs by reference, no tensor twice.
  void run(std::string_view name, Attrs attrs, const std::vector<TensorId>& arguments,
           const std::vector<Callable>& graphs, std::size_t carried);
  /// False when there is no value of the type of some input.
  bool append_arguments(const Callable& callable, std::vector<TensorId>& arguments);

  std::vector<Callable> callables_;

 private:
  void close_call();
  void close_repeat();
  void close_while();
  Callable iteration_of(const Callable& body, std::size_t carried);
  void open_else(Frame then_branch);
  void close_conditional();
  std::optional<TensorId> last_like(TensorId t, const std::vector<TensorId>& from);
  bool try_pass(TensorId t, std::set<TensorId>& given);

  std::vector<Frame> then_branches_;  ///< Finished then branches whose else branch is being written.
};

}  // namespace popsr::test
