#include "popsr/runtime/execution/executor.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "popsr/base/cost.h"
#include "popsr/base/error.h"
#include "popsr/base/overloaded.h"
#include "popsr/base/threads/thread_pool.h"
#include "popsr/exec/host_io.h"
#include "popsr/exec/invalid_labels.h"
#include "popsr/kernels/float_env.h"
#include "popsr/kernels/loader.h"
#include "popsr/kernels/noise.h"
#include "popsr/runtime/observe/run_observers.h"

namespace popsr {
namespace {

kernels::Domain domain_of(PathNode::Kind kind) {
  switch (kind) {
    case PathNode::Kind::kCall:
      return kernels::Domain::kCall;
    case PathNode::Kind::kLoop:
      return kernels::Domain::kLoop;
    default:
      return kernels::Domain::kIteration;
  }
}

}  // namespace

Executor::Executor(const PartitionAnalysis& facts, Plan& plan, ThreadPool& pool, double check, bool profile,
                   RankLink* link)
    : facts_(facts),
      plan_(plan),
      pool_(pool),
      kernels_(kernels::kernel_table()),
      link_(link),
      check_(check),
      profile_(profile),
      claim_ranks_{link, link == nullptr ? std::function<void()>() : [this] { agree_with_ranks(); }},
      path_keys_(plan.program().paths.size()),
      iterations_(plan.program().paths.size(), 0) {}

void Executor::run(std::uint64_t seed, std::uint64_t step, HostIo& io, const RunStops& stops,
                   std::uint64_t number, RunWatcher* watcher) {
  const kernels::FloatEnvironment environment;
  io_ = &io;
  stops_ = &stops;
  number_ = number;
  watcher_ = watcher;
  timer_ = {};
  iterated_ = 0;
  executed_ = 0;
  if (link_ != nullptr) link_->set_failure_shared(false);
  mask_ = nullptr;  // the last run may have ended in an error
  path_keys_[kRootPath] =
      kernels::derive_key(kernels_, kernels::seed_key(kernels_, seed), kernels::Domain::kStep, step);
  derive_paths(PathId(1), path_keys_.next());
  const ExpectedWork expected(pool_);
  try {
    run(plan_.instructions());
    if (link_ != nullptr) agree_with_ranks();  // one may have failed behind its last exchange
  } catch (...) {
    if (link_ != nullptr && !link_->is_failure_shared()) share_failure(std::current_exception());
    throw;
  }
}

void Executor::agree_with_ranks() {
  const Digest::Value digest = Digest().add(std::string_view("exchange")).add(executed_).value();
  const auto text = [this] {
    return std::pair(
        std::string("run"),
        std::vector<RankItem>{{"the number of instructions before an exchange", std::to_string(executed_)}});
  };
  if (const std::optional<RankFailure> failure = link_->agree({digest, text})) {
    failed_ = failure->op == kNone ? nullptr : &ir().op(failure->op);
    raise_failure(*failure);
  }
}

void Executor::exchange_with_ranks(BlockExchange& exchange) {
  const bool is_gathered = exchange.is_gathered(*link_);
  if (is_gathered) exchange.write_payload(*link_);
  agree_with_ranks();
  exchange.moved +=
      is_gathered ? exchange.read_payload(*link_) : link_->exchange(exchange.outgoing, exchange.incoming);
}

void Executor::run_chain(RankChain& chain, const NoiseKeys& noise) {
  agree_with_ranks();
  chain.run(*link_, active(), noise, pool_);
}

void Executor::share_failure(const std::exception_ptr& error) {
  RankFailure mine = failure_of(error);
  mine.at = executed_;
  mine.op = failed_ == nullptr ? kNone : failed_->id;
  const std::optional<RankFailure> first = link_->agree({}, &mine);
  if (!first || first->rank == link_->rank()) return;
  failed_ = first->op == kNone ? nullptr : &ir().op(first->op);
  raise_failure(*first);
}

std::string Executor::stopped_text() const {
  const std::int64_t all = plan_.iterations();
  return all > 1 ? fmt::format("stopped after {} of {} iterations", iterated_, all) : "stopped";
}

void Executor::raise_stopped() const {
  raise<StoppedError>("run: {} by Session.stop(), the variables hold the last update that completed",
                      stopped_text());
}

void Executor::run(std::vector<Instruction>& instructions) {
  const Instruction* current = nullptr;
  const bool is_watched = profile_ || observers_ != nullptr;
  try {
    for (Instruction& instruction : instructions) {
      current = &instruction;
      ++executed_;
      poll(instruction.bytes);
      is_watched ? run_watched(instruction) : run_one(instruction);
    }
  } catch (const StoppedError&) {  // between two ops
    throw;
  } catch (const Error&) {
    if (failed_ == nullptr) failed_ = current->op;  // else it is inside a loop or branch
    throw;
  }
}

void Executor::run_one(Instruction& instruction) {
  if (std::holds_alternative<Loop>(instruction.work)) return execute(instruction, *this);
  prepare(instruction, *this);
  execute(instruction, *this);
  finish(instruction);
  report(instruction);
}

void Executor::run_watched(Instruction& instruction) {
  if (observers_ != nullptr) observers_->instruction_begins(instruction);
  profile_ ? run_timed(instruction) : run_one(instruction);
  if (observers_ != nullptr) observers_->instruction_ends(instruction);
}

void Executor::run_timed(Instruction& instruction) {
  // The instructions of a body are timed one by one.
  if (std::holds_alternative<Loop>(instruction.work) ||
      std::holds_alternative<Conditional>(instruction.work)) {
    return run_one(instruction);
  }
  const auto clock = [this] {
    const auto now = std::chrono::steady_clock::now();
    return observers_ == nullptr ? now : now - observers_->recording();
  };
  const auto start = clock();
  run_one(instruction);
  instruction.counts.time += clock() - start;
}

void Executor::run_masked(std::vector<Instruction>& branch, const Op& conditional,
                          const std::vector<std::uint8_t>& takes_branch) {
  const ExecutionMask mask{&conditional, takes_branch.data(), mask_};
  mask_ = &mask;
  run(branch);
  mask_ = mask.outer;
}

void Executor::finish(Instruction& instruction) {
  Checks& checks = instruction.checks;
  if (checks.invalid_labels != nullptr) {
    if (const std::optional<InvalidLabel> found = checks.invalid_labels->take()) {
      failed_ = instruction.op;  // of a merged op this part
      io_->report_invalid_label(*instruction.op, *found);
      failed_ = nullptr;
      checks.invalid_labels->is_reported = true;
    }
  }
  copy_blocks(instruction.copies, active(), pool_);
  if (observers_ != nullptr) observers_->outputs_ready(instruction, active(), iterations_, pool_);
  ++instruction.counts.executions;
  instruction.counts.blocks += static_cast<std::uint64_t>(active_blocks(instruction, active()));
  if (checks.finite) {
    failed_ = instruction.op;  // of a merged op this part
    check_finite(facts_, plan_, instruction, iterations_, active());
    failed_ = nullptr;
  }
  if (!std::holds_alternative<Merged>(instruction.work) && check_.next()) {
    check_claims(facts_, plan_, instruction, iterations_, active(), claim_ranks_);
  }
}

void Executor::start_iteration(PathId path, PathId end, std::uint64_t i) {
  iterations_[path] = i;
  if (observers_ != nullptr) observers_->iteration_begins(path, i);
  derive_paths(path, end);
}

void Executor::derive_paths(PathId begin, PathId end) {
  if (!plan_.stochastic()) return;
  const auto& paths = plan_.program().paths;
  for (PathId id = begin; id < end; ++id.value) {  // parents come before children
    const bool iteration = paths[id].kind == PathNode::Kind::kIteration;
    path_keys_[id] = kernels::derive_key(kernels_, path_keys_[paths[id].parent], domain_of(paths[id].kind),
                                         iteration ? iterations_[id] : paths[id].component);
  }
}

kernels::NoiseKey Executor::output_key(PathId path, const Op& op, std::size_t output) const {
  const kernels::NoiseKey key =
      kernels::derive_key(kernels_, path_keys_[path], kernels::Domain::kOp, op.noise.index);
  return kernels::derive_key(kernels_, key, kernels::Domain::kOutput, output);
}

void Executor::derive_keys(const Instruction& instruction, NoiseKeys& noise) const {
  for (std::size_t k = 0; k < noise.keys.size(); ++k) {
    derive_keys(output_key(instruction.path, *instruction.op, k), noise.seed_replicas, noise.keys[k]);
  }
}

void Executor::derive_keys(kernels::NoiseKey key, std::span<const Replica> replicas,
                           std::span<kernels::NoiseKey> keys) const {
  for (std::size_t b = 0; b < keys.size(); ++b) {
    keys[b] = kernels::derive_key(kernels_, key, kernels::Domain::kReplica, replicas[b]);
  }
}

void Executor::check_groups(const Instruction& instruction, std::span<const Replica> leaders) const {
  if (mask_ != nullptr && !leaders.empty()) {
    popsr::check_groups(facts_.ir(), *instruction.op, leaders, *mask_);
  }
}

}  // namespace popsr
