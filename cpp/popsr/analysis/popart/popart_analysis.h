// Mode "popart": the analysis of replica-equal tensors as PopART does it, with its errors, for comparison and
// for people who must predict what PopART did. The correct facts are in partition_analysis.h.
//
// A value is (tensor, time) -> equal on all replicas or not (values.h). Passes over the main graph are
// repeated until nothing changes; a variable that ends a pass unequal starts the next one unequal. Errors of
// the reference that are reproduced on purpose:
//   - variables start equal whatever their groups and shards are; remote memory is ignored;
//   - an op's outputs are equal if all inputs are (OpDef::popart), so outputs of ops without inputs are
//     equal;
//   - the values of a graph are ANDed over its call sites, and it is walked again only if its inputs changed;
//   - a loop's body is walked once with the values that enter the loop; a condition has no influence, and the
//     values of tensors that branches write by reference do not change;
//   - tensors that share memory with an op's outputs are updated with them, even if nothing was written;
//   - a graph without inputs is never walked: GraphError where the reference stops with an internal error.
// Constants are equal except for random seeds: the reference knows its one streamed seed by name, and it
// differs between replicas. Here a constant is such a seed if an op reads it as its seed (InputDef::seed);
// one that is passed into a graph is not recognised there, as in the reference. Streams are not tensors here:
// host_load reads them, and its rule depends on their mode. Cost: a pass is O(ops), and there are at most two
// more passes than variables that become unequal; an op that shares memory with n tensors costs n, so n
// writes in place of one variable cost n^2, as in the reference.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "popsr/analysis/popart/aliases.h"
#include "popsr/analysis/popart/values.h"
#include "popsr/ir/ids.h"

namespace popsr {

class Ir;
struct Op;

class PopartAnalysis {
 public:
  /// Analyses the main graph and all graphs it calls; GraphError for a called graph without inputs whose
  /// result has no value.
  explicit PopartAnalysis(const Ir& ir);

  const Ir& ir() const { return *ir_; }
  /// Throws GraphError if the program changed since the analysis.
  void check_fresh() const;

  /// All values; none for tensors of graphs that were not walked.
  const PopartValues& values() const { return values_; }
  /// True if the tensor's last value is equal on all replicas. GraphError if it has none; likewise for the
  /// functions below.
  bool is_equal(TensorId tensor) const;
  /// True if the value that the tensor holds at `time` (written then or earlier) is equal on all replicas.
  bool is_equal_at(TensorId tensor, Time time) const;
  /// True if the input is equal when the op reads it; is_output_equal: if the output is equal after the op.
  bool is_input_equal(OpId op, std::size_t input) const;
  bool is_output_equal(OpId op, std::size_t output) const;
  /// True if the reference gives the op identical seeds, also if it has no outputs.
  bool are_outputs_equal(OpId op) const;
  /// Attributes by which the reference keeps ops with different facts apart, such as ("replEqIn0", "true").
  std::vector<std::pair<std::string, std::string>> attributes(OpId op) const;
  /// Tensors that are equal at one place and unequal at another, and count as unequal.
  const std::vector<TensorId>& disagreements() const { return disagreements_; }

 private:
  /// Result of an op: a bool for each output, and for the inputs that it modifies.
  struct Results {
    std::vector<bool> outputs = {};
    std::vector<std::pair<std::uint32_t, bool>> modified = {};
  };
  /// Values of a graph's inputs and outputs when it ends.
  struct Ends {
    std::vector<bool> inputs = {}, outputs = {};
  };

  void set_initial_values();
  void solve();
  void walk(GraphId graph);
  Ends propagate(GraphId graph, const std::vector<bool>& inputs);
  std::vector<bool> inputs_of(const Op& op) const;
  Results transfer(const Op& op);
  Results transfer_local(const Op& op) const;
  Results transfer_call(const Op& op);
  Results transfer_conditional(const Op& op);
  void record(const Op& op, const Results& results);
  void record_aliases(Time now, const std::vector<std::pair<TensorId, bool>>& updates);
  void check_known(TensorId tensor) const;

  const Ir* ir_;
  std::uint64_t epoch_;
  PopartAliases aliases_;
  PopartValues values_;
  std::vector<TensorId> variables_;  ///< State of the main graph: variables and shards.
  std::vector<TensorId> disagreements_;
  /// Number of the last update of aliases that reached each tensor.
  IdVector<TensorId, std::uint32_t> visited_;
  std::uint32_t round_ = 0;
};

}  // namespace popsr
