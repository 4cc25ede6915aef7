// A Herbrand interpreter: runs a program on terms instead of numbers, every op an opaque function. Two
// replicas hold equal terms at a point iff their values are equal for all programs of this shape.
//
// It is the oracle of the partition analysis and shares no code with it: what an op reads is known here by
// the op's name, not by its OpDef. Ops with one name, the same attributes and the same types are one
// function, wherever they stand; those that round stochastically are not, as their noise depends on where
// they are. Replicas go through calls, loops and conditionals with a control flow of their own: a condition
// holds or not by a hash of its term, so replicas with equal terms decide alike, and another seed is another
// run.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "popsr/analysis/seed_rules.h"
#include "popsr/ir/ir.h"

namespace popsr::test {

/// A 64-bit hash of what a value is made of. Two terms of one program collide with a chance of about 1e-12.
using Term = std::uint64_t;
/// A set of replicas; there are 64 at most.
using Mask = std::uint64_t;

/// A way to a graph: the ops that call it, from the main graph on. Iterations of a loop share it.
using PathId = std::uint32_t;
struct Path {
  PathId outer = {};
  GraphId graph;               ///< Graph at the end of the path; the main graph for path 0.
  std::uint32_t position = 0;  ///< Position of the calling op in the outer graph.
  std::uint32_t branch = 0;    ///< 1 for the else branch of a conditional.
};

enum class Role : std::uint8_t {
  kInput,     ///< Input `index` of the graph as it starts; for the main graph tensor `index`, which is state.
  kOutput,    ///< Output `index` of the op (of all_outputs).
  kWritten,   ///< Tensor `index` after the op, which runs graphs that may write it.
  kLast,      ///< Tensor `index` as the graph ends.
  kPosition,  ///< Position of stream `index` as the graph ends.
};
struct Place {
  PathId path = {};
  Role role = Role::kOutput;
  std::uint32_t op = 0;  ///< Position in the graph, for kOutput and kWritten.
  std::uint32_t index = 0;
  auto operator<=>(const Place&) const = default;
};

class Observer {
 public:
  virtual ~Observer() = default;
  /// The terms that replicas hold there; those that are not `active` do not get there.
  virtual void value(const Place& place, std::span<const Term> terms, Mask active) = 0;
  /// The graph starts on these replicas.
  virtual void starts(PathId, Mask /*active*/) {}
  /// Members of one of the op's groups disagree about taking part: the session ends.
  virtual void diverges(PathId, const Op&) {}
  /// Seed partition of an op that rounds stochastically: replicas of one block round alike.
  virtual std::span<const std::uint32_t> seeds(PathId, const Op&) { return {}; }
};

class Herbrand {
 public:
  /// `rows`: replicas that are fed equal rows of streams, beside what these declare.
  explicit Herbrand(const Ir& ir, SeedRules seeds = {}, const std::map<StreamId, PartitionId>& rows = {});

  /// Runs the program so many times, variables and remote memory being kept; but some variables the host
  /// writes between runs, as it may, so that no variable's value is the same in all runs. False when replicas
  /// disagreed about an exchange.
  bool session(std::uint64_t seed, int runs, Observer& observer);

  /// Sessions from now on start with another value of that state of the main graph.
  void start_otherwise(TensorId state) { otherwise_ = state; }

  const Path& path(PathId id) const { return paths_[id]; }
  std::size_t num_paths() const { return paths_.size(); }
  std::string to_string(const Place& place) const;

 private:
  enum class Kind : std::uint8_t {
    kPure,
    kSelf,
    kLoad,
    kMembers,
    kRoot,
    kRootAlone,
    kPermute,
    kIndex,
    kRemoteLoad,
    kRemoteStore,
    kNothing,
    kView,
    kCall,
    kRepeat,
    kConditional
  };
  /// Places of a tensor's elements in the memory of its graph; one for all of them, unless views show some.
  using Cells = std::vector<std::uint32_t>;
  struct Body {
    GraphId graph;
    std::uint32_t first = 0;              ///< The op's input that is the graph's first one.
    std::vector<std::uint32_t> modified;  ///< Inputs of the graph that are given by reference.
  };
  /// An op, ready to run: a part where ops are merged.
  struct Step {
    const Op* op = nullptr;
    Kind kind = Kind::kPure;
    std::uint32_t position = 0;
    std::uint32_t first_output = 0;
    std::vector<const Cells*> in, out;
    std::vector<const Cells*> entries;  ///< Cells of remote entries, in the main graph.
    bool exchanges = false, own_index = false, dynamic = false;
    std::vector<Mask> groups = {};  ///< Group of each replica.
    /// Number of each group, of a source plus one, or members of a scan.
    std::vector<std::uint64_t> number = {};
    std::uint64_t root = 0;
    StreamId stream = {};
    std::int64_t count = 0;  ///< Iterations at most.
    bool asks = false;       ///< Ends earlier, where the first output holds nowhere.
    std::vector<Body> bodies = {};
    std::uint64_t function = 0;  ///< Number of the function that the op is.
  };
  struct Code {
    std::vector<Step> steps;
    std::vector<const Cells*> inputs, outputs, constants;
    std::vector<TensorId> rewritten;
    std::size_t cells = 0;
  };

  void compile(const Graph& graph);
  void add_step(Code& code, const Op& op, std::uint32_t position, std::uint32_t first_output);
  void add_bodies(Step& step);
  void set_kind(Step& step);
  std::uint64_t number_of(const Op& op);
  void set_groups(Step& step);
  void place_graph(const Graph& graph);
  void place_view(const Op& op);
  const Cells* cells(TensorId tensor) const { return &cells_[place_[tensor]]; }

  Term* at(std::size_t base, std::uint32_t cell) { return &memory_[(base + cell) * replicas_]; }
  /// The term of a tensor on a replica.
  Term term(std::size_t base, const Cells& cells, std::size_t replica);
  std::span<const Term> terms(std::size_t base, const Cells& cells);
  void write(std::size_t base, const Cells& cells, std::size_t replica, Term term);
  void copy(std::size_t from_base, const Cells& from, std::size_t to_base, const Cells& to, Mask active);
  void mark(std::size_t base, const Cells& cells, Mask active);
  void start();
  void write_from_host(TensorId state, std::uint64_t version);
  void show_state(Role role);
  std::size_t push(const Code& code);
  void pop(const Code& code, std::size_t base);

  bool run(GraphId graph, std::size_t base, PathId path, Mask active);
  bool diverged(const Step& step, PathId path, Mask active);
  void run_local(const Step& step, std::size_t base, PathId path, Mask active);
  void run_store(const Step& step, std::size_t base, PathId path, Mask active);
  Term local_term(const Step& step, std::size_t base, std::size_t replica);
  bool run_call(const Step& step, const Body& body, std::size_t base, PathId path, Mask active);
  bool run_repeat(const Step& step, std::size_t base, PathId path, Mask active);
  Mask holding(std::size_t base, const Cells& condition, Mask active);
  bool run_conditional(const Step& step, std::size_t base, PathId path, Mask active);
  void copy_back(const Step& step, const Body& body, std::size_t base, std::size_t inner, Mask active);
  void show_results(const Step& step, std::size_t base, PathId path, Mask active);
  PathId path_into(PathId outer, const Step& step, GraphId graph, std::uint32_t branch);

  const Ir& ir_;
  SeedRules seeds_;
  IdVector<StreamId, std::vector<std::uint32_t>> rows_;  ///< Row that each replica is fed, by stream.
  std::size_t replicas_;
  Mask all_;
  IdVector<TensorId, TensorId> place_;  ///< The first tensor that lived where it lives.
  IdVector<TensorId, Cells> cells_;     ///< Cells of the places.
  bool in_elements_ = false;            ///< Some op is a view.
  std::vector<Term> shown_;             ///< Result of terms().
  IdVector<GraphId, Code> code_;
  std::map<std::string, std::uint64_t> functions_;  ///< Number by name, attributes and types.
  std::vector<TensorId> state_;                     ///< State of the main graph.
  TensorId otherwise_ = kNone;                      ///< Tensor of start_otherwise.
  std::vector<Path> paths_{1};
  std::map<std::tuple<PathId, std::uint32_t, std::uint32_t>, PathId> path_ids_;
  // Members of the present session:
  Observer* observer_ = nullptr;
  std::uint64_t seed_ = 0, run_ = 0;
  std::vector<Term> memory_;  ///< Frames: cells of replicas_ terms each.
  std::vector<Mask> dirty_;   ///< Replicas that wrote each cell since its frame was made.
  std::size_t top_ = 0;
  std::vector<Term> positions_;  ///< [streams, replicas]
};

}  // namespace popsr::test
