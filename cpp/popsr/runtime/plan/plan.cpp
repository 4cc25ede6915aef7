#include "popsr/runtime/plan/plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <span>

#include "popsr/base/error.h"
#include "popsr/base/threads/deep_stack.h"
#include "popsr/ir/op_def.h"
#include "popsr/kernels/loader.h"
#include "popsr/runtime/plan/plan_builder.h"
#include "popsr/runtime/ranks/block_exchange.h"
#include "popsr/runtime/ranks/rank_chain.h"

namespace popsr {
namespace {

std::string fact_text(PartitionTable& table, PartitionId fact) {
  const std::int64_t blocks = table.num_blocks(fact);
  if (blocks == 1) return "equal";
  return blocks == table.replicas() ? "per replica" : table.to_string(fact);
}

/// "%y f32[4] = add  blocks=2 bytes=32 per replica"
std::string line(const Ir& ir, const Plan& plan, const Instruction& instruction) {
  std::vector<std::string> outputs, facts;
  std::size_t nbytes = 0;
  constexpr std::size_t kShown = 4;  // a store at an unknown offset may write any entry
  for (const Claim& claim : instruction.checks.claims) {
    const Buffer& buffer = plan.program().buffers[claim.buffer];
    nbytes += static_cast<std::size_t>(plan.blocks().num_blocks(buffer.storage)) *
              plan.memory().placements[claim.buffer].nbytes;
    if (outputs.size() == kShown) {
      outputs.emplace_back("...");
      facts.emplace_back("...");
    }
    if (outputs.size() > kShown) continue;
    outputs.push_back(fmt::format("%{} {}", ir.tensor(buffer.tensor).name, to_string(buffer.type)));
    facts.push_back(fact_text(ir.partitions(), claim.fact));
  }
  return fmt::format("{}{}{}  blocks={} bytes={}{}{}\n", fmt::join(outputs, ", "),
                     outputs.empty() ? "" : " = ", describe(ir, instruction), instruction.blocks, nbytes,
                     facts.empty() ? "" : " ", fmt::join(facts, ", "));
}

std::string spaces(int indent) { return std::string(static_cast<std::size_t>(indent), ' '); }

void print(const Ir& ir, const Plan& plan, const std::vector<Instruction>& instructions, int indent,
           std::string& text) {
  const auto print_body = [&](const std::vector<Instruction>& body) {
    print(ir, plan, body, indent + 2, text);
  };
  for (const Instruction& instruction : instructions) {
    text += spaces(indent);
    if (const auto* const loop = std::get_if<Loop>(&instruction.work)) {
      text += describe(ir, instruction) + " {\n";
      print_body(loop->body);
      text += spaces(indent) + "}\n";
    } else if (const auto* const conditional = std::get_if<Conditional>(&instruction.work)) {
      text += describe(ir, instruction) + " {\n";
      print_body(conditional->then_body);
      text += spaces(indent) + "} else {\n";
      print_body(conditional->else_body);
      text += spaces(indent) + "}\n";
    } else {
      text += line(ir, plan, instruction);
    }
  }
}

}  // namespace

Plan::Plan(const PartitionAnalysis& facts, const PlanOptions& options)
    : ir_(&facts.ir()),
      blocks_(facts.ir().partitions(),
              options.ranks.is_alone() ? RankMap{facts.ir().replication()} : options.ranks),
      program_(plan_program(facts, options)),
      options_(options) {
  choose_halos(options);
  memory_ = lay_out(*ir_, blocks_, program_);
  arena_ = memory_.activations;
  build();
}

void Plan::build() {
  static std::atomic<std::uint64_t> builds{0};
  build_id_ = ++builds;
  PlanBuilder builder(*ir_, kernels::kernel_table(), options_, *this);
  instructions_ = builder.build(program_.ops);
  builder.finish();
  count_iterations();
}

void Plan::own(BufferId variable) {
  own_memory(*ir_, blocks_, program_, variable, memory_);
  is_outdated_ = true;
}

void Plan::rebuild() {
  instructions_.clear();
  memory_.activations = arena_;
  iterations_ = 0;
  build();
  is_outdated_ = false;
}

void Plan::choose_halos(const PlanOptions& options) {
  if (blocks_.ranks().is_alone()) return;
  for_each_op(program_.ops, [&](const LoweredOp& op) {
    if (chain_for(*ir_, blocks_, program_, op, options)) return;
    for (const BufferId id : op.in) {
      if (id == kNone) continue;
      Buffer& buffer = program_.buffers[id];
      buffer.halo = std::max(buffer.halo, halo_of(*ir_, blocks_, op, buffer.storage).num_received);
    }
  });
}

void Plan::count_iterations() {
  for (Instruction& instruction : instructions_) {
    const auto* const loop = std::get_if<Loop>(&instruction.work);
    if (loop == nullptr || !loop->conditions.empty()) continue;
    instruction.iterations = 1;
    iterations_ += loop->count;
  }
  const IdVector<StreamId, std::int64_t> reads = stream_reads();
  if (iterations_ > 0 || reads.empty()) return;
  const StreamId most(std::ranges::max_element(reads) - reads.begin());
  iterations_ = reads[most];
  if (iterations_ < 2) return;
  for (Instruction& instruction : instructions_) {
    IdVector<StreamId, std::int64_t> moved(reads.size(), 0);
    count_streams({&instruction, 1}, 1, moved);
    instruction.iterations = moved[most];
  }
}

BufferId Plan::variable(TensorId id) const {
  if (ir_->tensor(id).state.home != kNone) id = ir_->tensor(id).state.home;
  // Lowering makes the buffers of variables first, in the order of their tensors.
  const auto& all = program_.buffers;
  const auto is_variable = [](const Buffer& buffer) { return buffer.kind == BufferKind::kVariable; };
  const auto end = std::ranges::partition_point(all, is_variable);
  const auto it = std::ranges::lower_bound(all.begin(), end, id, {}, &Buffer::tensor);
  if (it != end && it->tensor == id) return BufferId(it - all.begin());
  raise<InternalError>("session: no buffer for variable '{}'", ir_->tensor(id).name);
}

std::byte* Plan::block(BufferId buffer, Replica replica) const {
  const Placement& placement = memory_.placements[buffer];
  const std::uint32_t label = blocks_.labels(program_.buffers[buffer].storage)[replica];
  POPSR_CHECK(label != kAbsentBlock);
  return placement.base + label * placement.nbytes;
}

IdVector<StreamId, std::int64_t> Plan::stream_reads() const {
  IdVector<StreamId, std::int64_t> reads(ir_->num_streams(), 0);
  count_streams(instructions_, 1, reads);
  return reads;
}

std::string Plan::to_string() const {
  std::string text;
  with_deep_stack([&] { print(*ir_, *this, instructions_, 0, text); });
  return text;
}

}  // namespace popsr
