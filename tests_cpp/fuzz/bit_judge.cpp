#include "fuzz/bit_judge.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <optional>
#include <string_view>
#include <vector>

#include "fuzz/programs/host_data.h"
#include "fuzz/stored_claims.h"
#include "popsr/base/error.h"
#include "popsr/effects/verify.h"
#include "popsr/ir/op_def.h"
#include "popsr/ir/print.h"
#include "popsr/kernels/loader.h"
#include "popsr/runtime/session/session.h"

namespace popsr::test {
namespace {

constexpr std::size_t kMaxMoved = 32 << 20;  // bytes

/// While it lives, sessions are made with these kernels.
class UseKernels {
 public:
  explicit UseKernels(const kernels::KernelTable& table) : before_(kernels::kernel_table()) {
    kernels::use_kernel_table(table);
  }
  ~UseKernels() { kernels::use_kernel_table(before_); }
  UseKernels(const UseKernels&) = delete;
  UseKernels& operator=(const UseKernels&) = delete;

 private:
  const kernels::KernelTable& before_;
};

/// A way to run a program.
struct Way {
  std::string name;
  SessionOptions options;
  const kernels::KernelTable* kernels = nullptr;  ///< Kernel table of the run; null: the default one.
};

/// Results of one run.
struct Outcome {
  std::vector<Bytes> outputs;    ///< Outputs by stream: [elements, replicas, value].
  std::vector<Bytes> variables;  ///< A row a replica.
  std::string error;
};

bool has_products(const Ir& ir) {
  for (const OpId id : ids<OpId>(ir.num_ops())) {
    const std::string_view name = ir.op(id).def->name;
    if (name.starts_with("matmul") || name.starts_with("conv")) return true;
  }
  return false;
}

std::uint64_t mixed(std::uint64_t a, std::uint64_t b) {
  const std::uint64_t hash = (a ^ b * 0x9E3779B97F4A7C15ULL) * 0xBF58476D1CE4E5B9ULL;
  return hash ^ hash >> 29;
}

class BitJudge {
 public:
  BitJudge(const std::shared_ptr<const Ir>& ir, const BitOptions& options)
      : shared_(ir), ir_(*ir), options_(options), specials_(mixed(options.seed, 7) % 4 == 0) {
    for (const TensorId id : ir_.graph(kMainGraph).tensors) {
      if (ir_.tensor(id).kind == TensorKind::kVariable) variables_.push_back(id);
    }
  }

  BitVerdict run() {
    run_reference();
    if (verdict_.too_large) return std::move(verdict_);
    if (verdict_.failure.empty()) check_claims();
    for (const Way& way : ways()) {
      if (!verdict_.failure.empty()) break;
      compare(way);
    }
    return std::move(verdict_);
  }

 private:
  void fail(std::string text) {
    if (verdict_.failure.empty()) verdict_.failure = std::move(text);
  }

  std::vector<Way> ways() const {
    const std::uint64_t seed = options_.seed;
    std::vector<Way> ways = {{"one thread", {.seed = seed, .num_threads = 1}},
                             {"two threads", {.seed = seed, .num_threads = 2}},
                             {"three threads", {.seed = seed, .num_threads = 3}},
                             {"not optimised", {.seed = seed, .num_threads = 2, .optimise = false}},
                             {"checked", {.seed = seed, .check = 1, .num_threads = 1}},
                             {"checked in part", {.seed = seed, .check = 0.5, .num_threads = 3}}};
    const kernels::KernelTable& in_use = kernels::kernel_table();
    const std::vector<std::string> levels = kernels::available_levels();
    const bool v2_in_use = std::ranges::any_of(levels, [&in_use](const std::string& level) {
      return level == "v2" && &kernels::kernel_table(level) == &in_use;
    });
    const bool products = has_products(ir_);
    for (const std::string& level : levels) {
      const kernels::KernelTable& table = kernels::kernel_table(level);
      // Products of v2 have other bits: it has no fused multiply-add.
      const bool other_products = products && (level == "v2" || v2_in_use);
      if (&table == &in_use || other_products) continue;
      ways.push_back({level, {.seed = seed, .num_threads = 1}, &table});
    }
    if (options_.kernels != nullptr) {
      ways.push_back({"other kernels", {.seed = seed, .num_threads = 1}, options_.kernels});
    }
    return ways;
  }

  /// Streams to the device in run `run`: the same for all sessions.
  const std::vector<Bytes>& inputs(std::size_t run) {
    while (inputs_.size() <= run) {
      const std::size_t k = inputs_.size();
      std::vector<Bytes>& data = inputs_.emplace_back(ir_.num_streams());
      for (const StreamId id : ids<StreamId>(ir_.num_streams())) {
        const Stream& stream = ir_.stream(id);
        if (!stream.to_device || reads_[id.index()] == 0) continue;
        data[id.index()].resize(size_of_stream(id));
        fill(data[id.index()], stream.type, mixed(options_.seed, 1000 * k + id.value), specials_);
        make_rows_equal(id, k, data[id.index()]);
      }
    }
    return inputs_[run];
  }

  /// Makes rows of half of the streams equal in most runs: on all replicas, or on each two neighbours. So
  /// feeds keep a pattern, break it and take it up again.
  void make_rows_equal(StreamId id, std::size_t run, Bytes& data) const {
    const StreamMode mode = ir_.stream(id).mode;
    if (mode == StreamMode::kBroadcast || mode == StreamMode::kGroups) return;
    const std::uint64_t choice = mixed(options_.seed, 13 * id.value + 5) % 4;
    const bool breaks = mixed(options_.seed, 31 * run + id.value) % 3 == 0;
    if (mode == StreamMode::kReplicate && (choice < 2 || breaks)) return;
    const auto replicas = static_cast<std::size_t>(ir_.replication());
    const std::size_t size = bytes_of(ir_.stream(id).type);
    const std::size_t group = mode == StreamMode::kEqual || choice == 2 ? replicas : 2;
    for (std::size_t row = 0; size > 0 && row < data.size() / size; ++row) {
      const std::size_t first = row - row % replicas % group;
      std::memcpy(data.data() + row * size, data.data() + first * size, size);
    }
  }

  std::size_t size_of_stream(StreamId id) const {
    const Stream& stream = ir_.stream(id);
    const std::int64_t rows = num_rows(stream, ir_.replication());
    return static_cast<std::size_t>(reads_[id.index()] * rows) * bytes_of(stream.type);
  }

  /// All variables before the first run, about half of them before others.
  void write_variables(Session& session, std::size_t run) {
    for (const TensorId id : variables_) {
      const std::uint64_t seed = mixed(options_.seed, 77 * (run + 1) + id.value);
      if (run > 0 && seed % 2 == 0) continue;
      Bytes rows(session.host_bytes(id, HostRows::kGroups));
      fill(rows, ir_.tensor(id).type, seed, specials_);
      if (seed % 3 == 0) {  // equal in all groups
        const std::size_t size = bytes_of(ir_.tensor(id).type);
        for (std::size_t at = size; at < rows.size(); at += size) {
          std::memcpy(rows.data() + at, rows.data(), size);
        }
      }
      session.write_variable(id, HostRows::kGroups, rows.data());
    }
  }

  Outcome run_once(Session& session, std::size_t run) {
    write_variables(session, run);
    Outcome outcome;
    outcome.outputs.resize(ir_.num_streams());
    std::vector<StreamBuffer> buffers(ir_.num_streams());
    const std::vector<Bytes>& data = inputs(run);
    for (const StreamId id : ids<StreamId>(ir_.num_streams())) {
      if (reads_[id.index()] == 0) continue;
      if (ir_.stream(id).to_device) {
        // The runtime reads it only.
        buffers[id.index()] = {const_cast<std::byte*>(data[id.index()].data()), reads_[id.index()]};
      } else {
        outcome.outputs[id.index()].resize(size_of_stream(id));
        buffers[id.index()] = {outcome.outputs[id.index()].data(), reads_[id.index()]};
      }
    }
    try {
      session.run(buffers, {});
    } catch (const Error& error) {
      outcome.error = error.what();
      return outcome;
    }
    for (const TensorId id : variables_) {
      Bytes& rows = outcome.variables.emplace_back(session.host_bytes(id, HostRows::kReplicas));
      session.read_variable(id, HostRows::kReplicas, rows.data());
    }
    return outcome;
  }

  void run_reference() {
    Session session(
        shared_,
        {.seed = options_.seed, .dedup = false, .num_threads = 1, .seed_rules = options_.seed_rules});
    ++verdict_.sessions;
    reads_ = session.plan().stream_reads();
    std::size_t moved = 0;
    for (const StreamId id : ids<StreamId>(ir_.num_streams())) moved += size_of_stream(id);
    verdict_.too_large = moved > kMaxMoved;
    if (verdict_.too_large) return;
    for (int run = 0; run < options_.runs; ++run) {
      expected_.push_back(run_once(session, static_cast<std::size_t>(run)));
      if (!expected_.back().error.empty()) verdict_.stopped = true;
      if (verdict_.stopped) break;
      verdict_.values += static_cast<std::int64_t>(variables_.size());
    }
  }

  void compare(const Way& way) {
    std::optional<UseKernels> use;
    if (way.kernels != nullptr) use.emplace(*way.kernels);
    SessionOptions options = way.options;
    options.seed_rules = options_.seed_rules;
    Session session(shared_, options);
    ++verdict_.sessions;
    for (std::size_t run = 0; run < expected_.size() && verdict_.failure.empty(); ++run) {
      const Outcome outcome = run_once(session, run);
      const Outcome& expected = expected_[run];
      if (outcome.error != expected.error) {
        return fail(fmt::format("{}, run {}: error '{}', without sharing '{}'", way.name, run, outcome.error,
                                expected.error));
      }
      if (!outcome.error.empty()) return;
      compare(way, run, outcome, expected);
    }
  }

  void compare(const Way& way, std::size_t run, const Outcome& outcome, const Outcome& expected) {
    for (const StreamId id : ids<StreamId>(ir_.num_streams())) {
      compare(way, run, ir_.stream(id).name, ir_.stream(id).type, outcome.outputs[id.index()],
              expected.outputs[id.index()]);
    }
    for (std::size_t v = 0; v < variables_.size(); ++v) {
      const Tensor& variable = ir_.tensor(variables_[v]);
      compare(way, run, variable.name, variable.type, outcome.variables[v], expected.variables[v]);
    }
  }

  void compare(const Way& way, std::size_t run, std::string_view name, const TensorType& type,
               const Bytes& got, const Bytes& expected) {
    const std::int64_t at = first_difference(got, expected, type.dtype);
    if (at < 0) return;
    const std::int64_t elements = num_elements(type.shape);
    fail(fmt::format("{}, run {}: '{}' differs from that without sharing in element {} of row {}", way.name,
                     run, name, at % elements, at / elements));
  }

  // Claims

  void check_claims() {
    const PartitionAnalysis facts(ir_, options_.seed_rules);
    const StoredClaims stored(facts);
    for (std::size_t run = 0; run < expected_.size(); ++run) {
      const Outcome& outcome = expected_[run];
      if (!outcome.error.empty()) return;
      for (const StreamId id : ids<StreamId>(ir_.num_streams())) {
        if (ir_.stream(id).to_device || reads_[id.index()] == 0) continue;
        check_stream(run, id, stored.of(id), outcome.outputs[id.index()]);
      }
      for (std::size_t v = 0; v < variables_.size(); ++v) {
        const Tensor& variable = ir_.tensor(variables_[v]);
        if (variable.state.shard_over > 1) continue;  // the claim is of the part that each replica holds
        check_rows(run, variable.name, variable.type, facts.partition(variables_[v]), outcome.variables[v]);
      }
    }
  }

  void check_stream(std::size_t run, StreamId id, const std::optional<std::vector<PartitionId>>& claims,
                    const Bytes& output) {
    const Stream& stream = ir_.stream(id);
    verdict_.values += reads_[id.index()];
    if (!claims) return;
    if (static_cast<std::int64_t>(claims->size()) != reads_[id.index()]) {
      return fail(fmt::format("stream '{}': {} stores are known, {} happened", stream.name, claims->size(),
                              reads_[id.index()]));
    }
    const std::size_t size = static_cast<std::size_t>(ir_.replication()) * bytes_of(stream.type);
    for (std::size_t k = 0; k < claims->size(); ++k) {
      check_rows(run, stream.name, stream.type, (*claims)[k], std::span(output).subspan(k * size, size));
    }
  }

  /// True if the rows of replicas of one block are the same.
  void check_rows(std::size_t run, std::string_view name, const TensorType& type, PartitionId claim,
                  std::span<const std::byte> rows) {
    const std::span<const std::uint32_t> labels = ir_.partitions().labels(claim);
    const std::size_t size = bytes_of(type);
    for (Replica r = 0; r < labels.size(); ++r) {
      const Replica first = ir_.partitions().representatives(claim)[labels[r]];
      if (first == r) continue;
      ++verdict_.pairs;
      if (first_difference(rows.subspan(first * size, size), rows.subspan(r * size, size), type.dtype) < 0)
        continue;
      return fail(fmt::format("run {}: '{}' differs between replicas {} and {}, the claim is {}", run, name,
                              first, r, ir_.partitions().to_string(claim)));
    }
  }

  const std::shared_ptr<const Ir>& shared_;
  const Ir& ir_;
  const BitOptions& options_;
  bool specials_;
  std::vector<TensorId> variables_;
  std::vector<std::int64_t> reads_;  ///< Elements in a run, by stream.
  std::vector<std::vector<Bytes>> inputs_;
  std::vector<Outcome> expected_;
  BitVerdict verdict_;
};

}  // namespace

BitVerdict judge_bits(const std::shared_ptr<const Ir>& ir, const BitOptions& options) {
  BitVerdict verdict;
  try {
    verdict = BitJudge(ir, options).run();
  } catch (const std::exception& error) {
    verdict.failure = error.what();
  }
  if (!verdict.failure.empty()) verdict.program = print_ir(*ir);
  return verdict;
}

BitVerdict judge_bits(const Recipe& recipe, const std::shared_ptr<const Registry>& registry,
                      const BitOptions& options) {
  const auto p = std::make_shared<Program>(recipe.replicas, registry);
  bool refused = false;
  try {
    refused = !grow(recipe, *p);
  } catch (const std::exception& error) {
    return {.failure = error.what(), .program = print_ir(p->ir), .grown = false};
  }
  BitOptions with_rules = options;
  with_rules.seed_rules = p->seeds;
  BitVerdict verdict = judge_bits(std::shared_ptr<const Ir>(p, &p->ir), with_rules);
  verdict.refused = refused;
  return verdict;
}

}  // namespace popsr::test
