#include "fuzz/facts_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <exception>

#include "popsr/analysis/memory/memory_facts.h"
#include "popsr/ir/op_def.h"
#include "popsr/ir/print.h"

namespace popsr::test {

// Claims

Claims::Claims(const PartitionAnalysis& facts, const Herbrand& program)
    : facts_(facts),
      program_(program),
      remote_(facts.ir()),
      streams_(facts.ir()),
      state_(facts.entry_tensors(kMainGraph)) {}

std::optional<ContextId> Claims::context(PathId id) {
  if (contexts_.size() <= id) contexts_.resize(program_.num_paths());
  if (contexts_[id]) return *contexts_[id];
  std::optional<ContextId> found;
  if (id == 0) {
    found = facts_.contexts(kMainGraph).at(0);
  } else if (const auto outer = context(program_.path(id).outer)) {
    const Path& path = program_.path(id);
    const FactView op = facts_.context(*outer).ops[path.position];
    const ContextId callee = path.branch == 0 ? op.callee : op.otherwise;
    if (callee != kNone) found = callee;
  }
  contexts_[id] = found;
  return found;
}

std::optional<PartitionId> Claims::exec(PathId path) {
  const auto id = context(path);
  return id ? std::optional(facts_.context(*id).exec) : std::nullopt;
}

bool Claims::flags(PathId path, const Op& op) {
  const auto id = context(path);
  const auto groups = collective_groups(facts_.ir(), op);
  if (!id || !groups) return !id;
  return facts_.diverging_op(facts_.context(*id), groups->partition(facts_.ir().partitions())) != kNone;
}

std::optional<PartitionId> Claims::seeds(PathId path, const Op& op) {
  const auto id = context(path);
  if (!id) return std::nullopt;
  const Context& context = facts_.context(*id);
  if (op.schedule.part_of == kNone) return context.ops[op.schedule.position].seeds;
  const std::vector<OpId>& parts = facts_.ir().op(op.schedule.part_of).schedule.parts;
  return context.parts
      .at(op.schedule.position)[static_cast<std::size_t>(std::ranges::find(parts, op.id) - parts.begin())]
      .seeds;
}

std::optional<PartitionId> Claims::input(const Context& context, std::uint32_t index) {
  if (context.graph != kMainGraph) return context.inputs[index];
  const auto it = std::ranges::find(state_, TensorId(index));
  const PartitionId claimed = facts_.variable(TensorId(index));
  if (it == state_.end()) return claimed;
  return facts_.ir().partitions().join(claimed,
                                       context.inputs[static_cast<std::size_t>(it - state_.begin())]);
}

std::optional<PartitionId> Claims::last(const Context& context, TensorId tensor) {
  if (facts_.ir().tensor(tensor).kind != TensorKind::kRemote) {
    return context.end.memory->read(facts_.ir().tensor(tensor).memory.storage);
  }
  const std::vector<TensorId>& entries = remote_.of(context.graph);
  const auto it = std::ranges::lower_bound(entries, tensor);
  if (it == entries.end() || *it != tensor) return std::nullopt;
  return context.end.remote[static_cast<std::size_t>(it - entries.begin())];
}

std::optional<PartitionId> Claims::position(const Context& context, StreamId stream) {
  const std::vector<StreamId>& streams = streams_.of(context.graph);
  const auto it = std::ranges::lower_bound(streams, stream);
  if (it == streams.end() || *it != stream) return std::nullopt;
  const std::size_t first = remote_.of(context.graph).size();
  return context.end.remote[first + static_cast<std::size_t>(it - streams.begin())];
}

std::optional<PartitionId> Claims::fact(const Place& place) {
  const auto id = context(place.path);
  if (!id) return std::nullopt;
  const Context& context = facts_.context(*id);
  switch (place.role) {
    case Role::kInput:
      return input(context, place.index);
    case Role::kOutput:
      return context.ops[place.op].outputs.size() > place.index
                 ? std::optional(context.ops[place.op].outputs[place.index])
                 : std::nullopt;
    case Role::kLast:
      return last(context, TensorId(place.index));
    case Role::kPosition:
      return position(context, StreamId(place.index));
    case Role::kWritten:
      break;
  }
  for (const auto& [storage, fact] : context.ops[place.op].written) {
    if (storage.value == place.index) return fact;
  }
  return std::nullopt;
}

// Soundness

SoundnessCheck::SoundnessCheck(const PartitionAnalysis& facts, const Herbrand& program)
    : claims_(facts, program), table_(facts.ir().partitions()), program_(program) {}

void SoundnessCheck::value(const Place& place, std::span<const Term> terms, Mask active) {
  if (!failure_.empty()) return;
  const std::optional<PartitionId> fact = claims_.fact(place);
  if (!fact || *fact == table_.bottom()) return;
  const std::span<const std::uint32_t> labels = table_.labels(*fact);
  std::array<std::size_t, 64> first;
  Mask seen = 0;
  for (Mask left = active; left != 0; left &= left - 1) {
    const auto r = static_cast<std::size_t>(std::countr_zero(left));
    const Mask label = Mask{1} << labels[r];
    if ((seen & label) == 0) first[labels[r]] = r;
    seen |= label;
    const std::size_t other = first[labels[r]];
    if (terms[r] == terms[other]) continue;
    failure_ = fmt::format("{}: replicas {} and {} differ, the fact is {}", program_.to_string(place), other,
                           r, table_.to_string(*fact));
    return;
  }
}

void SoundnessCheck::starts(PathId path, Mask active) {
  const auto exec = claims_.exec(path);
  if (!exec || !failure_.empty()) return;
  const std::span<const std::uint32_t> labels = table_.labels(*exec);
  for (std::size_t r = 0; r < labels.size(); ++r) {
    const Replica first = table_.representatives(*exec)[labels[r]];
    if ((active >> r & 1) == (active >> first & 1)) continue;
    failure_ = fmt::format("{}: replicas {} and {} part, the execution partition is {}",
                           program_.to_string({.path = path, .role = Role::kInput}), first, r,
                           table_.to_string(*exec));
    return;
  }
}

void SoundnessCheck::diverges(PathId path, const Op& op) {
  if (!failure_.empty() || claims_.flags(path, op)) return;
  failure_ = fmt::format("{}: replicas of one group part before {} {}, which is not said",
                         program_.to_string({.path = path, .role = Role::kInput}), op.def->name, op.id);
}

std::span<const std::uint32_t> SoundnessCheck::seeds(PathId path, const Op& op) {
  const auto seeds = claims_.seeds(path, op);
  const SeedRule given = claims_.seed_rule(op);
  const PartitionId rule = given == SeedRule::kIdentical ? table_.top() : table_.bottom();
  if (failure_.empty() && seeds && given != SeedRule::kPartition && *seeds != rule) {
    failure_ = fmt::format("{} {}: the seed partition is {}, the rule is {}", op.def->name, op.id,
                           table_.to_string(*seeds), table_.to_string(rule));
  }
  return seeds ? table_.labels(*seeds) : std::span<const std::uint32_t>();
}

void ExactCheck::value(const Place& place, std::span<const Term> terms, Mask active) {
  SoundnessCheck::value(place, terms, active);
  // State before and after is a matter of several runs.
  if (!failure_.empty() || place.role != Role::kOutput) return;
  const std::optional<PartitionId> fact = claims_.fact(place);
  if (!fact) {
    failure_ = program_.to_string(place) + ": nothing is claimed";
    return;
  }
  if (*fact != table_.top() && *fact != table_.bottom()) ++between_;
  std::array<std::pair<Term, Replica>, 64> blocks;
  std::size_t size = 0;
  for (const Replica r : table_.representatives(*fact)) blocks[size++] = {terms[r], r};
  std::sort(blocks.begin(), blocks.begin() + static_cast<std::ptrdiff_t>(size));
  for (std::size_t i = 1; i < size; ++i) {
    if (blocks[i - 1].first != blocks[i].first) continue;
    failure_ = fmt::format("{}: replicas {} and {} are equal, the fact is {}", program_.to_string(place),
                           blocks[i - 1].second, blocks[i].second, table_.to_string(*fact));
    return;
  }
}

std::span<const std::uint32_t> ExactCheck::seeds(PathId path, const Op& op) {
  const auto seeds = claims_.seeds(path, op);
  // The outputs of one op have one fact in these programs.
  const auto fact = claims_.fact({.path = path, .op = op.schedule.position});
  const bool partition = claims_.seed_rule(op) == SeedRule::kPartition && op.schedule.part_of == kNone;
  if (failure_.empty() && partition && seeds != fact) {
    failure_ = fmt::format("{} {}: the seed partition is {}, the fact is {}", op.def->name, op.id,
                           table_.to_string(seeds.value()), table_.to_string(fact.value()));
  }
  return SoundnessCheck::seeds(path, op);
}

// Precision

void PairCollector::value(const Place& place, std::span<const Term> terms, Mask active) {
  if (place.role != Role::kOutput) return;
  ValuePairs& value = values_[place];
  if (value.together.empty()) {
    value = {place, std::vector<Mask>(terms.size(), 0), std::vector<Mask>(terms.size(), 0), {}};
  }
  for (Mask left = active; left != 0;) {
    const Term term = terms[static_cast<std::size_t>(std::countr_zero(left))];
    Mask block = 0;
    for (Mask rest = left; rest != 0; rest &= rest - 1) {
      const int r = std::countr_zero(rest);
      if (terms[static_cast<std::size_t>(r)] == term) block |= Mask{1} << r;
    }
    for (Mask rest = block; rest != 0; rest &= rest - 1) {
      const auto r = static_cast<std::size_t>(std::countr_zero(rest));
      value.together[r] |= active;
      value.differ[r] |= active & ~block;
    }
    left &= ~block;
  }
}

std::vector<ValuePairs> PairCollector::take() {
  std::vector<ValuePairs> all;
  for (auto& [place, value] : values_) all.push_back(std::move(value));
  values_.clear();
  return all;
}

Comparison compare(const ValuePairs& value, std::span<const std::uint32_t> labels) {
  Comparison result;
  for (std::size_t r = 0; r < labels.size(); ++r) {
    for (std::size_t s = r + 1; s < labels.size(); ++s) {
      if ((value.together[r] >> s & 1) == 0) continue;
      const bool differ = (value.differ[r] >> s & 1) != 0, proved = labels[r] == labels[s];
      const bool mates = value.mates.empty() || (value.mates[r] >> s & 1) != 0;
      result.equal_pairs += mates && !differ ? 1 : 0;
      result.proved_pairs += mates && !differ && proved ? 1 : 0;
      result.unsound_pairs += proved && differ ? 1 : 0;
    }
  }
  return result;
}

std::optional<PartitionId> exact_partition(PartitionTable& table, const ValuePairs& value) {
  const std::size_t replicas = value.differ.size();
  std::vector<std::uint64_t> keys(replicas);
  const Mask all = replicas == 64 ? ~Mask{0} : (Mask{1} << replicas) - 1;
  for (std::size_t r = 0; r < replicas; ++r) {
    keys[r] = all & ~value.differ[r];
    if (!value.mates.empty()) keys[r] &= value.mates[r];
  }
  for (std::size_t r = 0; r < replicas; ++r) {
    for (Mask left = keys[r]; left != 0; left &= left - 1) {
      if (keys[static_cast<std::size_t>(std::countr_zero(left))] != keys[r]) return std::nullopt;
    }
  }
  return table.from_keys(keys);
}

namespace {

std::vector<Mask> block_masks(std::span<const std::uint32_t> labels) {
  std::vector<Mask> blocks(labels.size(), 0), masks;
  for (std::size_t r = 0; r < labels.size(); ++r) blocks[labels[r]] |= Mask{1} << r;
  for (const std::uint32_t label : labels) masks.push_back(blocks[label]);
  return masks;
}

}  // namespace

bool may_part(const PartitionAnalysis& facts) {
  const Ir& ir = facts.ir();
  for (const OpId id : ids<OpId>(ir.num_ops())) {
    const auto groups = collective_groups(ir, ir.op(id));
    if (!groups) continue;
    for (const ContextId c : facts.contexts(ir.op(id).graph)) {
      if (facts.diverging_op(facts.context(c), groups->partition(ir.partitions())) != kNone) return true;
    }
  }
  return false;
}

std::vector<JudgedValue> judge_values(const PartitionAnalysis& facts, int sessions, int runs) {
  const Ir& ir = facts.ir();
  Herbrand herbrand(ir, facts.seed_rules());
  PairCollector collector;
  for (int s = 0; s < sessions; ++s) herbrand.session(static_cast<std::uint64_t>(s), runs, collector);
  Claims claims(facts, herbrand);
  std::vector<JudgedValue> judged;
  for (ValuePairs& pairs : collector.take()) {
    const Place place = pairs.place;
    const OpId op = ir.graph(herbrand.path(place.path).graph).ops[place.op];
    if (const auto exec = claims.exec(place.path)) pairs.mates = block_masks(ir.partitions().labels(*exec));
    const auto exact = exact_partition(ir.partitions(), pairs);
    judged.push_back({std::move(pairs), op, exact, claims.fact(place)});
  }
  return judged;
}

// Programs

namespace {

/// Equal rows, for about half of the streams to the device: on all replicas or in groups of two neighbours.
std::map<StreamId, PartitionId> random_rows(const Ir& ir) {
  PartitionTable& table = ir.partitions();
  std::map<StreamId, PartitionId> rows;
  for (const StreamId id : ids<StreamId>(ir.num_streams())) {
    if (!ir.stream(id).to_device || ir.stream(id).mode != StreamMode::kReplicate) continue;
    const std::size_t choice = (static_cast<std::size_t>(ir.replication()) + id.index() * 5) % 4;
    if (choice == 0) rows[id] = table.top();
    if (choice == 1 && ir.replication() % 2 == 0) {
      rows[id] = ReplicaGrouping::from_stride(ir.replication(), 1, 2).partition(table);
    }
  }
  return rows;
}

void judge_facts(const Program& p, Flavour flavour, int sessions, int runs, SolverFault fault,
                 Verdict& verdict) {
  const Assumptions assumed{.rows = random_rows(p.ir), .fault = fault};
  const PartitionAnalysis facts(p.ir, p.seeds, assumed);
  Herbrand herbrand(p.ir, p.seeds, assumed.rows);
  if (flavour == Flavour::kStraightLine) {
    ExactCheck check(facts, herbrand);
    herbrand.session(0, 1, check);
    verdict.failure = check.failure();
    verdict.between = check.between();
    return;
  }
  SoundnessCheck check(facts, herbrand);
  for (int s = 0; s < sessions && check.failure().empty(); ++s) {
    if (!herbrand.session(static_cast<std::uint64_t>(s), runs, check)) ++verdict.divergences;
  }
  verdict.failure = check.failure();
}

}  // namespace

Verdict judge(const Program& p, Flavour flavour, int sessions, int runs, SolverFault fault) {
  Verdict verdict;
  verdict.ops = p.ir.num_ops();
  try {
    judge_facts(p, flavour, sessions, runs, fault, verdict);
    verdict.judged = true;
  } catch (const std::exception& error) {
    verdict.failure = error.what();
  }
  if (!verdict.failure.empty()) verdict.program = print_ir(p.ir);
  return verdict;
}

Verdict judge(const Recipe& recipe, std::shared_ptr<const Registry> registry, SolverFault fault) {
  Program p(recipe.replicas, std::move(registry));
  try {
    grow(recipe, p);
  } catch (const std::exception& error) {
    return {.failure = error.what(), .program = print_ir(p.ir)};
  }
  return judge(p, recipe.flavour, 3, 2, fault);
}

}  // namespace popsr::test
