// Undo log of an Ir. Part of Ir: others include ir/edit/transaction.h.
//
// While a transaction is open, each change first records how it is undone. Objects appended to the program
// need no entry: on undo they are dropped until there are as many as when the transaction began. Entries are
// therefore for objects that were there before, and the frequent ones are small. Objects that are changed in
// other ways are saved whole: the journal takes the object itself and the program goes on with a copy, so
// that addresses inside it, which plans hold, are valid again after an undo.
#pragma once

#include <memory>
#include <variant>
#include <vector>

#include "popsr/ir/flat/flat_program.h"
#include "popsr/ir/ir.h"

namespace popsr {

class Journal {
 public:
  explicit Journal(Ir& ir) : ir_(ir), flat_(ir) {}

  /// Arrays of a program, which are kept here because all changes of it are seen here.
  static FlatProgram& flat(const Ir& ir) { return ir.journal_->flat_; }

  /// Opens a transaction and returns its level.
  std::size_t begin();
  /// Ends the transaction of that level and the ones inside it; does nothing if it has ended.
  void commit(std::size_t level) noexcept;
  void roll_back(std::size_t level) noexcept;

  // Functions that save what they name, called before it changes.
  void save_tensor(TensorId id);
  void save_op(OpId id);
  void save_graph(GraphId id);
  void save_remote(RemoteId id);
  void save_views(TensorId root);
  /// Saves list sizes, counters and flags; lists may only grow afterwards.
  void save_graph_tail(GraphId id);
  /// Saves the sizes of `outputs` and `modified`, which may only grow afterwards.
  void save_op_tail(OpId id);
  /// Saves the size of the list of views, which may only grow afterwards.
  void save_views_tail(TensorId root);
  void save_first_use(TensorId id);
  void save_viewed(TensorId id);  ///< Saves Viewed before more of the tensor's memory is viewed.
  void save_index(TensorId id);
  void save_name(TensorId id);  ///< Saves the name and removes it from the table of names.
  void save_position(OpId id);
  void save_since(GraphId id);                      ///< Saves the record of unordered ops before it ends.
  void save_output(GraphId id, std::size_t index);  ///< Saves an output before it is removed.
  /// Saves the ops from position `first` on before at most as many others replace them.
  void save_schedule(GraphId id, std::uint32_t first);

 private:
  struct Mark {
    std::size_t log = 0;
    Counters counters = {};
    std::uint64_t epoch = 0;
    Lineage lineage = {};
    GraphId tail_of = kNone;  ///< Graph whose tail was saved since the mark, to save it only once.
  };

  struct FirstUse {
    TensorId tensor;
    OpId op;
  };
  struct Index {
    TensorId tensor;
    std::uint32_t index, storage_index;
  };
  struct Name {
    TensorId tensor;
    Ir::Names::node_type node;
  };
  struct Position {
    OpId op;
    std::uint32_t position;
  };
  struct GraphTail {
    GraphId graph;
    std::uint32_t inputs, outputs, tensors, ops;
    SequenceState::Tail sequence;
    NextIndices next;
    GraphCalls calls;
    bool has_views;
  };
  struct OpTail {
    OpId op;
    std::uint32_t outputs, modified;
  };
  struct ViewsTail {
    TensorId root;
    std::uint32_t size;
    bool listed;  ///< True if there was a list, possibly empty.
  };
  struct Since {
    GraphId graph;
    std::vector<OpId> ops;
  };
  struct Output {
    GraphId graph;
    std::uint32_t index;
    TensorId tensor;
  };
  struct Schedule {
    GraphId graph;
    std::uint32_t first;
    std::vector<OpId> ops;
  };
  template <class I, class T>
  struct Saved {
    I id;
    std::unique_ptr<T> object;
  };
  using Views = std::vector<TensorId>;
  using Entry = std::variant<FirstUse, Index, Name, Position, GraphTail, OpTail, ViewsTail, Since, Output,
                             Schedule, Saved<TensorId, Tensor>, Saved<OpId, Op>, Saved<GraphId, Graph>,
                             Saved<RemoteId, RemoteBuffer>, Saved<TensorId, Views>>;

  const Counters& begun() const { return marks_.back().counters; }
  template <class I, class T>
  void save_object(I id, T& object);
  /// Records that something in the program changes, so that it is no longer an extension of its earlier
  /// states.
  void change();
  void free_new_names(const Mark& mark) noexcept;
  void drop_new(const Mark& mark) noexcept;

  void undo(const FirstUse& entry) noexcept;
  void undo(const Index& entry) noexcept;
  void undo(Name& entry) noexcept;
  void undo(const Position& entry) noexcept;
  void undo(const GraphTail& entry) noexcept;
  void undo(const OpTail& entry) noexcept;
  void undo(const ViewsTail& entry) noexcept;
  void undo(Since& entry) noexcept;
  void undo(const Output& entry) noexcept;
  void undo(const Schedule& entry) noexcept;
  void undo(Saved<TensorId, Tensor>& entry) noexcept;
  void undo(Saved<OpId, Op>& entry) noexcept;
  void undo(Saved<GraphId, Graph>& entry) noexcept;
  void undo(Saved<RemoteId, RemoteBuffer>& entry) noexcept;
  void undo(Saved<TensorId, Views>& entry) noexcept;

  Ir& ir_;
  FlatProgram flat_;
  std::vector<GraphId> extended_;  ///< Graphs that grew since the outermost transaction began, some twice.
  std::vector<Mark> marks_;        ///< Marks of the open transactions.
  std::vector<Entry> log_;
};

}  // namespace popsr
