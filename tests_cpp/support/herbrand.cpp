#include "support/herbrand.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "popsr/base/error.h"
#include "popsr/effects/remote_access.h"
#include "popsr/ir/op_def.h"

namespace popsr::test {
namespace {

constexpr Term mix(Term hash, std::uint64_t next) {
  hash = hash * 0x9E3779B97F4A7C15ULL + next + 0xD6E8FEB86659FD93ULL;
  hash = (hash ^ (hash >> 29)) * 0xBF58476D1CE4E5B9ULL;
  return hash ^ (hash >> 32);
}
template <class... Rest>
constexpr Term mix(Term hash, std::uint64_t next, Rest... rest) {
  return mix(mix(hash, next), rest...);
}

constexpr Term kSource = 1, kZero = 2, kElement = 3, kApplied = 4, kTensor = 5, kPart = 6;
/// Loops that ask a condition end there at the latest: whether it holds is drawn, so some never end.
constexpr std::int64_t kMostIterations = 5;
/// Tensors of more elements are not viewed.
constexpr std::int64_t kMaxElements = 8;

/// Calls visit for each replica of the set, ascending.
template <class Visit>
void each(Mask set, const Visit& visit) {
  for (; set != 0; set &= set - 1) visit(static_cast<std::size_t>(std::countr_zero(set)));
}

constexpr Mask bit(std::size_t replica) { return Mask{1} << replica; }

std::uint64_t unsign(std::int64_t value) { return static_cast<std::uint64_t>(value); }

bool is_view(const Op& op) { return op.def->name == "slice_" || op.def->name == "reshape_"; }

bool is_zero_factor(const Op& op) {
  const auto f = op.find(Attr<double>{"f"});
  return f && *f == 0.0;
}

/// Inputs whose contents the op's result is made of.
bool reads(const Op& op, std::size_t input) {
  const std::string_view name = op.def->name;
  if (name == "accumulator_zero_") return false;
  if (name == "copy_var_update_") return input != 0;
  if (name == "accumulate_" && is_zero_factor(op)) return input == 0;
  if (name == "accumulator_scale_" && is_zero_factor(op)) return false;
  return true;
}

}  // namespace

// Reading the program

Herbrand::Herbrand(const Ir& ir, SeedRules seeds, const std::map<StreamId, PartitionId>& rows)
    : ir_(ir),
      seeds_(std::move(seeds)),
      replicas_(static_cast<std::size_t>(ir.replication())),
      all_(replicas_ == 64 ? ~Mask{0} : bit(replicas_) - 1) {
  POPSR_CHECK(replicas_ <= 64);
  for (const StreamId id : ids<StreamId>(ir.num_streams())) {
    const Stream& stream = ir.stream(id);
    PartitionId fed = ir.partitions().bottom();
    if (stream.mode == StreamMode::kBroadcast || stream.mode == StreamMode::kEqual)
      fed = ir.partitions().top();
    if (const auto found = rows.find(id); found != rows.end()) fed = found->second;
    const std::span<const std::uint32_t> labels = ir.partitions().labels(fed);
    rows_.emplace_back(labels.begin(), labels.end());
    for (Replica r = 0; stream.groups && r < replicas_; ++r) {
      rows_.back()[r] = static_cast<std::uint32_t>(stream.groups->assignment()[r]);
    }
  }
  for (const TensorId t : ids<TensorId>(ir.num_tensors())) place_.push_back(t);
  for (const OpId id : ids<OpId>(ir.num_ops())) {
    const Op& op = ir.op(id);
    in_elements_ |= is_view(op);
    if (is_view(op)) continue;
    // The name decides, not TensorMemory::storage: that an op works in place is part of the check.
    if (op.schedule.parts.empty() && op.def->name.back() == '_') place_[op.outputs[0]] = place_[op.inputs[0]];
  }
  for (const TensorId t : ir.graph(kMainGraph).tensors) {
    const Tensor& tensor = ir.tensor(t);
    const bool is_state = tensor.kind == TensorKind::kVariable || tensor.kind == TensorKind::kShard ||
                          tensor.kind == TensorKind::kRemote;
    if (is_state && tensor.state.home == kNone) state_.push_back(t);
  }
  cells_.resize(ir.num_tensors());
  for (const GraphId id : ids<GraphId>(ir.num_graphs())) place_graph(ir.graph(id));
  for (const GraphId id : ids<GraphId>(ir.num_graphs())) compile(ir.graph(id));
}

/// Gives the tensors of a graph their cells.
void Herbrand::place_graph(const Graph& graph) {
  std::uint32_t next = 0;
  for (const TensorId t : graph.tensors) {
    const Tensor& tensor = ir_.tensor(t);
    if (place_[t] != t) continue;
    if (tensor.uses.producer != kNone && is_view(ir_.op(tensor.uses.producer))) {
      place_view(ir_.op(tensor.uses.producer));
      continue;
    }
    const std::int64_t elements = num_elements(tensor.type.shape);
    const bool apart = in_elements_ && elements > 1 && elements <= kMaxElements;
    for (std::int64_t e = 0; e < (apart ? elements : 1); ++e) cells_[t].push_back(next++);
  }
  code_.emplace_back().cells = next;
}

/// Places a view: a slice along the first axis, or all elements.
void Herbrand::place_view(const Op& op) {
  const TensorId base = place_[op.inputs[0]];
  Cells& shown = cells_[op.outputs[0]];
  if (op.def->name == "reshape_") {
    shown = cells_[base];
    return;
  }
  const Shape& shape = ir_.tensor(op.inputs[0]).type.shape;
  POPSR_CHECK(num_elements(shape) == std::ssize(cells_[base]));
  const std::int64_t row = num_elements(shape) / shape[0];
  const std::int64_t start = op.get(Attr<std::vector<std::int64_t>>{"start"})[0];
  const std::int64_t stop = op.get(Attr<std::vector<std::int64_t>>{"stop"})[0];
  const std::int64_t step = op.get(Attr<std::vector<std::int64_t>>{"step"})[0];
  for (std::int64_t i = start; i < stop; i += step) {
    for (std::int64_t e = i * row; e < (i + 1) * row; ++e) {
      shown.push_back(cells_[base][static_cast<std::size_t>(e)]);
    }
  }
}

void Herbrand::compile(const Graph& graph) {
  Code& code = code_[graph.id];
  for (const TensorId t : graph.inputs) code.inputs.push_back(cells(t));
  for (const TensorId t : graph.outputs) code.outputs.push_back(cells(t));
  for (const TensorId t : graph.tensors) {
    if (ir_.tensor(t).kind == TensorKind::kConstant) code.constants.push_back(cells(t));
    if (place_[t] != t) code.rewritten.push_back(place_[t]);
  }
  for (std::uint32_t position = 0; position < graph.ops.size(); ++position) {
    const Op& op = ir_.op(graph.ops[position]);
    if (is_view(op)) code.rewritten.insert(code.rewritten.end(), {place_[op.inputs[0]], op.outputs[0]});
    if (op.schedule.parts.empty()) add_step(code, op, position, 0);
    std::uint32_t output = 0;
    for (const OpId part : op.schedule.parts) {
      add_step(code, ir_.op(part), position, output);
      const Step& step = code.steps.back();
      output +=
          static_cast<std::uint32_t>(step.kind == Kind::kRemoteStore ? step.entries.size() : step.out.size());
    }
    for (const std::uint32_t i : op.call.modified) code.rewritten.push_back(place_[op.inputs[i]]);
  }
  code.rewritten.insert(code.rewritten.end(), graph.inputs.begin(), graph.inputs.end());
  std::ranges::sort(code.rewritten);
  code.rewritten.erase(std::ranges::unique(code.rewritten).begin(), code.rewritten.end());
}

void Herbrand::add_step(Code& code, const Op& op, std::uint32_t position, std::uint32_t first_output) {
  Step step{
      .op = &op, .position = position, .first_output = first_output, .in = {}, .out = {}, .entries = {}};
  for (std::size_t i = 0; i < op.inputs.size(); ++i) {
    if (op.inputs[i] != kNone && reads(op, i)) step.in.push_back(cells(op.inputs[i]));
  }
  for (const TensorId t : op.outputs) step.out.push_back(cells(t));
  set_kind(step);
  step.function = number_of(op);
  code.steps.push_back(std::move(step));
}

void Herbrand::add_bodies(Step& step) {
  const bool conditional = step.kind == Kind::kConditional;
  std::uint32_t next = conditional ? 1 : 0;
  for (const char* name : {conditional ? "then_branch" : "graph", "else_branch"}) {
    if (step.bodies.size() == (conditional ? 2 : 1)) break;
    Body body{.graph = step.op->get(Attr<GraphId>{name}), .first = next, .modified = {}};
    next += static_cast<std::uint32_t>(ir_.graph(body.graph).inputs.size());
    for (const std::uint32_t i : step.op->call.modified) {
      if (i >= body.first && i < next) body.modified.push_back(i - body.first);
    }
    step.bodies.push_back(std::move(body));
  }
}

std::uint64_t Herbrand::number_of(const Op& op) {
  std::string text(op.def->name);
  for (const Attribute& attribute : op.attrs) text += fmt::format(", {}", popsr::to_string(attribute));
  for (const std::vector<TensorId>* tensors : {&op.inputs, &op.outputs}) {
    text += ';';
    for (const TensorId t : *tensors) {
      const std::string type = t == kNone ? std::string("-") : popsr::to_string(ir_.tensor(t).type);
      text += fmt::format(" {}", type);
    }
  }
  return functions_.try_emplace(std::move(text), functions_.size()).first->second;
}

void Herbrand::set_kind(Step& step) {
  const Op& op = *step.op;
  const std::string_view name = op.def->name;
  if (name == "call" || name == "repeat" || name == "while_loop" || name == "conditional") {
    step.kind = name == "call" ? Kind::kCall : name == "conditional" ? Kind::kConditional : Kind::kRepeat;
    if (name == "repeat") step.count = op.get(Attr<std::int64_t>{"count"});
    if (name == "while_loop") step.count = kMostIterations, step.asks = true;
    return add_bodies(step);
  }
  if (name.starts_with("remote_")) {
    step.kind = name == "remote_store" ? Kind::kRemoteStore : Kind::kRemoteLoad;
    const auto entry = op.find(Attr<std::int64_t>{"entry"});
    step.dynamic = !entry;
    for (const TensorId t : ir_.remote(op.get(Attr<RemoteId>{"remote_buffer"})).entries) {
      if (!entry || step.entries.size() <= unsign(*entry)) step.entries.push_back(cells(t));
    }
    if (entry) step.entries.erase(step.entries.begin(), step.entries.end() - 1);
    return;
  }
  if (name == "host_load") {
    step.kind = Kind::kLoad;
    step.stream = op.get(Attr<StreamId>{"h2d_stream"});
    return;
  }
  if (is_view(op)) step.kind = Kind::kView;
  if (name == "host_store") step.kind = Kind::kNothing;
  if (name == "init" && op.get(Attr<std::string>{"init_type"}) == "undef")
    step.kind = Kind::kIndex, step.number = {};
  if (name.starts_with("replica")) set_groups(step);
}

/// Collectives, and ops that ask for the replica's place in a group.
void Herbrand::set_groups(Step& step) {
  const Op& op = *step.op;
  const std::string_view name = op.def->name;
  step.groups.assign(replicas_, 0);
  if (name == "replicated_permute") {
    step.kind = Kind::kPermute;
    step.exchanges = true;
    step.groups.assign(replicas_, all_);
    step.number.assign(replicas_, 0);
    const auto& mapping = op.get(Attr<std::vector<std::int64_t>>{"mapping"});
    for (std::size_t s = 0; s < replicas_; ++s) {
      if (mapping[s] >= 0) step.number[unsign(mapping[s])] = s + 1;
    }
    return;
  }
  const auto grouping = op.find(Attr<ReplicaGrouping>{"group"});
  for (std::size_t r = 0; r < replicas_; ++r) {
    for (std::size_t s = 0; s < replicas_; ++s) {
      if (!grouping || grouping->assignment()[r] == grouping->assignment()[s]) step.groups[r] |= bit(s);
    }
  }
  if (name == "replica_index") {
    step.kind = Kind::kIndex;
    step.own_index = op.get(Attr<std::string>{"what"}) != "group";
    for (std::size_t r = 0; r < replicas_; ++r) step.number.push_back(std::countr_zero(step.groups[r]));
    return;
  }
  const bool keeps = name == "replicated_all_reduce_identical_inputs" || name == "replicated_identical_grad";
  const bool alone = keeps || name == "replicated_slice" || name == "replica_sharded_slice" ||
                     name == "replicated_gather_grad";
  step.exchanges = !alone;
  step.kind = alone ? Kind::kSelf : Kind::kMembers;
  step.own_index =
      name == "replicated_reduce_scatter" || name == "replicated_all_to_all" || (alone && !keeps);
  if (name == "replicated_scan") {
    const bool reverse = op.get(Attr<bool>{"reverse"});
    for (std::size_t r = 0; r < replicas_; ++r) {
      const Mask up_to_r = bit(r) | (bit(r) - 1);
      step.number.push_back(step.groups[r] & (reverse ? ~(bit(r) - 1) : up_to_r));
    }
    return;
  }
  if (!name.starts_with("replicated_broadcast")) return;
  step.kind = name == "replicated_broadcast" ? Kind::kRoot : Kind::kRootAlone;
  step.root = unsign(op.get(Attr<std::int64_t>{"root"}));
}

// Running it

Term Herbrand::term(std::size_t base, const Cells& cells, std::size_t replica) {
  if (cells.size() == 1) return at(base, cells[0])[replica];
  Term all = kTensor;
  for (const std::uint32_t cell : cells) all = mix(all, at(base, cell)[replica]);
  return all;
}

/// Valid until the next call.
std::span<const Term> Herbrand::terms(std::size_t base, const Cells& cells) {
  if (cells.size() == 1) return {at(base, cells[0]), replicas_};
  shown_.resize(replicas_);
  for (std::size_t r = 0; r < replicas_; ++r) shown_[r] = term(base, cells, r);
  return shown_;
}

void Herbrand::write(std::size_t base, const Cells& cells, std::size_t replica, Term term) {
  if (cells.size() == 1) {
    at(base, cells[0])[replica] = term;
    return;
  }
  for (std::size_t k = 0; k < cells.size(); ++k) at(base, cells[k])[replica] = mix(kPart, term, k);
}

void Herbrand::copy(std::size_t from_base, const Cells& from, std::size_t to_base, const Cells& to,
                    Mask active) {
  for (std::size_t k = 0; k < from.size(); ++k) {
    const Term* source = at(from_base, from[k]);
    Term* target = at(to_base, to[k]);
    each(active, [=](std::size_t r) { target[r] = source[r]; });
  }
}

void Herbrand::mark(std::size_t base, const Cells& cells, Mask active) {
  for (const std::uint32_t cell : cells) dirty_[base + cell] |= active;
}

/// The value that the host gives a variable, a shard or a remote entry; the rows of its groups.
void Herbrand::write_from_host(TensorId t, std::uint64_t version) {
  const Tensor& home = ir_.tensor(t);
  const Tensor& variable = home.kind == TensorKind::kVariable ? home : ir_.tensor(home.state.resident);
  const std::vector<std::int64_t>& groups = variable.state.grouping->assignment();
  for (std::size_t r = 0; r < replicas_; ++r) {
    const auto before =
        std::count(groups.begin(), groups.begin() + static_cast<std::ptrdiff_t>(r), groups[r]);
    const std::uint64_t shard = unsign(before % variable.state.shard_over);
    write(0, cells_[t], r, mix(kSource, variable.id.value, unsign(groups[r]), shard, version));
  }
}

/// State before the first run, and what the host writes before others.
void Herbrand::start() {
  for (const TensorId t : state_) {
    const Tensor& home = ir_.tensor(t);
    const bool is_variable = home.kind == TensorKind::kVariable || home.state.resident != kNone;
    if (t == otherwise_) {
      for (std::size_t r = 0; run_ == 0 && r < replicas_; ++r)
        write(0, cells_[t], r, mix(kSource, t.value, r));
    } else if (run_ == 0 && !is_variable) {
      for (const std::uint32_t cell : cells_[t]) std::fill_n(at(0, cell), replicas_, kZero);
    } else if (is_variable && (run_ == 0 || (otherwise_ == kNone && mix(seed_, t.value, run_) % 4 == 0))) {
      write_from_host(t, run_);
    }
  }
}

void Herbrand::show_state(Role role) {
  for (const TensorId t : state_) {
    observer_->value({.role = role, .index = t.value}, terms(0, cells_[t]), all_);
  }
}

bool Herbrand::session(std::uint64_t seed, int runs, Observer& observer) {
  observer_ = &observer;
  seed_ = mix(kSource, seed);
  top_ = 0;
  push(code_[kMainGraph]);
  for (run_ = 0; run_ < unsign(runs); ++run_) {
    start();
    positions_.assign(ir_.num_streams() * replicas_, 0);
    observer_->starts(0, all_);
    show_state(Role::kInput);
    if (!run(kMainGraph, 0, 0, all_)) return false;
    show_state(Role::kLast);
  }
  return true;
}

/// Makes a frame; returns its base.
std::size_t Herbrand::push(const Code& code) {
  const std::size_t base = top_;
  top_ += code.cells;
  if (dirty_.size() < top_) {
    dirty_.resize(2 * top_);
    memory_.resize(2 * top_ * replicas_);
  }
  std::fill_n(dirty_.begin() + static_cast<std::ptrdiff_t>(base), code.cells, Mask{0});
  for (const Cells* constant : code.constants) {
    for (const std::uint32_t cell : *constant) std::fill_n(at(base, cell), replicas_, kZero);
  }
  return base;
}

void Herbrand::pop(const Code& code, std::size_t base) {
  POPSR_CHECK(top_ == base + code.cells);
  top_ = base;
}

bool Herbrand::run(GraphId graph, std::size_t base, PathId path, Mask active) {
  const Code& code = code_[graph];
  for (const Step& step : code.steps) {
    if (step.exchanges && diverged(step, path, active)) return false;
    switch (step.kind) {
      case Kind::kCall:
        if (!run_call(step, step.bodies[0], base, path, active)) return false;
        show_results(step, base, path, active);
        break;
      case Kind::kRepeat:
        if (!run_repeat(step, base, path, active)) return false;
        show_results(step, base, path, active);
        break;
      case Kind::kConditional:
        if (!run_conditional(step, base, path, active)) return false;
        show_results(step, base, path, active);
        break;
      case Kind::kRemoteStore:
        run_store(step, base, path, active);
        break;
      case Kind::kView:
        observer_->value({path, Role::kOutput, step.position, step.first_output}, terms(base, *step.out[0]),
                         active);
        break;
      default:
        run_local(step, base, path, active);
    }
  }
  for (const TensorId t : code.rewritten) {
    observer_->value({.path = path, .role = Role::kLast, .index = t.value}, terms(base, cells_[t]), active);
  }
  for (const StreamId s : ids<StreamId>(ir_.num_streams())) {
    observer_->value({.path = path, .role = Role::kPosition, .index = s.value},
                     std::span(positions_).subspan(s.index() * replicas_, replicas_), active);
  }
  return true;
}

bool Herbrand::diverged(const Step& step, PathId path, Mask active) {
  for (const Mask group : step.groups) {
    const Mask present = group & active;
    if (present == 0 || present == group) continue;
    observer_->diverges(path, *step.op);
    return true;
  }
  return false;
}

/// Term of replica `r`'s result.
Term Herbrand::local_term(const Step& step, std::size_t base, std::size_t r) {
  Term result = mix(kApplied, step.function);
  const auto index = [&] { return unsign(std::popcount(step.groups[r] & (bit(r) - 1))); };
  switch (step.kind) {
    case Kind::kMembers:
      each(step.number.empty() ? step.groups[r] : step.number[r],
           [&](std::size_t s) { result = mix(result, term(base, *step.in[0], s)); });
      break;
    case Kind::kRootAlone:
      if (index() != step.root) return result;
      each(step.groups[r], [&](std::size_t s) { result = mix(result, term(base, *step.in[0], s)); });
      return mix(result, kZero);
    case Kind::kRoot: {
      Mask later = step.groups[r];
      for (std::uint64_t k = 0; k < step.root; ++k) later &= later - 1;
      return mix(result, term(base, *step.in[0], static_cast<std::size_t>(std::countr_zero(later))));
    }
    case Kind::kPermute:
      return step.number[r] == 0 ? result : mix(result, term(base, *step.in[0], step.number[r] - 1));
    case Kind::kIndex:
      if (step.number.empty()) return mix(result, r);
      return mix(result, step.own_index ? index() : step.number[r]);
    case Kind::kLoad: {
      Term& position = positions_[step.stream.index() * replicas_ + r];
      return mix(kElement, step.stream.value, run_, position++, rows_[step.stream][r]);
    }
    case Kind::kRemoteLoad:
      for (const Cells* entry : step.entries) result = mix(result, term(0, *entry, r));
      return step.dynamic ? mix(result, term(base, *step.in.back(), r)) : result;
    default:
      for (const Cells* in : step.in) result = mix(result, term(base, *in, r));
  }
  return step.own_index ? mix(result, index()) : result;
}

void Herbrand::run_local(const Step& step, std::size_t base, PathId path, Mask active) {
  if (step.kind == Kind::kNothing) return;
  std::array<Term, 64> fresh;
  each(active, [&](std::size_t r) { fresh[r] = local_term(step, base, r); });
  if (seeds_.of(ir_, *step.op)) {
    const std::span<const std::uint32_t> seeds = observer_->seeds(path, *step.op);
    // The noise key is made of the way to the op and its place in the graph, too.
    if (!seeds.empty())
      each(active, [&](std::size_t r) { fresh[r] = mix(fresh[r], seeds[r], path, step.op->id.value); });
  }
  for (std::uint32_t k = 0; k < step.out.size(); ++k) {
    each(active, [&](std::size_t r) { write(base, *step.out[k], r, fresh[r]); });
    mark(base, *step.out[k], active);
    observer_->value({path, Role::kOutput, step.position, step.first_output + k}, terms(base, *step.out[k]),
                     active);
  }
}

/// Runs a store: each of several entries that it may reach keeps its value or takes the stored one.
void Herbrand::run_store(const Step& step, std::size_t base, PathId path, Mask active) {
  for (std::uint32_t k = 0; k < step.entries.size(); ++k) {
    const Cells& entry = *step.entries[k];
    each(active, [&](std::size_t r) {
      const Term stored = mix(kApplied, step.function, term(base, *step.in[0], r));
      write(0, entry, r,
            step.dynamic ? mix(stored, k, term(0, entry, r), term(base, *step.in.back(), r)) : stored);
    });
    observer_->value({path, Role::kOutput, step.position, step.first_output + k}, terms(0, entry), active);
  }
}

PathId Herbrand::path_into(PathId outer, const Step& step, GraphId graph, std::uint32_t branch) {
  const auto next = PathId(paths_.size());
  const auto [it, fresh] = path_ids_.try_emplace({outer, step.position, branch}, next);
  if (fresh) paths_.push_back({outer, graph, step.position, branch});
  return it->second;
}

/// Inputs by reference that were written. What is given by value may be written too: that is a copy.
void Herbrand::copy_back(const Step& step, const Body& body, std::size_t base, std::size_t inner,
                         Mask active) {
  const Code& code = code_[body.graph];
  for (const std::uint32_t i : body.modified) {
    const Cells &from = *code.inputs[i], &to = *step.in[body.first + i];
    for (std::size_t k = 0; k < from.size(); ++k) {
      const Mask written = dirty_[inner + from[k]] & active;
      copy(inner, {from[k]}, base, {to[k]}, written);
      dirty_[base + to[k]] |= written;
    }
  }
}

bool Herbrand::run_call(const Step& step, const Body& body, std::size_t base, PathId path, Mask active) {
  const Code& code = code_[body.graph];
  const std::size_t inner = push(code);
  const PathId inside = path_into(path, step, body.graph, &body == step.bodies.data() ? 0 : 1);
  observer_->starts(inside, active);
  for (std::uint32_t i = 0; i < code.inputs.size(); ++i) {
    copy(base, *step.in[body.first + i], inner, *code.inputs[i], active);
    observer_->value({inside, Role::kInput, 0, i}, terms(inner, *code.inputs[i]), active);
  }
  if (!run(body.graph, inner, inside, active)) return false;
  for (std::size_t k = 0; k < code.outputs.size(); ++k) {
    copy(inner, *code.outputs[k], base, *step.out[k], active);
  }
  copy_back(step, body, base, inner, active);
  pop(code, inner);
  return true;
}

bool Herbrand::run_repeat(const Step& step, std::size_t base, PathId path, Mask active) {
  const std::size_t carried = step.out.size();
  for (std::size_t i = 0; i < carried; ++i) copy(base, *step.in[i], base, *step.out[i], active);
  if (step.count == 0) return true;
  const Body& body = step.bodies[0];
  const Code& code = code_[body.graph];
  const std::size_t inner = push(code);
  const PathId inside = path_into(path, step, body.graph, 0);
  for (std::int64_t iteration = 0; iteration < step.count; ++iteration) {
    observer_->starts(inside, active);
    for (std::uint32_t i = 0; i < code.inputs.size(); ++i) {
      const bool kept =
          i >= carried && iteration > 0 && std::ranges::find(body.modified, i) != body.modified.end();
      const Cells& from = i < carried ? *step.out[i] : *step.in[i];
      if (!kept) copy(base, from, inner, *code.inputs[i], active);
      observer_->value({inside, Role::kInput, 0, i}, terms(inner, *code.inputs[i]), active);
    }
    if (!run(body.graph, inner, inside, active)) return false;
    for (std::size_t i = 0; i < carried; ++i) {
      copy(inner, *code.outputs[i], base, *step.out[i], active);
    }
    if (step.asks && holding(base, *step.out[0], active) == 0) break;
  }
  for (const std::uint32_t i : body.modified) {
    if (i < carried) {
      // The loop hands back its last value, whatever was written into the body's input.
      copy(base, *step.out[i], inner, *code.inputs[i], active);
      mark(inner, *code.inputs[i], active);
    }
  }
  copy_back(step, body, base, inner, active);
  pop(code, inner);
  return true;
}

/// The replicas on which a condition holds.
Mask Herbrand::holding(std::size_t base, const Cells& condition, Mask active) {
  Mask holds = 0;
  each(active, [&](std::size_t r) { holds |= (mix(seed_, term(base, condition, r)) & 1) != 0 ? bit(r) : 0; });
  return holds;
}

bool Herbrand::run_conditional(const Step& step, std::size_t base, PathId path, Mask active) {
  const Mask holds = holding(base, *step.in[0], active);
  const Mask fails = active & ~holds;
  if (holds != 0 && !run_call(step, step.bodies[0], base, path, holds)) return false;
  return fails == 0 || run_call(step, step.bodies[1], base, path, fails);
}

void Herbrand::show_results(const Step& step, std::size_t base, PathId path, Mask active) {
  for (std::uint32_t k = 0; k < step.out.size(); ++k) {
    mark(base, *step.out[k], active);
    observer_->value({path, Role::kOutput, step.position, k}, terms(base, *step.out[k]), active);
  }
  for (const std::uint32_t i : step.op->call.modified) {
    const TensorId t = place_[step.op->inputs[i]];
    observer_->value({path, Role::kWritten, step.position, t.value}, terms(base, cells_[t]), active);
  }
  if (step.kind != Kind::kConditional) return;
  for (const TensorId t : state_) {
    if (ir_.tensor(t).kind != TensorKind::kRemote) continue;
    observer_->value({path, Role::kWritten, step.position, t.value}, terms(0, cells_[t]), active);
  }
}

std::string Herbrand::to_string(const Place& place) const {
  const Path& path = paths_[place.path];
  const Graph& graph = ir_.graph(path.graph);
  std::string text;
  switch (place.role) {
    case Role::kInput:
      text = fmt::format("input {} at the start", place.index);
      break;
    case Role::kOutput:
      text = fmt::format("output {} of op {}", place.index, place.op);
      break;
    case Role::kWritten:
      text = fmt::format("%{} after op {}", ir_.tensor(TensorId(place.index)).name, place.op);
      break;
    case Role::kLast:
      text = fmt::format("%{} at the end", ir_.tensor(TensorId(place.index)).name);
      break;
    case Role::kPosition:
      text = fmt::format("position of stream '{}' at the end", ir_.stream(StreamId(place.index)).name);
      break;
  }
  text += fmt::format(" of graph '{}'", graph.name);
  for (PathId at = place.path; at != 0; at = paths_[at].outer) {
    text +=
        fmt::format(", run by op {} of '{}'{}", paths_[at].position,
                    ir_.graph(paths_[paths_[at].outer].graph).name, paths_[at].branch == 1 ? " (else)" : "");
  }
  return text;
}

}  // namespace popsr::test
