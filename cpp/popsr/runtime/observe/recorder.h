// Hashes of the values that runs compute, as a stream of little-endian words: see
// python/popsr/_tools/record/file_format.py.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "popsr/runtime/observe/observed_run.h"

namespace popsr {

class Recorder {
 public:
  /// Makes a recorder; `sink` receives the stream piece by piece, during runs and at their ends.
  explicit Recorder(std::function<void(std::string_view)> sink) : sink_(std::move(sink)) {}

  // Callbacks of RunObservers.

  void run_begins(const ObservedRun& run);
  void run_ends();
  void outputs_ready(const Instruction& instruction, ActiveReplicas active,
                     const IdVector<PathId, std::uint64_t>& iterations, ThreadPool& pool);

 private:
  struct Output {
    TensorType type;
    const StridedView* view = nullptr;
    std::vector<const std::byte*> blocks = {};
    std::vector<Replica> replicas = {};  ///< Smallest replica of each block.
  };
  struct Slot {
    std::uint32_t id = 0;
    std::vector<PathId> loops = {};  ///< Loop iterations around the instruction, outermost first.
    std::vector<Output> outputs = {};
  };

  const Slot* slot_of(const Instruction& instruction);
  Slot make_slot(const Instruction& instruction);
  std::vector<Output> outputs_of(const Instruction& instruction, std::string& text) const;
  void add_variables(const ObservedRun& run, ThreadPool& pool);
  void add_streams(const ObservedRun& run, ThreadPool& pool);
  void add_blocks(std::span<const std::uint32_t> labels, std::string& text) const;
  void flush();

  std::function<void(std::string_view)> sink_;
  std::string pending_ = {};
  const Ir* ir_ = nullptr;
  const Plan* plan_ = nullptr;
  bool dedup_ = true;
  std::map<std::string, std::uint32_t> ids_ = {};  ///< Slots already in the stream, by their words.
  /// Slots of the instructions of each plan, by Plan::build_id.
  std::map<std::uint64_t, std::unordered_map<const Instruction*, Slot>> plans_ = {};
  std::unordered_map<const Instruction*, Slot>* slots_ = nullptr;
  std::vector<std::uint64_t> hashes_ = {};
};

}  // namespace popsr
