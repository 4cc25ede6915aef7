// The program: an Ir owns graphs, tensors, ops and streams. Built by emit(); verified, analysed and run
// elsewhere.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "popsr/base/stable_vector.h"
#include "popsr/ir/attribute.h"
#include "popsr/ir/host_bytes.h"
#include "popsr/ir/ids.h"
#include "popsr/ir/location.h"
#include "popsr/ir/place.h"
#include "popsr/ir/sequence.h"
#include "popsr/replica/partition.h"
#include "popsr/replica/variable_settings.h"

namespace popsr {

struct OpDef;
struct View;
class Journal;
class Registry;

struct TensorType {
  DType dtype = DType::kFloat32;
  Shape shape;
  bool operator==(const TensorType&) const = default;
};
std::string to_string(const TensorType& type);
/// Bytes of one value.
inline std::size_t bytes_of(const TensorType& type) {
  return static_cast<std::size_t>(num_elements(type.shape)) * size_of(type.dtype);
}

enum class TensorKind : std::uint8_t {
  kActivation,
  kInput,
  kVariable,
  kConstant,
  kShard,   ///< State of the main graph: a part of a variable, a different one on each member of its group.
  kRemote,  ///< State behind the ops that load and store it: an entry of a remote buffer.
};
/// Is the memory of a tensor with memory of its own seen by views (ir/memory.h)?
enum class Viewed : std::uint8_t {
  kNo,
  kWhole,   ///< By views of all of it alone.
  kPartly,  ///< By some views of a part of it: its elements may be written one by one.
};
/// The rows that replicas load from a stream: one for each, one for all, one for each that must be equal when
/// fed.
enum class StreamMode : std::uint8_t { kReplicate, kBroadcast, kEqual };

struct Tensor {
  TensorId id = kNone;
  GraphId graph;
  std::string name;  ///< Full id: "<graph id>/<scopes>/<name>".
  TensorType type;
  Shape meta_shape;
  TensorKind kind = TensorKind::kActivation;
  OpId producer = kNone;
  OpId first_use = kNone;   ///< The first op that takes it.
  std::uint32_t index = 0;  ///< Position in Graph::tensors.
  TensorId storage =
      kNone;  ///< The tensor whose allocation holds the value; itself unless an in-place output.
  std::shared_ptr<const View> view;  ///< Null unless its elements are elements of other tensors.
  Viewed viewed = Viewed::kNo;
  bool by_ref = false;                      ///< Graph inputs only.
  std::shared_ptr<const HostBytes> data;    ///< Variables, [num_groups, *shape], and constants.
  std::optional<ReplicaGrouping> grouping;  ///< Variables.
  VariableRetrievalMode retrieval = VariableRetrievalMode::kOnePerGroup;
  /// Variables whose device value is a kShard or kRemote tensor, which is their home; they are its resident.
  TensorId home = kNone, resident = kNone;
  LocationId location = {};     ///< Of variables; op outputs have that of their op.
  std::int64_t shard_over = 1;  ///< Such variables: so many consecutive members of a group hold a part each.
};

/// How an op that rounds picks its seeds; set by the stochastic-rounding transform.
enum class SeedRule : std::uint8_t {
  kPartition,  ///< Join of the partitions of the op's outputs.
  kIdentical,  ///< One seed for all replicas.
  kDiffering,  ///< A seed of its own for each replica.
};

struct Op {
  OpId id = kNone;
  const OpDef* def = nullptr;
  GraphId graph;
  std::vector<TensorId> inputs;  ///< kNone where an optional input is absent.
  std::vector<TensorId> outputs;
  std::vector<Attribute> attrs;  ///< In the order of def->attrs.
  LocationId location = {};
  Place place = {};              ///< Of its operands, unless its definition says otherwise.
  std::uint32_t site = 0;        ///< Number among the graph's ops that round or draw, or among its calls.
  bool allow_stochastic = true;  ///< False inside `with popsr.stochastic_rounding(False)`.
  std::optional<SeedRule> seeds;
  std::vector<OpId> after;              ///< Explicit order from in_sequence.
  std::vector<std::uint32_t> modified;  ///< Of ops that run graphs: inputs marked as modified by reference.
  std::uint32_t position = 0;           ///< In Graph::ops; of a part: that of the merged op.
  /// A merged op does these ops at once, in any order (transform/schedule.cpp). Its operands are theirs, one
  /// after another.
  std::vector<OpId> parts = {};
  OpId part_of = kNone;  ///< The merged op that this op is a part of: it is in no schedule itself.

  /// The value of a required attribute, or of one with a default that is not "absent"; InternalError when the
  /// op does not declare it.
  template <class T>
  const T& get(const Attr<T>& attr) const {
    return std::get<T>(attribute(attr.name));
  }
  template <class E>
  E get(const ChoiceAttr<E>& attr) const {
    return attr.value_of(std::get<std::string>(attribute(attr.name)));
  }
  /// The value of an attribute that may be absent.
  template <class T>
  std::optional<T> find(const Attr<T>& attr) const {
    const Attribute& value = attribute(attr.name);
    if (std::holds_alternative<std::monostate>(value)) return std::nullopt;
    return std::get<T>(value);
  }
  template <class E>
  std::optional<E> find(const ChoiceAttr<E>& attr) const {
    const Attribute& value = attribute(attr.name);
    if (std::holds_alternative<std::monostate>(value)) return std::nullopt;
    return attr.value_of(std::get<std::string>(value));
  }

  /// The attribute of that name; InternalError when the op does not declare it.
  const Attribute& attribute(std::string_view name) const;
};

struct Stream {
  StreamId id = kNone;
  std::string name;
  TensorType type;
  bool to_device = true;
  StreamMode mode = StreamMode::kReplicate;
  LocationId location = {};
};

/// Memory that keeps `entries` values on each replica and is reached by remote loads and stores alone.
struct RemoteBuffer {
  RemoteId id = kNone;
  TensorType type;                ///< Of one entry on one replica.
  Shape meta_shape;               ///< Entries are shards of tensors of that shape, unless empty.
  std::vector<TensorId> entries;  ///< kRemote tensors; zeros before anything is stored.
};

struct Graph {
  GraphId id;
  std::string name = {};  ///< "" for the main graph.
  std::vector<TensorId> inputs = {};
  std::vector<TensorId> outputs = {};
  std::vector<TensorId> tensors = {};  ///< All tensors of the graph in creation order.
  std::vector<OpId> ops = {};          ///< The schedule: creation order, until ops are merged.
  SequenceState sequence = {};
  std::uint32_t num_rounding = 0, num_calls = 0;  ///< Counters for Op::site.
  bool has_views = false;                         ///< Of ops that are there.
  bool called = false;                            ///< By an op of some graph: its inputs are fixed.
  OpId first_call = kNone;                        ///< The first op that runs it.
  std::uint32_t depth = 0;                        ///< Calls inside calls, of the graphs as they were called.
};

/// How many there are of each, which is the number of the next one; and numbers that go into names.
struct Counters {
  std::size_t graphs = 0, tensors = 0, ops = 0, streams = 0, remotes = 0, ops_with_graphs = 0;
  std::size_t names = 0, viewed = 0;  ///< Names of tensors; tensors with views.
  std::uint32_t next_subgraph = 0, next_collision = 0;
  bool operator==(const Counters&) const = default;
};

struct EmitArgs {
  std::vector<NamedAttribute> attrs = {};
  std::vector<std::string> output_names = {};  ///< Empty: the op's stem, "add_out".
  LocationId location = {};
  Place place = {};
  SequenceMode sequence = SequenceMode::kPass;
  bool allow_stochastic = true;
};

/// "main graph", "graph 'name'": for messages.
std::string in_words(const Graph& graph);

/// Every function that changes the program does all of it or, when it throws, nothing; also when memory runs
/// out (ir/transaction.h).
class Ir {
 public:
  /// Throws ReplicaError unless replication >= 1.
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

  /// The state of the program but for seed rules: each change gives it a number that no state had before, and
  /// what undoes a change gives it the number of the state that comes back. Facts remember the epoch they
  /// were computed at.
  std::uint64_t epoch() const { return epoch_; }
  /// The state of the seed rules, likewise.
  std::uint64_t seeds_epoch() const { return seeds_epoch_; }
  /// The next numbers of everything that is numbered.
  Counters counters() const;

  GraphId create_graph(std::string_view stem);        ///< Named "<stem>_subgraph(<n>)".
  GraphId create_named_graph(std::string_view name);  ///< That name, or "<name>_<k>" when taken.
  void skip_subgraph_number();

  /// GraphError when the graph is called already.
  TensorId add_input(GraphId graph, std::string_view name, TensorType type, Shape meta_shape = {},
                     bool by_ref = false);
  /// GraphError when the tensor is of another graph.
  void add_output(GraphId graph, TensorId tensor);
  /// `location`: where it was made, for messages only.
  TensorId add_variable(std::string_view name, TensorType type, std::shared_ptr<const HostBytes> data,
                        ReplicaGrouping grouping, VariableRetrievalMode retrieval, LocationId location = {});
  TensorId add_constant(GraphId graph, std::string_view name, TensorType type,
                        std::shared_ptr<const HostBytes> data);
  /// ShapeError unless entries >= 1.
  RemoteId add_remote_buffer(TensorType type, std::int64_t entries, Shape meta_shape = {});
  StreamId add_stream(std::string_view name, TensorType type, bool to_device, StreamMode mode,
                      LocationId location = {});

  /// Appends an op after checking it: dtypes, optional inputs, attributes, and the op's own infer().
  OpId emit(GraphId graph, std::string_view op, std::vector<TensorId> inputs, EmitArgs args = {});

  const Graph& graph(GraphId id) const { return graphs_[id]; }
  const Tensor& tensor(TensorId id) const { return tensors_[id]; }
  const Op& op(OpId id) const { return ops_[id]; }
  /// Tensor::index of the tensor's storage; kNone for remote entries.
  std::uint32_t storage_index(TensorId id) const { return storage_indices_[id]; }
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

  /// The tensor of that full id in the graph; NameError with close matches otherwise.
  TensorId find_tensor(GraphId graph, std::string_view name) const;

 protected:
  /// Called before each transaction begins; may open one around it.
  virtual void about_to_change() {}

 private:
  friend class GraphEditor;
  friend class Journal;
  friend class Transaction;

  // Changes ask for their object here: the journal writes down its present state first.
  Tensor& edit_tensor(TensorId id);
  Op& edit_op(OpId id);
  Graph& edit_graph(GraphId id);
  RemoteBuffer& edit_remote(RemoteId id);
  std::vector<TensorId>& edit_views(TensorId root);
  /// For appending to its lists, and for its counters and flags.
  Graph& extend_graph(GraphId id);
  /// For appending to its outputs and `modified`.
  Op& extend_op(OpId id);
  void set_first_use(TensorId tensor, OpId op);
  void set_index(TensorId tensor, std::uint32_t index, std::uint32_t storage_index);
  void set_position(OpId op, std::uint32_t position);
  /// Of a tensor that is being edited.
  void set_name(TensorId tensor, std::string_view name);
  /// The program is in a state that it was never in.
  void changed() { epoch_ = ++newest_epoch_; }

  /// AttributeValueError unless a remote buffer can have so many.
  static void check_entries(std::int64_t entries);
  void append_entries(RemoteId buffer, std::int64_t count);
  std::string unique_name(GraphId graph, std::string_view name);
  TensorId add_tensor(GraphId graph, std::string_view name, TensorType type, TensorKind kind);
  std::vector<Attribute> bind_attributes(const OpDef& def, const std::vector<NamedAttribute>& given) const;
  void check_inputs(const OpDef& def, GraphId graph, const std::vector<TensorId>& inputs) const;
  /// GraphError when a tensor that is written is a constant, or holds an element twice.
  void check_writable(std::string_view op, std::string_view input, const Tensor& tensor) const;
  void number_site(Op& op);
  void add_view(const Op& op);
  /// ShapeError unless the bytes of all replicas can be counted.
  void check_size(std::string_view where, const TensorType& type) const;

  std::shared_ptr<const Registry> registry_;
  std::shared_ptr<PartitionTable> partitions_;
  LocationTable locations_;
  IdVector<GraphId, Graph, std::deque<Graph>> graphs_;
  IdVector<TensorId, Tensor, StableVector<Tensor>> tensors_;
  IdVector<OpId, Op, StableVector<Op>> ops_;
  IdVector<TensorId, std::uint32_t> storage_indices_;
  std::vector<OpId> ops_with_graphs_;
  IdVector<StreamId, Stream, std::deque<Stream>> streams_;
  IdVector<RemoteId, RemoteBuffer, std::deque<RemoteBuffer>> remotes_;
  using Names = std::unordered_map<std::string, TensorId>;
  Names tensors_by_name_;
  std::unordered_map<TensorId, std::vector<TensorId>> views_;  ///< By root.
  std::uint64_t epoch_ = 0, newest_epoch_ = 0;
  std::uint64_t seeds_epoch_ = 0, newest_seeds_epoch_ = 0;
  std::unique_ptr<Journal> journal_;
  std::uint32_t next_subgraph_ = 0;
  std::uint32_t next_collision_ = 0;
};

/// The graph's ops in the order of its schedule, merged ones as their parts.
std::vector<OpId> single_ops(const Ir& ir, GraphId graph);

/// True when the op takes part in stochastic rounding: it rounds and an output is a narrow float.
bool rounds(const Ir& ir, const Op& op);
/// The same of one output.
bool rounds(const Ir& ir, const Op& op, std::size_t output);

}  // namespace popsr
