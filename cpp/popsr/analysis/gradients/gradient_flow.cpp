#include "popsr/analysis/gradients/gradient_flow.h"

#include <algorithm>

#include "popsr/analysis/gradients/gradient_walk.h"
#include "popsr/base/threads/deep_stack.h"
#include "popsr/effects/memory.h"

namespace popsr {
namespace {

/// Largest number of passes over a run until the shares that variables hold between runs are stable; each
/// share can change twice.
constexpr int kMaxRuns = 8;
/// Each takes an analysis of the program.
constexpr std::size_t kMaxTrials = 8;

}  // namespace

GradientFlow::GradientFlow(const PartitionAnalysis& facts, std::optional<Trial> trial)
    : program_(facts),
      ir_(facts.ir()),
      table_(ir_.partitions()),
      differentiated_(ir_),
      trial_(std::move(trial)) {
  if (differentiated_.empty()) return;
  find_graphs();
  updates_.reserve(differentiated_.storages().size());
  with_deep_stack([this] {
    if (drifts()) {
      Assumptions assumptions = program_.assumptions();
      assumptions.pinned = differentiated_.all();
      pinned_facts_.emplace(ir_, program_.seed_rules(), std::move(assumptions));
    }
    solve();
    if (findings_.empty()) return;
    Assumptions assumptions = this->facts().assumptions();
    if (!assume_equal_rows(assumptions)) return;
    assumptions.pinned = differentiated_.all();
    pinned_facts_.emplace(ir_, program_.seed_rules(), std::move(assumptions));
    solve();
  });
}

/// True if a variable that gradients update need not stay equal as declared.
bool GradientFlow::drifts() {
  if (program_.preserves_declared()) {
    const std::vector<TensorId>& state = program_.entry_tensors(kMainGraph);
    const std::vector<PartitionId>& declared = program_.main().inputs;
    for (std::size_t i = 0; i < state.size(); ++i) differentiated_.set_declared(state[i], declared[i]);
    return false;
  }
  return std::ranges::any_of(differentiated_.storages(), [this](TensorId storage) {
    if (ir_.tensor(storage).graph != kMainGraph || ir_.tensor(storage).uses.producer != kNone) return false;
    const auto fact = differentiated_.declared(storage);
    return fact &&
           (program_.variable(storage) != *fact || !table_.refines(*fact, program_.partition(storage)));
  });
}

/// Lets streams that may give each replica rows of its own give equal ones inside the groups that hold one
/// model: those over which forward sums and gathers count on equal gradients. False if nothing changes.
bool GradientFlow::assume_equal_rows(Assumptions& assumptions) const {
  PartitionId models = table_.bottom();
  for (const OpId id : ids<OpId>(ir_.num_ops())) {
    const Op& op = ir_.op(id);
    if (op.def->replicas.expects_whole_gradient)
      models = table_.join(models, group_of(ir_, op).partition(table_));
  }
  bool changed = false;
  for (const StreamId id : ids<StreamId>(ir_.num_streams())) {
    const PartitionId rows = table_.join(program_.rows(id), models);
    if (!ir_.stream(id).to_device || rows == program_.rows(id)) continue;
    assumptions.rows[id] = rows;
    changed = true;
  }
  return changed;
}

void GradientFlow::solve() {
  shares_.clear();
  collective_steps_.clear();
  local_steps_.clear();
  factors_.clear();
  remote_.clear();
  sources_.clear();
  source_of_call_.clear();
  usual_.clear();
  findings_.clear();
  walk_runs();
  compare_factors();
  for (const auto& [at, finding] : found_) findings_.push_back(finding);
}

void GradientFlow::find_graphs() {
  has_gradients_.resize(ir_.num_graphs());
  for (const GraphId graph : has_gradients_.ids())
    has_gradients_[graph] = ir_.gradient_graph(graph) != nullptr;
  for (bool changed = true; changed;) {
    changed = false;
    for (const OpId id : ir_.ops_with_graphs()) {
      const Op& op = ir_.op(id);
      if (has_gradients_[op.graph]) continue;
      for (const CalledGraph& called : called_graphs(ir_, op)) {
        if (has_gradients_[called.graph]) has_gradients_[op.graph] = changed = true;
      }
    }
  }
}

void GradientFlow::walk_runs() {
  const std::size_t state = facts().main().inputs.size();
  std::vector<ShareId> inputs(state);
  for (int run = 0; run < kMaxRuns; ++run) {
    last_.clear();
    visits_.clear();
    found_.clear();
    updates_.clear();
    repeated_sums_.clear();
    const auto remote = remote_;
    const Result& result = walk(facts().main_id(), inputs, {});
    if (result.inputs == inputs && remote == remote_) return;
    for (std::size_t i = 0; i < state; ++i) inputs[i] = merge(inputs[i], result.inputs[i]);
  }
}

const GradientFlow::Result& GradientFlow::walk(ContextId context, const std::vector<ShareId>& inputs,
                                               const Caller& caller) {
  std::pair key(context, inputs);
  auto it = visits_.find(key);
  if (it == visits_.end()) {
    const GraphId graph = facts().context(context).graph;
    const bool plain = std::ranges::all_of(inputs, [](ShareId share) { return share == kPlain; });
    Result result{std::vector<ShareId>(ir_.graph(graph).outputs.size()), inputs};
    if (!plain || has_gradients_[graph]) result = GradientWalk(*this, context, inputs).run();
    it = visits_.insert_or_assign(std::move(key), std::move(result)).first;
  }
  last_[context].insert_or_assign(caller, &*it);
  return it->second;
}

GradientFlow::ShareId GradientFlow::intern(const GradientShare& share) {
  const auto it = std::ranges::find(shares_, share);
  const auto index = static_cast<std::uint32_t>(it - shares_.begin());
  if (it == shares_.end()) shares_.push_back(share);
  return ShareId(index + 2);
}

std::optional<Ratio> GradientFlow::factor(ShareId share, PartitionId summed) {
  if (of(share).summed == summed) return of(share).factor;
  const auto [it, fresh] = factors_.try_emplace({share, summed});
  if (fresh) it->second = factor_over(table_, of(share), summed);
  return it->second;
}

std::uint32_t GradientFlow::source_of(std::uint32_t source) const {
  while (sources_[source] != source) source = sources_[source];
  return source;
}

std::optional<GradientShare> GradientFlow::sum(const GradientShare& a, const GradientShare& b) {
  const std::uint32_t first = source_of(a.source), second = source_of(b.source);
  sources_[std::max(first, second)] = std::min(first, second);
  std::optional<GradientShare> result = sum_of(table_, a, b);
  if (result) result->source = std::min(first, second);
  return result;
}

/// Share of a place that holds a gradient with one share or the other.
GradientFlow::ShareId GradientFlow::merge(ShareId a, ShareId b) {
  if (a == b || b == kPlain) return a;
  if (a == kPlain) return b;
  if (!is_known(a) || !is_known(b)) return kUnknown;
  const auto both = sum(of(a), of(b));
  return both ? intern(*both) : kUnknown;
}

void GradientFlow::find(GradientFinding finding) {
  const std::pair key(finding.op, finding.tensor);
  found_.insert_or_assign(key, std::move(finding));
}

/// Finds the sums of gradient graphs that count too often, as the cause of other factors; true if there are
/// any.
bool GradientFlow::add_repeated_sums(std::uint32_t source) {
  bool some = false;
  for (const auto& [op, finding] : repeated_sums_) {
    if (source_of(finding.share.source) != source) continue;
    find(finding);
    some = true;
  }
  return some;
}

/// Sorts the updates; of several by one op, as an iteration each, the last one counts.
void GradientFlow::tidy_updates() {
  const auto place = [](const Update& update) { return std::pair(update.op, update.storage); };
  const auto later = [&](const Update& a, const Update& b) { return place(a) >= place(b); };
  if (std::ranges::adjacent_find(updates_, later) == updates_.end()) return;
  std::ranges::reverse(updates_);
  std::ranges::stable_sort(updates_, {}, place);
  const auto same = std::ranges::unique(updates_, {}, place);
  updates_.erase(same.begin(), same.end());
}

/// Finds, among gradients that start from the same values, the ones with another factor than most.
void GradientFlow::compare_factors() {
  tidy_updates();
  std::map<std::uint32_t, std::vector<const Update*>> together;
  for (const Update& update : updates_) {
    const GradientShare& share = of(update.share);
    if (!share.scaled) together[source_of(share.source)].push_back(&update);
  }
  for (const auto& [source, updates] : together) {
    const auto is_first = [&](const Update* update) { return update->factor == updates[0]->factor; };
    if (std::ranges::all_of(updates, is_first)) {
      usual_.emplace(source, updates[0]->factor);
    } else {
      find_other_factors(source, updates);
    }
  }
}

void GradientFlow::find_other_factors(std::uint32_t source, const std::vector<const Update*>& updates) {
  std::map<std::pair<std::int64_t, std::int64_t>, std::int64_t> times;
  const auto key = [](const Update* update) {
    return std::pair(update->factor.numerator, update->factor.denominator);
  };
  for (const Update* update : updates) ++times[key(update)];
  const auto count = [&](const Update* update) { return times[key(update)]; };
  const Update* const usual = *std::ranges::max_element(updates, {}, count);
  usual_.emplace(source, usual->factor);
  if (add_repeated_sums(source)) return;
  for (const Update* update : updates) {
    if (update->factor == usual->factor) continue;
    GradientFinding finding{.fault = GradientFault::kFactor,
                            .op = update->op,
                            .tensor = update->storage,
                            .first = update->gradient,
                            .share = of(update->share),
                            .other = of(usual->share)};
    finding.share.factor = update->factor;
    finding.other.factor = usual->factor;
    find(std::move(finding));
  }
}

std::optional<OpId> GradientFlow::repeated_sum(const GradientShare& share) const {
  for (const auto& [op, finding] : repeated_sums_) {
    if (source_of(finding.share.source) == source_of(share.source)) return op;
  }
  return std::nullopt;
}

std::optional<Ratio> GradientFlow::usual_factor(const GradientShare& share) const {
  const auto it = usual_.find(source_of(share.source));
  return it == usual_.end() ? std::nullopt : std::optional(it->second);
}

/// When the visit of its graph ends.
GradientFlow::ShareId GradientFlow::last_share(const Visit& visit, TensorId tensor) const {
  const std::vector<ShareId>& memory = visit.second.memory;
  if (memory.empty()) return kPlain;
  ShareId share = kPlain;
  for_each_root(ir_, tensor, [&](TensorId root) {
    const ShareId stored = memory[ir_.storage_index(root)];
    share = share == kPlain || share == stored ? stored : stored == kPlain ? share : kUnknown;
  });
  return share;
}

/// Visits the graph once more, up to there: all that it finds on the way is known.
GradientFlow::ShareId GradientFlow::share_after(const Visit& visit, TensorId tensor, std::uint32_t end) {
  if (visit.second.memory.empty()) return kPlain;
  return GradientWalk(*this, visit.first.first, visit.first.second).share_after(tensor, end);
}

/// Replicas that share the forward value of a gradient. Inside gradient graphs, the one of the last gradient
/// that it was made of.
PartitionId GradientFlow::whole_of(TensorId tensor, const GradientShare& share) const {
  const GradientGraph* const made = ir_.gradient_graph(ir_.tensor(tensor).graph);
  for (TensorId at = tensor; made != nullptr && at != kNone;) {
    if (const auto it = made->of.find(at); it != made->of.end()) return facts().partition(it->second);
    const OpId producer = ir_.tensor(at).uses.producer;
    at = kNone;
    if (producer == kNone) break;
    for (const TensorId input : ir_.op(producer).inputs) {
      if (input == kNone || !this->share(input)) continue;
      at = input;
      break;
    }
  }
  return share.whole;
}

/// Contexts of facts() in which a graph runs where the program's facts have one.
const std::set<ContextId>& GradientFlow::own_contexts(ContextId context) {
  if (own_contexts_.empty()) {
    std::vector<std::pair<ContextId, ContextId>> todo{{program_.main_id(), facts().main_id()}};
    while (!todo.empty()) {
      const auto [theirs, ours] = todo.back();
      todo.pop_back();
      if (theirs == kNone || ours == kNone || !own_contexts_[theirs].insert(ours).second) continue;
      const auto& ops = program_.context(theirs).ops;
      for (const std::uint32_t op : ops.running_graphs()) {
        const FactView of_program = ops[op], own = facts().context(ours).ops[op];
        todo.emplace_back(of_program.callee, own.callee);
        todo.emplace_back(of_program.otherwise, own.otherwise);
      }
    }
  }
  return own_contexts_[context];
}

/// Calls `use` with the share in each visit of the tensor's graph, in all contexts or some; false as soon as
/// one is not known or `use` returns false.
template <class ShareIn, class Use>
bool GradientFlow::all_shares(TensorId tensor, const std::set<ContextId>* contexts, const ShareIn& share_in,
                              const Use& use) const {
  if (ir_.tensor(tensor).kind == TensorKind::kRemote) return false;
  for (const ContextId each : facts().contexts(ir_.tensor(tensor).graph)) {
    const auto visits = last_.find(each);
    if (visits == last_.end() || (contexts != nullptr && !contexts->contains(each))) continue;
    for (const auto& [caller, visit] : visits->second) {
      const ShareId found = share_in(*visit);
      if (!is_known(found) || !use(of(found))) return false;
    }
  }
  return true;
}

std::vector<bool> GradientFlow::holders() const {
  if (last_.empty()) return {};
  std::vector<bool> holds(ir_.num_tensors());
  for (const auto& [context, visits] : last_) {
    const std::vector<TensorId>& tensors = ir_.graph(facts().context(context).graph).tensors;
    for (const auto& [caller, visit] : visits) {
      const std::vector<ShareId>& memory = visit->second.memory;
      for (std::size_t i = 0; i < memory.size(); ++i) {
        if (memory[i] != kPlain) holds[tensors[i].index()] = true;
      }
    }
  }
  return holds;
}

std::optional<GradientShare> GradientFlow::share(TensorId tensor) const {
  std::optional<GradientShare> common;
  const auto last = [&](const Visit& visit) { return last_share(visit, tensor); };
  const bool same = all_shares(tensor, nullptr, last, [&common](GradientShare share) {
    if (common) share.source = common->source;
    if (common && *common != share) return false;
    common = share;
    return true;
  });
  return same ? common : std::nullopt;
}

template <class ShareIn>
std::optional<PartitionId> GradientFlow::pending_in(TensorId tensor, const std::set<ContextId>* contexts,
                                                    const ShareIn& share_in) const {
  std::optional<PartitionId> common;
  const bool same = all_shares(tensor, contexts, share_in, [&](const GradientShare& share) {
    const PartitionId whole = whole_of(tensor, share);
    if (is_whole(table_, share, whole) || (common && *common != whole)) return false;
    common = whole;
    return true;
  });
  return same ? common : std::nullopt;
}

std::optional<PartitionId> GradientFlow::pending(TensorId tensor, const At& at) {
  const auto* const contexts = at.context ? &own_contexts(*at.context) : nullptr;
  return pending_in(tensor, contexts, [&](const Visit& visit) {
    return at.end ? share_after(visit, tensor, *at.end) : last_share(visit, tensor);
  });
}

std::optional<PartitionId> GradientFlow::pending(TensorId tensor) const {
  return pending_in(tensor, nullptr, [&](const Visit& visit) { return last_share(visit, tensor); });
}

bool GradientFlow::fixes(const Trial& trial, const GradientFinding& finding, std::size_t others) const {
  auto it = tried_.find(trial.gradient);
  if (it == tried_.end()) {
    if (tried_.size() == kMaxTrials) return false;
    const GradientFlow after(program_, trial);
    std::set<std::pair<OpId, TensorId>> left;
    for (const GradientFinding& each : after.findings()) left.emplace(each.op, each.tensor);
    it = tried_.emplace(trial.gradient, std::move(left)).first;
  }
  const auto is_known = [this](const auto& each) { return found_.contains(each); };
  return !it->second.contains({finding.op, finding.tensor}) &&
         it->second.size() + 1 + others <= findings_.size() && std::ranges::all_of(it->second, is_known);
}

}  // namespace popsr
