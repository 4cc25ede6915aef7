#include "popsr/runtime/execution/executor.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <tuple>
#include <utility>

#include "popsr/base/cost.h"
#include "popsr/base/error.h"
#include "popsr/kernels/float_env.h"
#include "popsr/kernels/loader.h"
#include "popsr/kernels/noise.h"

namespace popsr {
namespace {

void copy_blocks(const std::vector<BlockCopy>& copies, ActiveReplicas active, ThreadPool& pool) {
  for (const BlockCopy& copy : copies) {
    if (!active(copy.replica)) continue;
    if (!worth_threads(kValueBytes, static_cast<std::int64_t>(copy.nbytes))) {
      std::memcpy(copy.to, copy.from, copy.nbytes);
      continue;
    }
    const auto parts = static_cast<std::size_t>(pool.threads());
    pool.run(pool.threads(), [&copy, parts](int part) {
      const std::size_t begin = copy.nbytes * static_cast<std::size_t>(part) / parts;
      const std::size_t end = copy.nbytes * (static_cast<std::size_t>(part) + 1) / parts;
      std::memcpy(copy.to + begin, copy.from + begin, end - begin);
    });
  }
}

/// Null when its op takes no labels, or stray ones were told of.
StrayLabels* stray_of(const Instruction& instruction) {
  StrayLabels* const stray = instruction.stray.get();
  return stray == nullptr || stray->told ? nullptr : stray;
}

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

Executor::Executor(const PartitionAnalysis& facts, Plan& plan, ThreadPool& pool, double check)
    : facts_(facts),
      plan_(plan),
      pool_(pool),
      kernels_(kernels::kernel_table()),
      check_(check),
      path_keys_(plan.program().paths.size()),
      iterations_(plan.program().paths.size(), 0) {
  for_each_op(plan.instructions(), [this](const Instruction& instruction) {
    for (const BoundRun& run : instruction.runs) {
      in_.resize(std::max(in_.size(), run.in.size()));
      out_.resize(std::max(out_.size(), run.out.size()));
      noise_.resize(out_.size());
    }
    for (const BoundSteps& stepped : instruction.stepped) {
      factors_.resize(std::max(factors_.size(), stepped.in.size()));
    }
  });
}

void Executor::run(std::uint64_t seed, std::uint64_t step, HostIo& io, RunWatcher* watcher) {
  const kernels::FloatEnvironment environment;
  watcher_ = watcher;
  timer_ = {};
  iterated_ = 0;
  branch_ = nullptr;  // the last run may have ended in an error
  path_keys_[0] = kernels::fold(kernels_, kernels::seed_key(kernels_, seed), kernels::Domain::kStep, step);
  make_paths(1, static_cast<PathId>(path_keys_.size()));
  run(plan_.instructions(), io);
}

std::string Executor::stopped_text() const {
  const std::int64_t all = plan_.iterations();
  return all > 1 ? fmt::format("stopped after {} of {} iterations", iterated_, all) : "stopped";
}

void Executor::raise_stopped() const {
  raise<StoppedError>("run: {} by Session.stop(), the variables hold the last update that completed",
                      stopped_text());
}

void Executor::make_paths(PathId begin, PathId end) {
  if (!plan_.stochastic()) return;
  const std::vector<PathNode>& paths = plan_.program().paths;
  for (PathId id = begin; id < end; ++id) {  // parents come before children
    const bool iteration = paths[id].kind == PathNode::Kind::kIteration;
    path_keys_[id] = kernels::fold(kernels_, path_keys_[paths[id].parent], domain_of(paths[id].kind),
                                   iteration ? iterations_[id] : paths[id].component);
  }
}

kernels::NoiseKey Executor::output_key(PathId path, const Op& op, std::size_t output) const {
  const kernels::NoiseKey key = kernels::fold(kernels_, path_keys_[path], kernels::Domain::kOp, op.site);
  return kernels::fold(kernels_, key, kernels::Domain::kOutput, output);
}

void Executor::make_keys(Instruction& instruction) {
  const auto fold_replicas = [this](kernels::NoiseKey key, const std::vector<Replica>& replicas,
                                    std::vector<kernels::NoiseKey>& keys) {
    for (std::size_t b = 0; b < keys.size(); ++b) {
      keys[b] = kernels::fold(kernels_, key, kernels::Domain::kReplica, replicas[b]);
    }
  };
  for (std::size_t k = 0; k < instruction.keys.size(); ++k) {
    fold_replicas(output_key(instruction.path, *instruction.op, k), instruction.seed_replicas,
                  instruction.keys[k]);
  }
  for (BoundProduct& bound : instruction.products) {
    if (bound.noise.empty()) continue;
    fold_replicas(output_key(instruction.product_path, *instruction.product, 0), bound.seed_replicas,
                  bound.noise);
  }
}

void Executor::run(std::vector<Instruction>& instructions, HostIo& io) {
  const Instruction* current = nullptr;
  try {
    for (Instruction& instruction : instructions) {
      current = &instruction;
      poll(instruction.heavy);
      run_loop_or_op(instruction, io);
    }
  } catch (const StoppedError&) {  // between two ops
    throw;
  } catch (const Error&) {
    if (failed_ == nullptr) failed_ = current->op;  // else it is inside a loop or branch
    throw;
  }
}

void Executor::run_loop_or_op(Instruction& instruction, HostIo& io) {
  if (instruction.kind == Instruction::Kind::kLoop) return run_loop(instruction, io);
  if (plan_.stochastic()) make_keys(instruction);
  if (branch_ != nullptr) check_taking_part(instruction);
  if (instruction.finite) instruction.finite->read_operands(active());
  switch (instruction.kind) {
    case Instruction::Kind::kMerged:
      run_merged(instruction, io);
      break;
    case Instruction::Kind::kConditional:
      run_conditional(instruction, io);
      break;
    default:
      run_one(instruction, io);
  }
  finish(instruction, io);
  report(instruction);
}

/// Before anything of the instruction runs: an error leaves no part of a merged op done.
void Executor::check_taking_part(const Instruction& instruction) const {
  if (!instruction.leaders.empty()) check_groups(facts_.ir(), instruction, *branch_);
  if (instruction.kind != Instruction::Kind::kMerged) return;
  for (const Instruction& part : instruction.body) check_taking_part(part);
}

void Executor::run_one(const Instruction& instruction, HostIo& io) {
  switch (instruction.kind) {
    case Instruction::Kind::kKernel:
      return run_kernel(instruction);
    case Instruction::Kind::kExchange:
      return run_exchange(instruction, io, pool_);
    case Instruction::Kind::kProduct:
      return run_product(instruction, io);
    default:
      return;  // copies alone
  }
}

void Executor::finish(Instruction& instruction, HostIo& io) {
  if (instruction.stray != nullptr) {
    if (const std::optional<StrayLabel> found = instruction.stray->take()) {
      failed_ = instruction.op;  // of a merged op this part
      io.stray(*instruction.op, *found);
      failed_ = nullptr;
      instruction.stray->told = true;
    }
  }
  copy_blocks(instruction.copies, active(), pool_);
  ++instruction.executions;
  instruction.computed += static_cast<std::uint64_t>(active_blocks(instruction));
  if (instruction.finite) {
    failed_ = instruction.op;  // of a merged op this part
    check_finite(facts_, plan_, instruction, iterations_, active());
    failed_ = nullptr;
  }
  if (instruction.kind != Instruction::Kind::kMerged && check_.next()) {
    check_claims(facts_, plan_, instruction, iterations_, active());
  }
}

/// No part reads what another writes, so they need no order.
void Executor::run_merged(Instruction& merged, HostIo& io) {
  if (plan_.stochastic()) std::ranges::for_each(merged.body, [this](Instruction& part) { make_keys(part); });
  for (Instruction& part : merged.body) {
    if (part.finite) part.finite->read_operands(active());
  }
  const std::vector<std::size_t>& together = merged.together;
  const int threads = static_cast<int>(std::min(together.size(), static_cast<std::size_t>(pool_.threads())));
  pool_.run(threads, [&](int thread) {
    for (auto t = static_cast<std::size_t>(thread); t < together.size();
         t += static_cast<std::size_t>(threads))
      run_exchange(merged.body[together[t]], io, serial_);
  });
  auto done = together.begin();
  for (std::size_t p = 0; p < merged.body.size(); ++p) {
    if (done != together.end() && *done == p) {
      ++done;
    } else {
      run_one(merged.body[p], io);
    }
  }
  for (Instruction& part : merged.body) finish(part, io);
}

std::int64_t Executor::active_blocks(const Instruction& instruction) const {
  if (branch_ == nullptr) return instruction.blocks;
  if (instruction.kind == Instruction::Kind::kMerged) {
    std::int64_t blocks = 0;
    for (const Instruction& part : instruction.body) blocks += active_blocks(part);
    return blocks;
  }
  return std::ranges::count_if(instruction.replicas, active());
}

void Executor::run_kernel(const Instruction& instruction) {
  for (const BoundRun& run : instruction.runs) {
    if (branch_ == nullptr) {
      run_blocks(instruction, run, 0, run.blocks);
      continue;
    }
    const Replica* replicas = instruction.replicas.data() + run.first;
    for (std::int64_t begin = 0; begin < run.blocks; ++begin) {
      if (!active()(replicas[begin])) continue;
      std::int64_t end = begin + 1;
      while (end < run.blocks && active()(replicas[end])) ++end;
      run_blocks(instruction, run, begin, end);
      begin = end;  // that one is inactive, or there is none
    }
  }
}

void Executor::run_blocks(const Instruction& instruction, const BoundRun& run, std::int64_t begin,
                          std::int64_t end) {
  StrayLabels* const stray = stray_of(instruction);
  if (stray != nullptr) stray->start_run(run.first + begin);
  if (begin == 0) {
    instruction.kernel({run.in.data(), run.in_stride.data(), run.out.data(), run.out_stride.data(), end,
                        run.noise.data(), pool_, 0, stray});
    return;
  }
  for (std::size_t i = 0; i < run.in.size(); ++i) in_[i] = run.in[i] + begin * run.in_stride[i];
  for (std::size_t i = 0; i < run.out.size(); ++i) {
    out_[i] = run.out[i] + begin * run.out_stride[i];
    noise_[i] = run.noise[i] == nullptr ? nullptr : run.noise[i] + begin;
  }
  instruction.kernel({in_.data(), run.in_stride.data(), out_.data(), run.out_stride.data(), end - begin,
                      noise_.data(), pool_, 0, stray});
}

void Executor::run_exchange(const Instruction& instruction, HostIo& io, ThreadPool& pool) {
  const BoundRun& run = instruction.runs[0];
  instruction.exchange({run.in.data(), run.in_stride.data(), run.out.data(), run.out_stride.data(),
                        run.noise.data(), io, pool, 0, active(), stray_of(instruction)});
}

void Executor::run_product(const Instruction& instruction, HostIo& io) {
  const FoldSink& sink = *instruction.sink;
  for (std::size_t b = 0; b < instruction.products.size(); ++b) {
    const BoundProduct& bound = instruction.products[b];
    if (!active()(bound.replica)) continue;
    if (!instruction.steps.empty()) {
      run_steps(instruction, b);
      continue;
    }
    if (instruction.slices) {
      const kernels::NoiseKey* key = instruction.keys.empty() ? nullptr : &instruction.keys[0][b];
      instruction.slices->run(bound, key, io, pool_);
      continue;
    }
    const FoldFactors factors = sink.factors ? sink.factors(bound.in.data()) : FoldFactors{};
    instruction.folded({.lhs = bound.lhs.data(),
                        .rhs = bound.rhs.data(),
                        .folds = static_cast<std::int64_t>(bound.lhs.size()),
                        .out = bound.out,
                        .factors = sink.target ? &factors : nullptr,
                        .divisor = sink.divisor,
                        .pool = pool_});
  }
}

void Executor::run_steps(const Instruction& instruction, std::size_t block) {
  const BoundProduct& bound = instruction.products[block];
  const BoundSteps& stepped = instruction.stepped[block];
  const std::size_t steps = instruction.steps.size();
  for (std::size_t p = 0; p < stepped.in.size(); ++p) {
    const bool as_member_before = p >= steps && stepped.in[p] == stepped.in[p - steps];
    factors_[p] = as_member_before ? factors_[p - steps]
                                   : instruction.steps[p % steps].sink.factors(stepped.in[p].data());
  }
  instruction.folded({.lhs = bound.lhs.data(),
                      .rhs = bound.rhs.data(),
                      .folds = static_cast<std::int64_t>(stepped.start.size()),
                      .out = bound.out,
                      .factors = factors_.data(),
                      .divisor = instruction.sink->divisor,
                      .pool = pool_,
                      .steps = static_cast<std::int64_t>(steps),
                      .start = stepped.start.data()});
}

void Executor::run_loop(Instruction& instruction, HostIo& io) {
  for (std::int64_t i = 0; i < instruction.count; ++i) {
    iterations_[instruction.path] = static_cast<std::uint64_t>(i);
    make_paths(instruction.path, instruction.path_end);
    run(instruction.body, io);
    if (instruction.body.empty()) poll(false);
    report(instruction);
  }
}

void Executor::run_conditional(Instruction& instruction, HostIo& io) {
  const std::array<std::size_t, 2> taken = choose_branches(instruction, active());
  for (std::size_t b = 0; b < taken.size(); ++b) {
    if (taken[b] == 0) continue;
    const Branch branch{&instruction, instruction.branches[b].data(), branch_};
    const Branch* outer = std::exchange(branch_, taken[1 - b] == 0 ? branch_ : &branch);
    run(b == 0 ? instruction.body : instruction.else_body, io);
    branch_ = outer;
  }
}

}  // namespace popsr
