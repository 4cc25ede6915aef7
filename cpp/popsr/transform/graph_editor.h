// Edits of existing parts of a program: schedules, called graphs, names, the state of variables.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "popsr/ir/gradient_graph.h"
#include "popsr/ir/ir.h"

namespace popsr {

/// Slot in a new schedule: one op, or several that become one op of the definition `merged`.
struct ScheduleSlot {
  std::vector<OpId> ops;
  std::string_view merged = {};
};

/// Additional operand for an op that runs a graph.
struct SiteOperand {
  OpId op = kNone;
  TensorId tensor = kNone;
};

/// Arguments of GraphEditor::outline.
struct OutlineArgs {
  std::int64_t count = 1;      ///< Number of times that the ops run; at least 1.
  std::string_view stem = {};  ///< Stem of the new graph's name.
  bool carries = false;        ///< True if outputs of the graph become its inputs in the next iteration.
  Origin origin = {};
};
/// Result of GraphEditor::outline.
struct Outlined {
  GraphId body;
  OpId op = kNone;              ///< Loop that runs the new graph.
  std::vector<TensorId> moved;  ///< Tensors that now belong to the loop's body.
};

/// Edits of a program. Like Ir's own functions, each does all of the edit or, when it throws, none.
class GraphEditor {
 public:
  explicit GraphEditor(Ir& ir) : ir_(ir) {}

  // Edits of graphs.
  /// Removes output `index`; the tensor stays. Throws GraphError if the graph is called already.
  void remove_output(GraphId graph, std::size_t index);
  /// Renames a tensor in its graph, with a suffix if the name is taken.
  void rename(TensorId tensor, std::string_view name);
  /// Records gradients for a graph that autodiff made in this transaction.
  void set_gradient_graph(GraphId graph, GradientGraph made);
  /// Ends the graph's in_sequence record: the outermost context was left, or one of mode 'pass' entered.
  void clear_sequence(GraphId graph);
  /// Replaces the schedule from position `first` on by another one of the same ops, some of them merged;
  /// see schedule.cpp.
  void replace_schedule(GraphId graph, std::uint32_t first, const std::vector<ScheduleSlot>& schedule);
  /// Moves the ops of a graph from position `first` on, at least one, into a new graph that one repeat op
  /// runs; see outline.cpp. Throws GraphError, with nothing changed, if a tensor that they make is an
  /// output of the graph that cannot be carried from one iteration to the next.
  Outlined outline(GraphId graph, std::uint32_t first, const OutlineArgs& args);

  // Edits of ops that run graphs.
  /// Marks input `index` of an op that runs graphs as modified by reference; GraphError for a constant.
  void mark_modified(OpId op, std::uint32_t index);
  /// Adds an output to a call op after its graph gained one; returns the new tensor.
  TensorId add_call_output(OpId op, TensorId callee_output, std::string_view name);
  /// Adds an input to a graph that ops run already, and to each of them the operand for it; the graph's
  /// other inputs keep their place. Throws GraphError, ShapeError or DTypeError, with nothing added, unless
  /// every op that runs the graph is given a tensor of its own graph, of that type, that is made before it.
  TensorId add_called_input(GraphId graph, std::string_view name, TensorType type, Shape meta_shape,
                            bool by_ref, const std::vector<SiteOperand>& operands);

  // Edits of the state of variables in remote memory or in shards.
  /// Grows a remote buffer. Throws AttributeValueError if there would be fewer entries than before.
  void grow_remote_buffer(RemoteId buffer, std::int64_t entries);
  void set_meta_shape(RemoteId buffer, Shape meta_shape);
  /// Moves a variable's device value into an entry of a remote buffer. Throws if the entry is taken, does
  /// not exist or is of another type, or if shard_over does not divide the group size.
  void place_variable(TensorId variable, RemoteId buffer, std::int64_t entry, std::int64_t shard_over);
  /// Splits a variable's device value over members of its groups; returns the shard, a tensor of the main
  /// graph.
  TensorId add_shard(TensorId variable, std::int64_t shard_over, std::string_view name);

 private:
  class Outliner;

  OpId merge(GraphId graph, const ScheduleSlot& slot);
  /// Throws GraphError unless the tensor can be the operand for `input` of that op, which runs graphs.
  void check_site_operand(const Op& op, std::string_view input, const TensorType& type,
                          const Tensor& tensor) const;
  void insert_operand(OpId op, std::uint32_t index, TensorId tensor, bool modified);
  void move_home(TensorId variable, TensorId home, std::int64_t shard_over);

  Ir& ir_;
};

}  // namespace popsr
