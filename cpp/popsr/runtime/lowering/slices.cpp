// Element-wise ops that follow each other run slice by slice, so that what one writes is in a cache for the
// next: the update of a weight by an optimiser is one pass over its state.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "popsr/ir/op_def.h"
#include "popsr/runtime/lowering/accesses.h"
#include "popsr/runtime/lowering/rewrites.h"

namespace popsr {
namespace {

/// Operands of fewer bytes stay in a second-level cache anyway.
constexpr std::size_t kLeastBytes = std::size_t{1} << 20;
constexpr auto kUnit = static_cast<std::size_t>(lowered::Sliced::kUnit);

class SliceFuser {
 public:
  SliceFuser(const Ir& ir, LoweredProgram& program)
      : ir_(ir), program_(program), seen_(program.buffers.size()), single_(program.buffers.size()) {}

  void run(std::vector<LoweredOp>& ops) {
    std::vector<Run> found;
    start(0);
    for (std::size_t i = 0; i < ops.size(); ++i) {
      const bool is_part = is_sliceable(ops[i]);
      if (!is_part || !continues(ops[i])) {
        if (is_worth_it()) found.push_back(run_);
        if (auto* const loop = ops[i].as<lowered::Loop>()) run(loop->body);
        start(is_part ? i : i + 1);
      }
      if (is_part) add(ops[i]);
    }
    if (is_worth_it()) found.push_back(run_);
    if (!found.empty()) slice(ops, found);
  }

 private:
  const TensorType& type(BufferId id) const { return program_.buffers[id].type; }
  std::int64_t elements(BufferId id) const { return num_elements(type(id).shape); }

  bool is_one_block(BufferId id) const {
    return ir_.partitions().num_blocks(program_.buffers[id].storage) == 1;
  }

  /// True for an op on one block that combines elements of large operands one by one.
  bool is_sliceable(const LoweredOp& op) const {
    const auto* const plain = op.as<lowered::Plain>();
    if (plain == nullptr || !plain->reads.empty() || plain->writes || op.exec || op.out.empty()) return false;
    if (!op.op->def->is_pointwise() || op.op->def->memory.view != nullptr) return false;
    const std::int64_t count = elements(op.out[0]);
    if (count <= lowered::Sliced::kUnit) return false;  // one slice
    const auto fits = [&](BufferId id) {
      return is_one_block(id) && (type(id).shape == type(op.out[0]).shape || elements(id) == 1);
    };
    return std::ranges::all_of(op.in, [&](BufferId id) { return id == kNone || fits(id); }) &&
           std::ranges::all_of(op.out, [&](BufferId id) { return id != kNone && fits(id); });
  }

  /// Ops first..first+size-1 of a list.
  struct Run {
    std::size_t first = 0, size = 0;
    std::int64_t elements = 0;
    std::size_t bytes = 0;  ///< Bytes of all operands.
  };

  void start(std::size_t first) {
    run_ = {.first = first};
    ++number_;
  }

  /// True if the op, which is sliceable, goes on with the ops at hand. Each slice computes outputs of one
  /// element anew, so none of the others may see them; and its operands stay in a cache together.
  bool continues(const LoweredOp& op) const {
    if (run_.size == 0) return true;
    if (elements(op.out[0]) != run_.elements) return false;
    bool sees = false;
    std::size_t bytes = run_.bytes;
    for_each_operand(op, [&](BufferId id, bool) {
      sees = sees || single_[id] == number_;
      if (seen_[id] != number_) bytes += bytes_of(type(id));
    });
    return !sees && bytes / static_cast<std::size_t>(run_.elements) <= lowered::Sliced::kBytes / kUnit;
  }

  void add(const LoweredOp& op) {
    ++run_.size;
    run_.elements = elements(op.out[0]);
    for_each_operand(op, [this](BufferId id, bool) {
      if (std::exchange(seen_[id], number_) != number_) run_.bytes += bytes_of(type(id));
    });
    for (const BufferId id : op.out) {
      if (elements(id) == 1) single_[id] = number_;
    }
  }

  /// True for ops whose operands do not stay in a cache from one op to the next.
  bool is_worth_it() const { return run_.size > 1 && run_.bytes >= kLeastBytes; }

  void slice(std::vector<LoweredOp>& ops, const std::vector<Run>& runs) {
    if (counts_.empty()) counts_ = count_accesses(program_);
    std::vector<LoweredOp> result;
    result.reserve(ops.size());
    auto next = ops.begin();
    for (const Run& run : runs) {
      const auto first = ops.begin() + static_cast<std::ptrdiff_t>(run.first);
      const auto end = first + static_cast<std::ptrdiff_t>(run.size);
      std::move(next, first, std::back_inserter(result));
      std::vector<LoweredOp> parts(std::make_move_iterator(first), std::make_move_iterator(end));
      mark_temporaries(parts);
      const Op* const last = parts.back().op;
      const PathId path = parts.back().path;
      result.push_back({.op = last, .path = path, .form = lowered::Sliced{std::move(parts)}});
      next = end;
    }
    std::move(next, ops.end(), std::back_inserter(result));
    ops = std::move(result);
  }

  /// Buffers that the parts alone access, which they write first.
  void mark_temporaries(const std::vector<LoweredOp>& parts) {
    std::map<BufferId, Accesses> here;
    std::set<BufferId> fresh;
    for (const LoweredOp& op : parts) {
      for_each_operand(op, [&](BufferId id, bool is_written) {
        Accesses& accesses = here[id];
        if (is_written && accesses.reads + accesses.writes == 0) fresh.insert(id);
        ++(is_written ? accesses.writes : accesses.reads);
      });
    }
    for (const BufferId id : fresh) {
      const Accesses &own = here.at(id), &all = counts_[id];
      const bool is_own = own.reads == all.reads && own.writes == all.writes;
      program_.buffers[id].in_slices =
          is_own && elements(id) > 1 && program_.buffers[id].kind == BufferKind::kActivation;
    }
  }

  const Ir& ir_;
  LoweredProgram& program_;
  std::uint32_t number_ = 0;                  ///< Number of the current run.
  Run run_;                                   ///< Current run, so far.
  IdVector<BufferId, std::uint32_t> seen_;    ///< The last run that has the buffer as an operand,
  IdVector<BufferId, std::uint32_t> single_;  ///< and as an output of one element.
  IdVector<BufferId, Accesses> counts_;       ///< Before any change; empty until they are needed.
};

}  // namespace

void fuse_slices(const Ir& ir, LoweredProgram& program) { SliceFuser(ir, program).run(program.ops); }

}  // namespace popsr
