// The program: an Ir owns graphs, tensors, ops and streams. Built by emit(); verified, analysed and run
// elsewhere.
#pragma once

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "popsr/base/containers/stable_vector.h"
#include "popsr/ir/attribute.h"
#include "popsr/ir/edit/lineage.h"
#include "popsr/ir/graph.h"
#include "popsr/ir/ids.h"
#include "popsr/ir/op.h"
#include "popsr/ir/origin/location.h"
#include "popsr/ir/origin/sequence.h"
#include "popsr/ir/stream.h"
#include "popsr/ir/tensor.h"
#include "popsr/replica/partition.h"

namespace popsr {

class GraphEditor;
struct GradientGraph;
class Journal;
class Registry;

/// Number of objects of each kind, which are the next ids, and numbers that go into names.
struct Counters {
  std::size_t graphs = 0, tensors = 0, ops = 0, streams = 0, remotes = 0, ops_with_graphs = 0;
  std::size_t names = 0, viewed = 0;  ///< Number of tensor names, and of tensors with views.
  std::uint32_t next_subgraph = 0, next_collision = 0;
  bool operator==(const Counters&) const = default;
};

struct EmitArgs {
  std::vector<NamedAttribute> attrs = {};
  /// Names of the outputs; empty: the op's stem, such as "add_out".
  std::vector<std::string> output_names = {};
  Origin origin = {};
  SequenceMode sequence = SequenceMode::kPass;
  bool allow_stochastic = true;
};

/// The program. Every function that changes it does all of the change or, when it throws, none; also when
/// memory runs out (ir/edit/transaction.h).
class Ir {
 public:
  /// Makes an empty program. Throws ReplicaError unless replication >= 1.
  explicit Ir(std::int64_t replication, std::shared_ptr<const Registry> registry);
  virtual ~Ir();
  Ir(const Ir&) = delete;
  Ir& operator=(const Ir&) = delete;

  std::int64_t replication() const { return partitions_->replicas(); }
  PartitionTable& partitions() const { return *partitions_; }
  const std::shared_ptr<PartitionTable>& partition_table() const { return partitions_; }
  const Registry& registry() const { return *registry_; }
  LocationTable& locations() { return locations_; }
  const LocationTable& locations() const { return locations_; }

  /// Number of the program's state: each change gives a number that no state had before, and undoing a
  /// change restores the number of the earlier state. Facts remember the epoch they were computed at.
  std::uint64_t epoch() const { return epoch_; }
  /// True if the program only grew since that state, in which it had `ops` ops: nothing that it had
  /// changed, but its schedules, lists of tensors and graph outputs may have become longer.
  bool grew_from(std::uint64_t epoch, std::size_t ops) const { return lineage_.grew_from(epoch, ops); }
  /// Next number of everything that is numbered.
  Counters counters() const;

  GraphId create_graph(std::string_view stem);  ///< Makes a graph named "<stem>_subgraph(<n>)".
  /// Makes a graph of that name, or "<name>_<k>" if it is taken.
  GraphId create_named_graph(std::string_view name);
  void skip_subgraph_number();

  /// Appends an input. Throws GraphError if the graph is called already.
  TensorId add_input(GraphId graph, std::string_view name, TensorType type, Shape meta_shape = {},
                     bool by_ref = false);
  /// Appends an output. Throws GraphError if the tensor belongs to another graph.
  void add_output(GraphId graph, TensorId tensor);
  /// Adds a variable. `location`: line of the program that made it, for messages only.
  TensorId add_variable(std::string_view name, TensorType type, std::shared_ptr<const HostBytes> data,
                        ReplicaGrouping grouping, VariableRetrievalMode retrieval, LocationId location = {});
  TensorId add_constant(GraphId graph, std::string_view name, TensorType type,
                        std::shared_ptr<const HostBytes> data);
  /// Adds a remote buffer. Throws ShapeError unless entries >= 1.
  RemoteId add_remote_buffer(TensorType type, std::int64_t entries, Shape meta_shape = {});
  /// Adds a stream. `groups`: for mode kGroups. Throws ReplicaError for groups of another number of replicas.
  StreamId add_stream(std::string_view name, TensorType type, bool to_device, StreamMode mode,
                      LocationId location = {}, std::optional<ReplicaGrouping> groups = {});

  /// Appends an op after checking it: dtypes, optional inputs, attributes, and the op's own infer().
  OpId emit(GraphId graph, std::string_view op, std::vector<TensorId> inputs, EmitArgs args = {});

  const Graph& graph(GraphId id) const { return graphs_[id]; }
  /// Record of autodiff for a gradient graph; null for graphs that it did not make.
  const GradientGraph* gradient_graph(GraphId id) const;
  const Tensor& tensor(TensorId id) const { return tensors_[id]; }
  const Op& op(OpId id) const { return ops_[id]; }
  /// Tensor::index of the tensor's storage; kNone for remote entries.
  std::uint32_t storage_index(TensorId id) const { return storage_indices_[id]; }
  /// False only if no op that satisfies the predicate was ever made, so that a search for such ops can be
  /// skipped.
  template <class Predicate>
  bool may_have(const Predicate& predicate) const {
    return std::ranges::any_of(definitions_, [&](const OpDef* def) { return predicate(*def); });
  }
  /// Calls, loops and conditionals of all graphs.
  const std::vector<OpId>& ops_with_graphs() const { return ops_with_graphs_; }
  const Stream& stream(StreamId id) const { return streams_[id]; }
  const RemoteBuffer& remote(RemoteId id) const { return remotes_[id]; }
  std::size_t num_graphs() const { return graphs_.size(); }
  std::size_t num_tensors() const { return tensors_.size(); }
  std::size_t num_ops() const { return ops_.size(); }
  std::size_t num_streams() const { return streams_.size(); }
  std::size_t num_remotes() const { return remotes_.size(); }

  /// Views of memory of `root`, in creation order.
  const std::vector<TensorId>& views(TensorId root) const;

  /// Tensor with that full id in the graph; NameError with close matches if there is none.
  TensorId find_tensor(GraphId graph, std::string_view name) const;

 protected:
  /// Hook that is called before each transaction begins; it may open one around it.
  virtual void about_to_change() {}

 private:
  friend class GraphEditor;
  friend class Journal;
  friend class Transaction;

  // Mutable access to an object; the journal saves its present state first.
  Tensor& edit_tensor(TensorId id);
  Op& edit_op(OpId id);
  Graph& edit_graph(GraphId id);
  RemoteBuffer& edit_remote(RemoteId id);
  std::vector<TensorId>& edit_views(TensorId root);
  /// Access to a graph for appending to its lists, and for its counters and flags.
  Graph& extend_graph(GraphId id);
  /// Access to an op for appending to its outputs and `modified`.
  Op& extend_op(OpId id);
  void set_first_use(TensorId tensor, OpId op);
  void set_index(TensorId tensor, std::uint32_t index, std::uint32_t storage_index);
  void set_position(OpId op, std::uint32_t position);
  /// Sets the name of a tensor that is being edited.
  void set_name(TensorId tensor, std::string_view name);
  /// Gives the program's state a new number.
  void changed() { epoch_ = ++newest_epoch_; }

  /// Throws AttributeValueError if a remote buffer cannot have that many entries.
  static void check_entries(std::int64_t entries);
  void append_entries(RemoteId buffer, std::int64_t count);
  std::string unique_name(GraphId graph, std::string_view name);
  TensorId add_tensor(GraphId graph, std::string_view name, TensorType type, TensorKind kind);
  std::vector<Attribute> bind_attributes(const OpDef& def, const std::vector<NamedAttribute>& given) const;
  void check_inputs(const OpDef& def, GraphId graph, const std::vector<TensorId>& inputs) const;
  /// Throws GraphError if a tensor that is written is a constant, or holds an element twice.
  void check_writable(std::string_view op, std::string_view input, const Tensor& tensor) const;
  void number_op(Op& op);
  void add_view(const Op& op);
  /// Throws ShapeError if the bytes of all replicas exceed what can be counted.
  void check_size(std::string_view where, const TensorType& type) const;

  std::shared_ptr<const Registry> registry_;
  std::shared_ptr<PartitionTable> partitions_;
  LocationTable locations_;
  IdVector<GraphId, Graph, std::deque<Graph>> graphs_;
  IdVector<TensorId, Tensor, StableVector<Tensor>> tensors_;
  IdVector<OpId, Op, StableVector<Op>> ops_;
  IdVector<TensorId, std::uint32_t> storage_indices_;
  /// Definitions of all ops that exist or existed before an undo.
  std::unordered_set<const OpDef*> definitions_;
  std::vector<OpId> ops_with_graphs_;
  IdVector<StreamId, Stream, std::deque<Stream>> streams_;
  IdVector<RemoteId, RemoteBuffer, std::deque<RemoteBuffer>> remotes_;
  using Names = std::unordered_map<std::string, TensorId>;
  Names tensors_by_name_;
  std::unordered_map<TensorId, std::vector<TensorId>> views_;  ///< Views by root.
  std::map<GraphId, std::shared_ptr<const GradientGraph>> gradient_graphs_;
  std::uint64_t epoch_ = 0, newest_epoch_ = 0;
  Lineage lineage_;
  std::unique_ptr<Journal> journal_;
  std::uint32_t next_subgraph_ = 0;
  std::uint32_t next_collision_ = 0;
};

/// Ops of the graph in the order of its schedule, merged ones replaced by their parts.
std::vector<OpId> single_ops(const Ir& ir, GraphId graph);

/// True if the op takes part in stochastic rounding: it rounds and an output is a narrow float.
bool rounds(const Ir& ir, const Op& op);
/// True if that output of the op is rounded.
bool rounds(const Ir& ir, const Op& op, std::size_t output);

}  // namespace popsr
