// Loops over micro batches, written out: each iteration has activations of its own.
#include <algorithm>
#include <map>
#include <vector>

#include "popsr/ir/inlined_size.h"
#include "popsr/ir/op_def.h"
#include "popsr/runtime/lowering/rewrites.h"

namespace popsr {
namespace {

constexpr std::int64_t kMaxIterations = 64;
constexpr std::size_t kMaxInstructions = 8192;  ///< Of a loop that is written out.

/// Calls visit(id) for each operand; some are kNone.
template <class Op, class Visit>
void for_each_operand(Op& op, const Visit& visit) {
  std::ranges::for_each(op.in, visit);
  std::ranges::for_each(op.out, visit);
  visit(op.lhs);
  visit(op.rhs);
}

/// How many instructions of the whole program touch each buffer.
std::vector<std::size_t> count_uses(const LoweredProgram& program) {
  std::vector<std::size_t> uses(program.buffers.size());
  for_each_op(program.ops, [&uses](const LoweredOp& op) {
    for_each_operand(op, [&uses](BufferId id) {
      if (id != kNone) ++uses[id];
    });
  });
  return uses;
}

class Unroller {
 public:
  explicit Unroller(LoweredProgram& program) : program_(program), uses_(count_uses(program)) {
    for_each_op(program.ops, [this](const LoweredOp&) { left_ -= left_ > 0 ? 1 : 0; });
  }

  void run(std::vector<LoweredOp>& ops) {
    std::vector<LoweredOp> result;
    result.reserve(ops.size());
    for (LoweredOp& op : ops) {
      run(op.body);
      run(op.else_body);
      if (op.kind == LoweredOp::Kind::kLoop && pays(op)) {
        unroll(op, result);
      } else {
        result.push_back(std::move(op));
      }
    }
    ops = std::move(result);
  }

 private:
  std::size_t nbytes(BufferId id) const { return bytes_of(program_.buffers[id].type); }

  /// Does the loop accumulate a product whose operands are small beside its target? Iterations that draw
  /// noise need their numbers.
  bool pays(const LoweredOp& loop) const {
    const auto is_plain = [](const LoweredOp& op) {
      const bool simple = op.kind == LoweredOp::Kind::kOp || op.kind == LoweredOp::Kind::kCopy;
      const bool noisy = op.op != nullptr && (op.op->seeds || op.op->def->numerics.random);
      return simple && !noisy && !(op.product != nullptr && op.product->seeds);
    };
    const auto accumulates = [this](const LoweredOp& op) {
      return op.sink && op.sink->target && op.sink->in_registers &&
             2 * (nbytes(op.lhs) + nbytes(op.rhs)) <= nbytes(op.out[0]);
    };
    const std::size_t size = loop.body.size() * static_cast<std::size_t>(loop.count);
    return loop.count > 1 && loop.count <= kMaxIterations && size <= std::min(kMaxInstructions, left_) &&
           std::ranges::all_of(loop.body, is_plain) && std::ranges::any_of(loop.body, accumulates);
  }

  /// Buffers that every iteration fills before it reads them, and that nothing else uses.
  std::vector<BufferId> locals(const LoweredOp& loop) const {
    std::map<BufferId, std::size_t> inside;
    std::vector<BufferId> found;
    for (const LoweredOp& op : loop.body) {
      for (const BufferId id : op.out) {
        const bool reads = std::ranges::count(op.in, id) > 0 || op.lhs == id || op.rhs == id;
        if (!reads && !inside.contains(id) && program_.buffers[id].kind == BufferKind::kActivation) {
          found.push_back(id);
        }
      }
      for_each_operand(op, [&inside](BufferId id) {
        if (id != kNone) ++inside[id];
      });
    }
    std::erase_if(found, [&](BufferId id) { return inside.at(id) != uses_[id]; });
    return found;
  }

  void unroll(const LoweredOp& loop, std::vector<LoweredOp>& result) {
    left_ -= loop.body.size() * static_cast<std::size_t>(loop.count);
    const std::vector<BufferId> own = locals(loop);
    for (std::int64_t i = 0; i < loop.count; ++i) {
      std::map<BufferId, BufferId> now;
      for (const BufferId id : i == 0 ? std::vector<BufferId>() : own) {
        now[id] = static_cast<BufferId>(program_.buffers.size());
        const Buffer& first = program_.buffers[id];
        program_.buffers.push_back({.tensor = first.tensor, .type = first.type});
        uses_.push_back(uses_[id]);
      }
      for (const LoweredOp& op : loop.body) {
        LoweredOp& copy = result.emplace_back(op);
        for_each_operand(copy, [&now](BufferId& id) {
          const auto renamed = now.find(id);
          if (renamed != now.end()) id = renamed->second;
        });
      }
    }
  }

  LoweredProgram& program_;
  std::vector<std::size_t> uses_;
  std::size_t left_ = kMaxInlinedOps;  ///< That the plan may still grow by.
};

}  // namespace

void unroll_accumulations(LoweredProgram& program) { Unroller(program).run(program.ops); }

}  // namespace popsr
