#include "popsr/runtime/plan/plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <span>

#include "popsr/base/deep_stack.h"
#include "popsr/base/error.h"
#include "popsr/ir/op_def.h"
#include "popsr/kernels/loader.h"
#include "popsr/runtime/lowering/rewrites.h"
#include "popsr/runtime/plan/plan_builder.h"

namespace popsr {
namespace {

void count_streams(std::span<const Instruction> instructions, std::int64_t times,
                   IdVector<StreamId, std::int64_t>& reads) {
  for (const Instruction& instruction : instructions) {
    if (instruction.kind == Instruction::Kind::kLoop) {
      count_streams(instruction.body, times * instruction.count, reads);
    } else if (instruction.kind == Instruction::Kind::kMerged) {
      count_streams(instruction.body, times, reads);
    } else if (instruction.kind == Instruction::Kind::kConditional) {
      IdVector<StreamId, std::int64_t> other = reads;
      count_streams(instruction.body, times, reads);
      count_streams(instruction.else_body, times, other);
      for (const StreamId id : reads.ids()) reads[id] = std::max(reads[id], other[id]);
    } else if (instruction.op) {
      for (const Attribute& value : instruction.op->attrs) {
        if (const auto* stream = std::get_if<StreamId>(&value)) reads[*stream] += times;
      }
    }
  }
}

/// "matmul+accumulate_", "4 x matmul+accumulate_+replicated_all_reduce_"
std::string describe_product(const Instruction& instruction) {
  std::string text = fmt::format("{}", instruction.product->def->name);
  if (!instruction.steps.empty()) {
    const std::string_view step = instruction.steps.back().op->def->name;
    text = fmt::format("{} x {}+{}", instruction.steps.size(), text, step);
    if (instruction.sink->target) return text;
  }
  return fmt::format("{}+{}", text, instruction.op->def->name);
}

std::string describe(const Instruction& instruction) {
  switch (instruction.kind) {
    case Instruction::Kind::kCopy:
      return "copy";
    case Instruction::Kind::kProduct:
      return describe_product(instruction);
    default:
      return fmt::format("{}{}", instruction.op->def->name, instruction.write_back ? " (write back)" : "");
  }
}

std::string describe(PartitionTable& table, PartitionId fact) {
  const std::int64_t blocks = table.num_blocks(fact);
  if (blocks == 1) return "equal";
  return blocks == table.replicas() ? "per replica" : table.to_string(fact);
}

/// "%y f32[4] = add  blocks=2 bytes=32 per replica"
std::string line(const Ir& ir, const Plan& plan, const Instruction& instruction) {
  std::vector<std::string> outputs, facts;
  std::size_t nbytes = 0;
  constexpr std::size_t kShown = 4;  // a store at an unknown offset may write any entry
  for (const Claim& claim : instruction.claims) {
    const Buffer& buffer = plan.program().buffers[claim.buffer];
    nbytes += static_cast<std::size_t>(ir.partitions().num_blocks(buffer.storage)) *
              plan.memory().placements[claim.buffer].nbytes;
    if (outputs.size() == kShown) {
      outputs.emplace_back("...");
      facts.emplace_back("...");
    }
    if (outputs.size() > kShown) continue;
    outputs.push_back(fmt::format("%{} {}", ir.tensor(buffer.tensor).name, to_string(buffer.type)));
    facts.push_back(describe(ir.partitions(), claim.fact));
  }
  return fmt::format("{}{}{}  blocks={} bytes={}{}{}\n", fmt::join(outputs, ", "),
                     outputs.empty() ? "" : " = ", describe(instruction), instruction.blocks, nbytes,
                     facts.empty() ? "" : " ", fmt::join(facts, ", "));
}

void print(const Ir& ir, const Plan& plan, const std::vector<Instruction>& instructions, int indent,
           std::string& text) {
  for (const Instruction& instruction : instructions) {
    text += std::string(static_cast<std::size_t>(indent), ' ');
    if (instruction.kind == Instruction::Kind::kLoop) {
      text += fmt::format("repeat {} times {{\n", instruction.count);
      print(ir, plan, instruction.body, indent + 2, text);
      text += std::string(static_cast<std::size_t>(indent), ' ') + "}\n";
      continue;
    }
    if (instruction.kind == Instruction::Kind::kConditional) {
      text += fmt::format("if %{} {{\n", ir.tensor(instruction.op->inputs[0]).name);
      print(ir, plan, instruction.body, indent + 2, text);
      text += std::string(static_cast<std::size_t>(indent), ' ') + "} else {\n";
      print(ir, plan, instruction.else_body, indent + 2, text);
      text += std::string(static_cast<std::size_t>(indent), ' ') + "}\n";
      continue;
    }
    text += line(ir, plan, instruction);
  }
}

}  // namespace

Plan::Plan(const PartitionAnalysis& facts, const PlanOptions& options)
    : ir_(&facts.ir()), program_(lower(facts)) {
  facts.check_fresh();
  const kernels::KernelTable& kernels = kernels::kernel_table();
  share_buffers(program_);
  if (options.fold) fold_products(*ir_, kernels, program_, options.dedup);
  if (options.fold && options.unroll) unroll_accumulations(program_);
  choose_storage(facts, program_, options.dedup);
  if (options.fold) {
    fold_steps(*ir_, kernels, program_, options.dedup);
    choose_storage(facts, program_, options.dedup);
  }
  memory_ = place(*ir_, program_);
  instructions_ = PlanBuilder(*ir_, kernels, options, *this).build(program_.ops);
  count_iterations();
}

void Plan::count_iterations() {
  for (Instruction& instruction : instructions_) {
    if (instruction.kind != Instruction::Kind::kLoop) continue;
    instruction.iterations = 1;
    iterations_ += instruction.count;
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
  if (ir_->tensor(id).home != kNone) id = ir_->tensor(id).home;
  // Lowering makes the buffers of variables first, in the order of their tensors.
  const std::vector<Buffer>& all = program_.buffers;
  const auto is_variable = [](const Buffer& buffer) { return buffer.kind == BufferKind::kVariable; };
  const auto end = std::ranges::partition_point(all, is_variable);
  const auto it = std::ranges::lower_bound(all.begin(), end, id, {}, &Buffer::tensor);
  if (it != end && it->tensor == id) return static_cast<BufferId>(it - all.begin());
  raise<InternalError>("session: no buffer for variable '{}'", ir_->tensor(id).name);
}

std::byte* Plan::block(BufferId buffer, Replica replica) const {
  const Placement& placement = memory_.placements[buffer];
  const std::uint32_t label = ir_->partitions().labels(program_.buffers[buffer].storage)[replica];
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
