// Loops over micro batches, written out: each iteration has activations of its own.
#include <algorithm>
#include <map>
#include <vector>

#include "popsr/ir/calls/inlined_size.h"
#include "popsr/ir/op_def.h"
#include "popsr/runtime/lowering/accesses.h"
#include "popsr/runtime/lowering/rewrites.h"

namespace popsr {
namespace {

constexpr std::int64_t kMaxIterations = 64;
constexpr std::size_t kMaxInstructions = 8192;  ///< Largest number of instructions of an unrolled loop.

/// Number of instructions of the whole program that touch each buffer.
IdVector<BufferId, std::size_t> count_uses(const LoweredProgram& program) {
  IdVector<BufferId, std::size_t> uses(program.buffers.size());
  for_each_op(program.ops, [&uses](const LoweredOp& op) {
    for_each_operand(op, [&uses](BufferId id, bool) { ++uses[id]; });
  });
  return uses;
}

class Unroller {
 public:
  Unroller(const Ir& ir, LoweredProgram& program) : ir_(ir), program_(program), uses_(count_uses(program)) {
    for_each_op(program.ops, [this](const LoweredOp&) { left_ -= left_ > 0 ? 1 : 0; });
  }

  void run(std::vector<LoweredOp>& ops) {
    std::vector<LoweredOp> result;
    result.reserve(ops.size());
    for (LoweredOp& op : ops) {
      for_each_body(op, [this](std::vector<LoweredOp>& body) { run(body); });
      const auto* const loop = op.as<lowered::Loop>();
      if (loop != nullptr && pays(*loop)) {
        unroll(*loop, result);
      } else {
        result.push_back(std::move(op));
      }
    }
    ops = std::move(result);
  }

 private:
  std::size_t nbytes(BufferId id) const { return bytes_of(program_.buffers[id].type); }

  /// True if the loop accumulates a product whose operands are small beside its target, which lives on from
  /// one iteration to the next. Iterations that draw noise need their numbers.
  bool pays(const lowered::Loop& loop) const {
    const auto is_stochastic = [this](const Op& op) { return program_.seed_rules.of(ir_, op).has_value(); };
    const auto is_plain = [&is_stochastic](const LoweredOp& op) {
      const bool simple = op.is_single() || op.is<lowered::Copy>();
      const bool noisy = op.op != nullptr && (is_stochastic(*op.op) || op.op->def->numerics.random);
      const auto* const fused = op.as<lowered::FusedProduct>();
      return simple && !noisy && !(fused != nullptr && is_stochastic(*fused->product));
    };
    const std::vector<BufferId> own = locals(loop);
    const auto accumulates = [this, &own](const LoweredOp& op) {
      const auto* const fused = op.as<lowered::FusedProduct>();
      return fused != nullptr && fused->fusion.target && fused->fusion.in_registers &&
             2 * (nbytes(fused->lhs) + nbytes(fused->rhs)) <= nbytes(op.out[0]) &&
             std::ranges::find(own, op.out[0]) == own.end();
    };
    const std::size_t size = loop.body.size() * static_cast<std::size_t>(loop.count);
    return loop.count > 1 && loop.count <= kMaxIterations && size <= std::min(kMaxInstructions, left_) &&
           std::ranges::all_of(loop.body, is_plain) && std::ranges::any_of(loop.body, accumulates);
  }

  static bool reads(const LoweredOp& op, BufferId buffer) {
    bool found = false;
    for_each_operand(op, [&](BufferId id, bool is_written) { found |= !is_written && id == buffer; });
    return found;
  }

  /// Buffers that every iteration fills before it reads them, and that nothing else uses.
  std::vector<BufferId> locals(const lowered::Loop& loop) const {
    std::map<BufferId, std::size_t> inside;
    std::vector<BufferId> found;
    for (const LoweredOp& op : loop.body) {
      for (const BufferId id : op.out) {
        if (!reads(op, id) && !inside.contains(id) && program_.buffers[id].kind == BufferKind::kActivation) {
          found.push_back(id);
        }
      }
      for_each_operand(op, [&inside](BufferId id, bool) { ++inside[id]; });
    }
    std::erase_if(found, [&](BufferId id) { return inside.at(id) != uses_[id]; });
    return found;
  }

  void unroll(const lowered::Loop& loop, std::vector<LoweredOp>& result) {
    left_ -= loop.body.size() * static_cast<std::size_t>(loop.count);
    const std::vector<BufferId> own = locals(loop);
    for (std::int64_t i = 0; i < loop.count; ++i) {
      std::map<BufferId, BufferId> now;
      for (const BufferId id : i == 0 ? std::vector<BufferId>() : own) {
        now[id] = program_.buffers.next();
        const Buffer& first = program_.buffers[id];
        program_.buffers.push_back({.tensor = first.tensor, .type = first.type});
        uses_.push_back(uses_[id]);
      }
      for (const LoweredOp& op : loop.body) {
        LoweredOp& copy = result.emplace_back(op);
        for_each_operand(copy, [&now](BufferId& id, bool) {
          const auto renamed = now.find(id);
          if (renamed != now.end()) id = renamed->second;
        });
      }
    }
  }

  const Ir& ir_;
  LoweredProgram& program_;
  IdVector<BufferId, std::size_t> uses_;
  std::size_t left_ = kMaxInlinedOps;  ///< Number of instructions by which the plan may still grow.
};

}  // namespace

void unroll_accumulations(const Ir& ir, LoweredProgram& program) {
  const auto is_loop = [](const LoweredOp& op) { return op.is<lowered::Loop>(); };
  if (any_op(program.ops, is_loop)) Unroller(ir, program).run(program.ops);
}

}  // namespace popsr
