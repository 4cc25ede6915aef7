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

class SliceFuser {
 public:
  SliceFuser(const Ir& ir, LoweredProgram& program)
      : ir_(ir), program_(program), counts_(count_accesses(program)) {}

  void run(std::vector<LoweredOp>& ops) {
    std::vector<LoweredOp> result;
    result.reserve(ops.size());
    for (LoweredOp& op : ops) {
      if (!continues(op)) end(result);
      if (auto* const loop = op.as<lowered::Loop>()) run(loop->body);
      if (is_sliceable(op)) {
        add(std::move(op));
      } else {
        result.push_back(std::move(op));
      }
    }
    end(result);
    ops = std::move(result);
  }

 private:
  const TensorType& type(BufferId id) const { return program_.buffers[id].type; }
  std::int64_t elements(BufferId id) const { return num_elements(type(id).shape); }

  bool is_one_block(BufferId id) const {
    return ir_.partitions().num_blocks(program_.buffers[id].storage) == 1;
  }

  /// True for an op on one block in which elements of large operands meet one by one.
  bool is_sliceable(const LoweredOp& op) const {
    const auto* const plain = op.as<lowered::Plain>();
    if (plain == nullptr || !plain->reads.empty() || plain->writes || op.exec || op.out.empty()) return false;
    if (!op.op->def->is_pointwise() || op.op->def->memory.view != nullptr) return false;
    const std::int64_t count = elements(op.out[0]);
    if (count < 2) return false;
    const auto fits = [&](BufferId id) {
      return is_one_block(id) && (type(id).shape == type(op.out[0]).shape || elements(id) == 1);
    };
    return std::ranges::all_of(op.in, [&](BufferId id) { return id == kNone || fits(id); }) &&
           std::ranges::all_of(op.out, [&](BufferId id) { return id != kNone && fits(id); });
  }

  /// True if the op goes on with the ops at hand. Each slice computes outputs of one element anew, so none
  /// of the others may see them.
  bool continues(const LoweredOp& op) const {
    if (parts_.empty() || !is_sliceable(op) || elements(op.out[0]) != elements(parts_[0].out[0]))
      return false;
    bool sees = false;
    for_each_operand(op, [&](BufferId id, bool) { sees = sees || single_.contains(id); });
    return !sees;
  }

  void add(LoweredOp op) {
    for (const BufferId id : op.out) {
      if (elements(id) == 1) single_.insert(id);
    }
    parts_.push_back(std::move(op));
  }

  std::size_t bytes() const {
    std::set<BufferId> operands;
    for (const LoweredOp& op : parts_) {
      for_each_operand(op, [&operands](BufferId id, bool) { operands.insert(id); });
    }
    std::size_t total = 0;
    for (const BufferId id : operands) total += bytes_of(type(id));
    return total;
  }

  void end(std::vector<LoweredOp>& result) {
    if (parts_.size() < 2 || bytes() < kLeastBytes) {
      std::ranges::move(parts_, std::back_inserter(result));
    } else {
      mark_temporaries();
      const Op* const last = parts_.back().op;
      const PathId path = parts_.back().path;
      result.push_back({.op = last, .path = path, .form = lowered::Sliced{std::move(parts_)}});
    }
    parts_.clear();
    single_.clear();
  }

  /// Buffers that the parts alone access, which they write first.
  void mark_temporaries() {
    std::map<BufferId, Accesses> here;
    std::set<BufferId> fresh;
    for (const LoweredOp& op : parts_) {
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
  IdVector<BufferId, Accesses> counts_;
  std::vector<LoweredOp> parts_;  ///< So far.
  std::set<BufferId> single_;     ///< Outputs of them that have one element.
};

}  // namespace

void fuse_slices(const Ir& ir, LoweredProgram& program) { SliceFuser(ir, program).run(program.ops); }

}  // namespace popsr
