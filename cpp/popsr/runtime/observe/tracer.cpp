#include "popsr/runtime/observe/tracer.h"

namespace popsr {
namespace {

constexpr std::size_t kMaxCounts = 4096;
constexpr std::size_t kCounted = ~std::size_t{0};

bool has_body(const Instruction& instruction) {
  return std::holds_alternative<Loop>(instruction.work) ||
         std::holds_alternative<Conditional>(instruction.work);
}

}  // namespace

void Tracer::run_begins(const ObservedRun& run) {
  ir_ = &run.ir;
  plan_ = &run.plan;
  if (build_ != run.plan.build_id()) known_.clear();
  build_ = run.plan.build_id();
  open_.clear();
  open_.push_back(events_.size() < limit_ ? events_.size() : kCounted);
  if (open_.back() != kCounted)
    events_.push_back({parts_.clock(), 0, TraceEvent::kRun, static_cast<std::uint32_t>(run.step)});
}

void Tracer::run_ends() {
  const std::int64_t end = parts_.clock();
  for (; !open_.empty(); open_.pop_back()) {  // more than the run's own when it ended in an error
    if (open_.back() != kCounted && open_.back() < events_.size()) events_[open_.back()].end = end;
  }
}

std::uint32_t Tracer::slot_of(const Instruction& instruction) {
  const auto [it, fresh] = known_.try_emplace(&instruction, static_cast<std::uint32_t>(slots_.size()));
  if (!fresh) return it->second;
  TraceSlot slot{.name = describe(*ir_, instruction),
                 .op = instruction.op == nullptr ? std::uint32_t{kNone} : instruction.op->id.value,
                 .bytes = instruction.bytes,
                 .blocks = static_cast<std::uint64_t>(instruction.blocks),
                 .has_body = has_body(instruction)};
  for (const PathId at : nodes_to(plan_->program(), instruction.path)) {
    const PathNode& node = plan_->program().paths[at];
    slot.path.insert(slot.path.end(), {static_cast<std::uint32_t>(node.kind),
                                       static_cast<std::uint32_t>(node.component), at.value});
  }
  slots_.push_back(std::move(slot));
  return it->second;
}

void Tracer::instruction_begins(const Instruction& instruction) {
  const std::uint32_t slot = slot_of(instruction);
  const bool keeps = events_.size() < limit_;
  open_.push_back(keeps ? events_.size() : kCounted);
  const std::int64_t begin = parts_.clock();
  if (keeps) {
    events_.push_back({begin, 0, slot, 0});
  } else if (!has_body(instruction)) {
    count({begin, 0, slot, 0}, instruction.bytes);
  }
}

void Tracer::instruction_ends(const Instruction& instruction) {
  const std::int64_t end = parts_.clock();
  if (open_.back() != kCounted) {
    events_[open_.back()].end = end;
  } else if (!has_body(instruction)) {
    TraceCount& last = counts_.back();
    last.nanoseconds += static_cast<std::uint64_t>(end - last.end);
    last.end = end;
  }
  open_.pop_back();
}

void Tracer::iteration_begins(PathId path, std::uint64_t i) {
  if (events_.size() >= limit_) return;
  events_.push_back({parts_.clock(), 0, TraceEvent::kIteration | path.value, static_cast<std::uint32_t>(i)});
}

void Tracer::count(const TraceEvent& event, std::uint64_t bytes) {
  if (counts_.empty() || event.begin - counts_.back().begin >= interval_) {
    if (counts_.size() == kMaxCounts) {  // intervals twice as long
      for (std::size_t i = 0; i < kMaxCounts / 2; ++i) {
        const TraceCount &a = counts_[2 * i], &b = counts_[2 * i + 1];
        counts_[i] = {a.begin, b.end, a.instructions + b.instructions, a.nanoseconds + b.nanoseconds,
                      a.bytes + b.bytes};
      }
      counts_.resize(kMaxCounts / 2);
      interval_ *= 2;
    }
    counts_.push_back({.begin = event.begin});
  }
  TraceCount& last = counts_.back();
  last.end = event.begin;  // until instruction_ends
  ++last.instructions;
  last.bytes += bytes;
}

}  // namespace popsr
