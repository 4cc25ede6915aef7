#include "popsr/runtime/instructions/sliced.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "popsr/base/error.h"
#include "popsr/base/threads/thread_pool.h"
#include "popsr/exec/block_kernel.h"
#include "popsr/exec/host_io.h"
#include "popsr/ir/op_def.h"
#include "popsr/runtime/execution/executor.h"
#include "popsr/runtime/plan/plan_builder.h"

namespace popsr {
namespace {

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
  const std::int64_t slices = static_cast<std::int64_t>(bytes / lowered::Sliced::kBytes) + 1;
  constexpr std::int64_t kUnit = lowered::Sliced::kUnit;
  return std::max((elements / slices) / kUnit, std::int64_t{1}) * kUnit;
}

/// The op's kernel on slices of so many elements.
BlockKernel kernel_of(const PlanBuilder& builder, const Op& op, std::int64_t elements, std::int64_t slice) {
  EvalSpec spec = builder.spec(op);
  spec.clamp_scales = builder.options().clamp_scales;
  // Operands of one element become scalars: their rank may be greater than that of a slice.
  const auto cut = [&](TensorType& type) {
    type.shape = elements_of(type) == elements ? Shape{slice} : Shape{};
  };
  for (std::optional<TensorType>& type : spec.inputs) {
    if (type) cut(*type);
  }
  std::ranges::for_each(spec.outputs, cut);
  return op.def->kernel.eval(spec);
}

/// Binds operands, and counts the scratch that they need.
class Binder {
 public:
  Binder(const PlanBuilder& builder, const Sliced& work) : builder_(builder), work_(work) {}

  SlicedPart part(const LoweredOp& op) {
    POPSR_CHECK(op.in.size() <= kMaxOperands && op.out.size() <= kMaxOperands);
    SlicedPart part;
    part.full = kernel_of(builder_, *op.op, work_.elements, work_.step);
    const std::int64_t rest = work_.elements % work_.step;
    if (rest != 0) part.tail = kernel_of(builder_, *op.op, work_.elements, rest);
    for (const BufferId id : op.in) part.in.push_back(operand(id));
    for (const BufferId id : op.out) {
      SlicedOperand& out = part.out.emplace_back(operand(id));
      if (out.step > 0) continue;
      out.single = builder_.placement(id).nbytes;
      out.scratch = take(kSingleBytes);
    }
    return part;
  }

  std::size_t scratch() const { return scratch_; }

 private:
  SlicedOperand operand(BufferId id) {
    if (id == kNone || builder_.elements(id) == 1) return {};
    SlicedOperand found;
    found.step = static_cast<std::ptrdiff_t>(builder_.placement(id).nbytes) / work_.elements * work_.step;
    if (!builder_.is_in_slices(id)) return found;
    const auto [place, is_new] = places_.try_emplace(id, 0);
    if (is_new) place->second = take(static_cast<std::size_t>(found.step));
    found.scratch = place->second;
    return found;
  }

  std::size_t take(std::size_t bytes) { return std::exchange(scratch_, scratch_ + (bytes + 63) / 64 * 64); }

  const PlanBuilder& builder_;
  const Sliced& work_;
  std::map<BufferId, std::size_t> places_;
  std::size_t scratch_ = 0;
};

KernelRun& run_of(Instruction& part) { return std::get<KernelRun>(part.work); }

void run_slice(Sliced& work, std::int64_t slice, std::byte* scratch, ThreadPool& serial) {
  const bool is_full = (slice + 1) * work.step <= work.elements;
  const auto first = static_cast<std::uint64_t>(slice * work.step);
  const auto at = [slice, scratch](auto* data, const SlicedOperand& operand) -> decltype(data) {
    if (operand.scratch) return scratch + *operand.scratch;
    return data == nullptr ? nullptr : data + slice * operand.step;
  };
  for (std::size_t p = 0; p < work.parts.size(); ++p) {
    const BoundRun& run = run_of(work.parts[p]).runs.front();
    const SlicedPart& part = work.slices[p];
    std::array<const std::byte*, kMaxOperands> in = {};
    std::array<std::byte*, kMaxOperands> out = {};
    for (std::size_t i = 0; i < run.in.size(); ++i) in[i] = at(run.in[i], part.in[i]);
    for (std::size_t i = 0; i < run.out.size(); ++i) out[i] = at(run.out[i], part.out[i]);
    (is_full ? part.full : part.tail)({in.data(), run.in_stride.data(), out.data(), run.out_stride.data(), 1,
                                       run.noise.data(), serial, first});
  }
}

/// Outputs of one element, which all slices computed alike, to their places.
void store_single(Sliced& work) {
  for (std::size_t p = 0; p < work.parts.size(); ++p) {
    const BoundRun& run = run_of(work.parts[p]).runs.front();
    for (std::size_t i = 0; i < run.out.size(); ++i) {
      const SlicedOperand& out = work.slices[p].out[i];
      if (out.single > 0)
        std::memcpy(run.out[i], work.room->threads.front().data() + *out.scratch, out.single);
    }
  }
}

}  // namespace

void build_sliced(PlanBuilder& builder, const lowered::Sliced& sliced, Instruction& instruction) {
  Sliced& work = instruction.work.emplace<Sliced>();
  work.parts = builder.build(sliced.parts);
  work.elements = elements_of(builder.ir().tensor(sliced.parts.front().op->outputs[0]).type);
  work.step = step_of(builder, sliced, work.elements);
  Binder binder(builder, work);
  for (std::size_t p = 0; p < work.parts.size(); ++p) {
    work.slices.push_back(binder.part(sliced.parts[p]));
    const std::vector<Claim>& claims = work.parts[p].checks.claims;
    instruction.checks.claims.insert(instruction.checks.claims.end(), claims.begin(), claims.end());
  }
  instruction.blocks = static_cast<std::int64_t>(work.parts.size());
  work.room = builder.thread_room(binder.scratch());
}

void prepare(Sliced& work, const Instruction&, Executor& executor) {
  for (Instruction& part : work.parts) prepare(part, executor);
}

void execute(Sliced& work, const Instruction&, Executor& executor) {
  const std::int64_t slices = (work.elements + work.step - 1) / work.step;
  const auto room = static_cast<std::int64_t>(work.room->threads.size());
  const std::int64_t threads = std::min({slices, room, std::int64_t{executor.pool().threads()}});
  executor.pool().run(static_cast<int>(threads), [&](int thread) {
    std::byte* const scratch = work.room->threads[static_cast<std::size_t>(thread)].data();
    for (std::int64_t s = slices * thread / threads; s < slices * (thread + 1) / threads; ++s) {
      run_slice(work, s, scratch, executor.serial());
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
