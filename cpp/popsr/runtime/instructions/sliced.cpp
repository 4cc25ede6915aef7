#include "popsr/runtime/instructions/sliced.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <set>

#include "popsr/base/error.h"
#include "popsr/base/thread_pool.h"
#include "popsr/exec/block_kernel.h"
#include "popsr/exec/host_io.h"
#include "popsr/ir/op_def.h"
#include "popsr/runtime/execution/executor.h"
#include "popsr/runtime/plan/plan_builder.h"

namespace popsr {
namespace {

/// All operands of a slice: half of a usual second-level cache.
constexpr std::size_t kSliceBytes = std::size_t{1} << 19;
constexpr std::int64_t kSliceUnit = 1024;  ///< Slices begin at multiples of it.
constexpr std::size_t kMaxOperands = 16;
constexpr std::size_t kSingleBytes = 16;  ///< Room for one element.

std::int64_t elements_of(const TensorType& type) { return num_elements(type.shape); }

/// Elements of a slice: a multiple of the unit.
std::int64_t step_of(const PlanBuilder& builder, const lowered::Sliced& sliced, std::int64_t elements) {
  std::set<BufferId> operands;
  for (const LoweredOp& op : sliced.parts) {
    for_each_operand(op, [&operands](BufferId id, bool) { operands.insert(id); });
  }
  std::size_t bytes = 0;
  for (const BufferId id : operands) bytes += builder.placement(id).nbytes;
  const std::int64_t slices = static_cast<std::int64_t>(bytes / kSliceBytes) + 1;
  return std::max((elements / slices) / kSliceUnit, std::int64_t{1}) * kSliceUnit;
}

/// The op's kernel on slices of so many elements.
BlockKernel kernel_of(const PlanBuilder& builder, const Op& op, std::int64_t elements, std::int64_t slice) {
  EvalSpec spec = builder.spec(op);
  spec.clamp_scales = builder.options().clamp_scales;
  for (std::optional<TensorType>& type : spec.inputs) {
    if (type && elements_of(*type) == elements) type->shape = {slice};
  }
  for (TensorType& type : spec.outputs) {
    if (elements_of(type) == elements) type.shape = {slice};
  }
  return op.def->kernel.eval(spec);
}

SlicedPart part_of(const PlanBuilder& builder, const LoweredOp& op, const Sliced& work) {
  POPSR_CHECK(op.in.size() <= kMaxOperands && op.out.size() <= kMaxOperands);
  SlicedPart part;
  part.full = kernel_of(builder, *op.op, work.elements, work.step);
  const std::int64_t rest = work.elements % work.step;
  if (rest != 0) part.tail = kernel_of(builder, *op.op, work.elements, rest);
  const auto step = [&](BufferId id) -> std::ptrdiff_t {
    if (id == kNone || builder.placement(id).nbytes <= kSingleBytes) return 0;
    return static_cast<std::ptrdiff_t>(builder.placement(id).nbytes) / work.elements * work.step;
  };
  for (const BufferId id : op.in) part.in_step.push_back(step(id));
  for (const BufferId id : op.out) {
    part.out_step.push_back(step(id));
    part.single.push_back(part.out_step.back() == 0 ? builder.placement(id).nbytes : 0);
  }
  return part;
}

KernelRun& run_of(Instruction& part) { return std::get<KernelRun>(part.work); }

void run_slice(Sliced& work, std::int64_t slice, std::byte* single, ThreadPool& serial) {
  const bool is_full = (slice + 1) * work.step <= work.elements;
  const auto first = static_cast<std::uint64_t>(slice * work.step);
  for (std::size_t p = 0; p < work.parts.size(); ++p) {
    const BoundRun& run = run_of(work.parts[p]).runs.front();
    const SlicedPart& part = work.slices[p];
    std::array<const std::byte*, kMaxOperands> in = {};
    std::array<std::byte*, kMaxOperands> out = {};
    for (std::size_t i = 0; i < run.in.size(); ++i) {
      in[i] = run.in[i] == nullptr ? nullptr : run.in[i] + slice * part.in_step[i];
    }
    for (std::size_t i = 0; i < run.out.size(); ++i) {
      out[i] = part.single[i] > 0 ? single : run.out[i] + slice * part.out_step[i];
      if (part.single[i] > 0) single += kSingleBytes;
    }
    (is_full ? part.full : part.tail)({in.data(), run.in_stride.data(), out.data(), run.out_stride.data(), 1,
                                       run.noise.data(), serial, first});
  }
}

/// Outputs of one element, which all slices computed alike, to their places.
void store_single(Sliced& work) {
  const std::byte* from = work.single.front().data();
  for (std::size_t p = 0; p < work.parts.size(); ++p) {
    const BoundRun& run = run_of(work.parts[p]).runs.front();
    for (std::size_t i = 0; i < run.out.size(); ++i) {
      if (work.slices[p].single[i] == 0) continue;
      std::memcpy(run.out[i], from, work.slices[p].single[i]);
      from += kSingleBytes;
    }
  }
}

}  // namespace

void build_sliced(PlanBuilder& builder, const lowered::Sliced& sliced, Instruction& instruction) {
  Sliced& work = instruction.work.emplace<Sliced>();
  work.parts = builder.build(sliced.parts);
  work.elements = elements_of(builder.ir().tensor(sliced.parts.front().op->outputs[0]).type);
  work.step = step_of(builder, sliced, work.elements);
  std::size_t single = 0;
  for (std::size_t p = 0; p < work.parts.size(); ++p) {
    work.slices.push_back(part_of(builder, sliced.parts[p], work));
    const std::vector<std::size_t>& bytes = work.slices.back().single;
    single += kSingleBytes * (bytes.size() - static_cast<std::size_t>(std::ranges::count(bytes, 0U)));
    const std::vector<Claim>& claims = work.parts[p].checks.claims;
    instruction.checks.claims.insert(instruction.checks.claims.end(), claims.begin(), claims.end());
  }
  instruction.blocks = static_cast<std::int64_t>(work.parts.size());
  for (int thread = 0; thread < builder.options().threads; ++thread) {
    work.single.push_back(builder.make_staging(single));
  }
}

void prepare(Sliced& work, const Instruction&, Executor& executor) {
  for (Instruction& part : work.parts) prepare(part, executor);
}

void execute(Sliced& work, const Instruction&, Executor& executor) {
  const std::int64_t slices = (work.elements + work.step - 1) / work.step;
  const auto room = static_cast<std::int64_t>(work.single.size());
  const std::int64_t threads = std::min({slices, room, std::int64_t{executor.pool().threads()}});
  executor.pool().run(static_cast<int>(threads), [&](int thread) {
    std::byte* const single = work.single[static_cast<std::size_t>(thread)].data();
    for (std::int64_t s = slices * thread / threads; s < slices * (thread + 1) / threads; ++s) {
      run_slice(work, s, single, executor.serial());
    }
  });
  store_single(work);
  for (Instruction& part : work.parts) executor.finish(part);
}

/// "accumulate_moving_average_+adam_updater+adam_var_update"
std::string describe(const Sliced& work, const Instruction&, const Ir&) {
  std::string text;
  for (const Instruction& part : work.parts) {
    text += text.empty() ? "" : "+";
    text += part.op->def->name;
  }
  return text;
}

}  // namespace popsr
