// Runs a compiled program: device state of variables, streams of one run, statistics.
//
// When a run starts it is known which replicas hold the same value of each variable, and in which of the
// program's groups the rows of small streams are equal as they are fed. prepare() reads both, chooses the
// plan that was compiled for them, and moves the variables into it; so facts, seeds and bits are a function
// of program, inputs and seed.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "popsr/analysis/partition_analysis.h"
#include "popsr/base/threads/thread_pool.h"
#include "popsr/exec/host_io.h"
#include "popsr/exec/invalid_labels.h"
#include "popsr/ir/ir.h"
#include "popsr/runtime/execution/run_stops.h"
#include "popsr/runtime/execution/run_watch.h"
#include "popsr/runtime/execution/stream_rows.h"
#include "popsr/runtime/observe/run_observers.h"
#include "popsr/runtime/plan/plan.h"
#include "popsr/runtime/ranks/rank_link.h"
#include "popsr/runtime/session/assumptions.h"
#include "popsr/runtime/session/equal_rows.h"
#include "popsr/runtime/session/profile.h"
#include "popsr/runtime/session/rank_traffic.h"
#include "popsr/runtime/session/session_options.h"
#include "popsr/runtime/session/variable_io.h"

namespace popsr {

/// Rows of one variable that the host writes.
struct VariableRows {
  TensorId variable = kNone;
  HostRows rows = HostRows::kGroups;
  const std::byte* data = nullptr;
};

struct SessionMemory {
  std::size_t variables = 0, constants = 0, activations = 0, streams = 0;
};

struct CompiledPlan;
struct PrintRequest;
struct InvalidLabel;
struct StreamBuffer;

class Session {
 public:
  /// Makes a session. `facts`: verified facts of the present program under initial_assumptions(), whose seed
  /// rules are the session's; null: computed here. `link`: connection to the other ranks, each of which has
  /// the same program and options; null: there are none. With a link all ranks make the same calls in the
  /// same order, and an error on one rank ends the call on all: prepare() and run_prepared(), reading and
  /// writing of variables.
  Session(std::shared_ptr<const Ir> ir, const SessionOptions& options,
          std::shared_ptr<const PartitionAnalysis> facts = nullptr, std::shared_ptr<RankLink> link = nullptr);
  ~Session();

  const Ir& ir() const { return *ir_; }
  /// Plan of the run that was prepared last; for a new session, the plan for equal rows.
  const Plan& plan() const;
  std::shared_ptr<const PartitionAnalysis> facts() const;
  SessionStats stats() const;
  SessionMemory memory() const;
  /// Profile of all runs so far; instructions have no time unless SessionOptions::profile is set.
  Profile profile() const;
  /// Messages and bytes that this rank has moved, by op, summed over all runs.
  RankTraffic traffic() const;

  /// Streams that the program uses.
  std::vector<StreamId> used_streams() const;

  /// Compares the rows that are fed and chooses the plan of the run. Throws before anything runs if the
  /// data does not fit, or if rows of a stream that is declared equal differ. Not safe beside other uses of
  /// the program's Ir.
  void prepare(std::span<const StreamBuffer> buffers);
  /// True if prepare() selected a plan that acknowledge_plan() was not called for yet. The plan that the
  /// session was made with counts as acknowledged.
  bool plan_changed() const;
  void acknowledge_plan();
  /// Differences of small streams whose rows were equal on more replicas in the previous run.
  std::vector<RowDifference> weakened_streams() const;
  /// Rows of a stream that prepare() compared between replicas, of all ranks.
  const StreamBuffer& compared_rows(StreamId stream) const;
  /// Rows of a stream that this rank is fed or returns.
  const StreamRows& stream_rows(StreamId stream) const;
  /// Small streams, each with the partition of replicas whose rows are taken as equal.
  std::vector<std::pair<StreamId, PartitionId>> small_streams() const;
  /// Larger streams whose rows were equal in all runs so far.
  std::vector<StreamId> large_equal_streams() const;

  /// Calls prepare(), then run_prepared().
  void run(std::span<const StreamBuffer> buffers, const std::function<void(const PrintRequest&)>& print,
           RunWatcher* watcher = nullptr,
           const std::function<void(const Op&, const InvalidLabel&)>& on_invalid_label = {});
  /// Executes the main graph once, as run `number` of stops(). `buffers` is indexed by StreamId; prints go to
  /// `print`. `on_invalid_label` is called with the first label out of range of each op, once per session. If
  /// the call throws before the first op ran, variables are unchanged. An error in mid-run (ReplicaError of
  /// an exchange that some members of a group skip, an offset, a scale or a label out of range, or a result
  /// that is not finite) leaves the variables as written so far, and so do stops() and exceptions of `print`
  /// and `watcher`.
  void run_prepared(std::uint64_t number, std::span<const StreamBuffer> buffers,
                    const std::function<void(const PrintRequest&)>& print, RunWatcher* watcher = nullptr,
                    const std::function<void(const Op&, const InvalidLabel&)>& on_invalid_label = {});
  /// Numbers of the session's runs, and which of them are to end.
  RunStops& stops() { return stops_; }
  std::string stopped_text() const;
  /// Op that the last run failed at; kNone if it did not fail, or not at an op.
  OpId failed_op() const;

  /// Registers what records the runs that follow; null removes it. The tracer stays as it is.
  void record(Recorder* recorder) { observers_.set_recorder(recorder); }
  /// Registers what takes the times of the runs that follow; null removes it. The recorder stays as it is.
  void trace(Tracer* tracer);

  std::uint64_t step() const { return step_; }
  void set_step(std::uint64_t step) { step_ = step; }

  /// Copies a variable between the device and rows on the host, for all ranks; see variable_io.h.
  void read_variable(TensorId id, HostRows rows, std::byte* out) const;
  void write_variable(TensorId id, HostRows rows, const std::byte* data) {
    const VariableRows one{id, rows, data};
    run_copies(prepare_write({&one, 1}));
  }
  /// Compares rows and updates the facts for the write that run_copies() of the result performs, which has
  /// to follow at once: the variable is equal in the groups in which its rows are. Rows that change no bit
  /// change no fact. Not safe beside other uses of the program's Ir.
  std::vector<RowCopy> prepare_write(std::span<const VariableRows> rows);
  std::vector<RowPiece> row_pieces(TensorId id) const;
  std::size_t host_bytes(TensorId id, HostRows rows) const;
  /// First difference between members of one group, if there is one.
  std::optional<Divergence> divergence(TensorId id) const;
  /// True if the program writes the variable.
  bool is_written(TensorId id) const;
  /// Partition in which the variable is stored.
  PartitionId storage(TensorId id) const;

 private:
  struct State;

  void start(const SessionOptions& options, std::shared_ptr<const PartitionAnalysis> facts);
  CompiledPlan& current() const;
  void begin_run(std::span<const StreamBuffer> buffers) const;
  void check_run(std::span<const StreamBuffer> buffers) const;
  void check_equal_streams();
  void notify_observers(std::span<const StreamBuffer> buffers);
  void compare_large();
  bool is_known(std::size_t state, PartitionId equal) const;
  std::vector<PartitionId> equal_rows_of_all(std::span<const VariableRows> rows) const;
  std::vector<std::uint8_t> unchanged_rows(std::span<const VariableRows> rows,
                                           std::span<const PartitionId> equal) const;
  void agree_to_read(TensorId id) const;
  PartitionId device_rows(TensorId state, PartitionId known) const;
  void read_back_facts();
  std::size_t state_index(TensorId variable) const;

  std::shared_ptr<const Ir> ir_;
  std::shared_ptr<RankLink> link_;
  std::unique_ptr<State> state_;
  RunStops stops_;
  bool strict_labels_ = false;
  bool profile_ = false, dedup_ = true;
  RunObservers observers_;
  std::uint64_t step_ = 0;
};

}  // namespace popsr
