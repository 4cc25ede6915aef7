// Runs a compiled program: device state of variables, streams of one run, statistics.
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
#include "popsr/ir/eval.h"
#include "popsr/ir/ir.h"
#include "popsr/runtime/plan.h"
#include "popsr/runtime/run_watch.h"
#include "popsr/runtime/stream_io.h"
#include "popsr/runtime/variable_io.h"

namespace popsr {

struct SessionOptions {
  std::uint64_t seed = 0;
  bool dedup = true;  ///< False: every replica is stored and computed separately, with the same bits.
  /// Implies dedup = false when it is not 0: the probability with which the claims of the analysis about an
  /// op are compared after it ran; 1 compares all, also of products that else are folded into their
  /// consumers.
  double check = 0;
  int num_threads = 0;        ///< 0 = the process default.
  bool clamp_scales = false;  ///< Clamp the run-time scales of float8 ops instead of an error.
  bool strict_labels =
      false;  ///< A label that is none of its op's classes ends the run with OutOfRangeError.
  /// An op that makes an infinity or NaN of finite operands ends the run with FloatingPointError, before the
  /// next op; products are not folded into their consumers.
  bool check_floats = false;
};

struct SessionStats {
  std::uint64_t runs = 0;
  std::map<std::string, std::uint64_t> kernel_calls;  ///< Per op name: instructions executed.
  std::map<std::string, std::uint64_t> blocks;        ///< Per op name: blocks computed.
};

struct SessionMemory {
  std::size_t variables = 0, constants = 0, activations = 0, streams = 0;
};

class Session {
 public:
  /// `facts`: those of the program as it is now, which was verified; null: made here.
  Session(std::shared_ptr<const Ir> ir, const SessionOptions& options,
          std::shared_ptr<const PartitionAnalysis> facts = nullptr);
  ~Session();

  const Ir& ir() const { return *ir_; }
  const Plan& plan() const { return *plan_; }
  const PartitionAnalysis& facts() const { return *facts_; }
  SessionStats stats() const;
  SessionMemory memory() const;

  /// Streams that the program really uses.
  std::vector<StreamId> used_streams() const;

  /// One execution of the main graph. `buffers` is indexed by StreamId. Prints go to `print`. `stray` is told
  /// of the first label of each op that is none of its classes, once a session.
  /// Variables are as before the run when it throws before the first op ran. An error in mid-run
  /// (ReplicaError of an exchange that some members of a group skip, or an offset, a scale or a label out of
  /// range, or a
  /// result that is not finite) leaves what was written so far, and so does stop() and what `print` and
  /// `watcher` throw.
  void run(std::span<const StreamBuffer> buffers, const std::function<void(const PrintRequest&)>& print,
           RunWatcher* watcher = nullptr,
           const std::function<void(const Op&, const StrayLabel&)>& stray = {});
  /// From any thread; as Executor::stop().
  void stop();
  /// As in Executor.
  void forget_stop();
  std::string stopped_text() const;
  /// The op that the last run failed at; kNone when it did not, or at none.
  OpId failed_op() const;

  std::uint64_t step() const { return step_; }
  void set_step(std::uint64_t step) { step_ = step; }

  /// Device copy <-> rows on the host; see variable_io.h.
  void read_variable(TensorId id, HostRows rows, std::byte* out) const;
  void write_variable(TensorId id, HostRows rows, const std::byte* data);
  std::vector<std::span<const std::byte>> row_views(TensorId id) const;
  std::size_t host_bytes(TensorId id, HostRows rows) const;
  /// Where members of one group differ, if they do.
  std::optional<Divergence> divergence(TensorId id) const;
  /// Does the program ever write the variable?
  bool is_written(TensorId id) const;
  /// Partition in which the variable is stored.
  PartitionId storage(TensorId id) const;

 private:
  void compile(const SessionOptions& options);

  struct State;
  std::shared_ptr<const Ir> ir_;
  std::shared_ptr<const PartitionAnalysis> facts_;
  std::unique_ptr<Plan> plan_;
  std::unique_ptr<State> state_;
  bool strict_labels_ = false;
  std::uint64_t step_ = 0;
};

}  // namespace popsr
