// L7: what a variable is updated with was reduced over other groups than the variable's.
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "popsr/analysis/lint/lints.h"
#include "popsr/base/containers/recent.h"
#include "popsr/base/error.h"
#include "popsr/ir/flat/fetch_ahead.h"
#include "popsr/ir/flat/flat_program.h"
#include "popsr/ir/op_def.h"

namespace popsr {
namespace {

struct ValueHash {
  std::size_t operator()(const Value& value) const {
    const std::uint64_t place = std::uint64_t{value.storage.value} << 32 ^ std::uint64_t{value.frame.value};
    const std::uint64_t when = std::uint64_t(value.part.value) << 32 ^ static_cast<std::uint32_t>(value.time);
    const std::uint64_t hash = (place * kHashFactor ^ when) * kHashFactor;
    return static_cast<std::size_t>(hash ^ hash >> 32);
  }
};

/// The collectives that a value went through on its way.
struct Reductions {
  OpId last = kNone;        ///< kNone when there is none.
  PartitionId groups = {};  ///< Join of their groups.
  /// Replicas of groups whose members all receive the same value; the other collectives give each a part.
  PartitionId whole = {};
};

/// Key of the partition of groups.
struct Groups {
  std::uint64_t identity = 0;  ///< ReplicaGrouping::identity().
  bool operator==(const Groups&) const = default;
  std::uint64_t hash() const { return identity * kHashFactor; }
};

class UpdateLint {
 public:
  UpdateLint(Explainer& explainer, std::vector<Lint>& lints)
      : flow_(explainer.flow()),
        ir_(flow_.ir()),
        table_(ir_.partitions()),
        lints_(lints),
        sizes_(flat(ir_).sizes()) {}

  void check(TensorId state) {
    const Tensor& tensor = ir_.tensor(state);
    const Tensor& variable =
        tensor.kind == TensorKind::kVariable ? tensor : ir_.tensor(tensor.state.resident);
    const PartitionId declared = partition_of(*variable.state.grouping);
    std::set<OpId> reported;
    for (const Value& operand : find_operands(state)) {
      const Reductions update = trace(operand);
      if (update.last == kNone || update.groups == declared) continue;
      // Replicas that hold parts of one value share their reduction, unless the parts are one variable's.
      const PartitionId shared = tensor.kind == TensorKind::kVariable ? update.whole : update.groups;
      const bool too_many = !table_.refines(shared, declared);
      // Fewer replicas than declared are enough when the others hold the same.
      const bool enough =
          table_.refines(declared, update.groups) || table_.refines(declared, flow_.fact(operand));
      if (!too_many && enough) continue;
      if (reported.insert(update.last).second) report(variable, declared, update, too_many);
    }
  }

 private:
  /// Calls visit(def, source) for the sources of a value, with the definition of the op that wrote it, until
  /// it returns false.
  template <class Visit>
  void for_each_source(const Value& value, const Visit& visit) {
    const auto [plain, inputs] = flow_.plain_writer(value);
    if (plain == nullptr) {
      const Op* const op = flow_.writer(value);
      for (const Source& source : flow_.sources(value)) {
        if (!visit(op == nullptr ? nullptr : op->def, source)) return;
      }
      return;
    }
    for (std::uint32_t i = 0; i < inputs.size(); ++i) {
      if (inputs[i] == kNone) continue;
      if (!visit(plain->def, {flow_.operand(value, inputs[i]), Link::kOperand, i})) return;
    }
  }

  /// Finds the values that ops write into the variable's memory, besides its own: from the end of a run
  /// backwards.
  const std::vector<Value>& find_operands(TensorId state) {
    operands_.clear();
    seen_.clear();
    stack_.assign(1, flow_.last(kMainFrame, state));
    while (!stack_.empty()) {
      const Value value = stack_.back();
      stack_.pop_back();
      if (is_start(value) || !add_seen(value)) continue;
      for_each_source(value, [&](const OpDef* def, const Source& source) {
        if (source.link == Link::kRun || source.link == Link::kCondition) return true;
        const bool same_memory = source.link != Link::kOperand || def->writes(source.input) ||
                                 source.value.storage == value.storage;
        if (same_memory) {
          stack_.push_back(source.value);
        } else if (def->influences(source.input) && reaches(value, source.value, *def)) {
          operands_.push_back(source.value);
        }
        return true;
      });
    }
    return operands_;
  }

  /// False if the value was seen before. Most variables have few.
  bool add_seen(const Value& value) {
    constexpr std::size_t kFew = 16;
    if (seen_.size() < kFew) {
      if (std::ranges::find(seen_, value) != seen_.end()) return false;
      seen_.push_back(value);
      if (seen_.size() == kFew) many_seen_ = {seen_.begin(), seen_.end()};
      return true;
    }
    return many_seen_.insert(value).second;
  }

  /// True for what the main graph starts with: its sources are of the run before.
  bool is_start(const Value& value) const {
    return value.frame == kMainFrame && value.time < 0 && flow_.writer(value) == nullptr;
  }

  /// False for an operand that does not influence the written value, as the count of steps does not depend
  /// on moments: a written value is equal on no more replicas than its operands, unless replicas exchange
  /// it.
  bool reaches(const Value& written, const Value& operand, const OpDef& def) {
    return def.replicas.collective != Collective::kNone ||
           table_.refines(flow_.fact(written), flow_.fact(operand));
  }

  /// Follows a value back through collectives and through ops that have one operand of its size. One value in
  /// kStep of a way is remembered: no way is walked often, and short ones cost no memory.
  Reductions trace(const Value& start) {
    constexpr std::size_t kStep = 8;
    Reductions result{.groups = table_.bottom(), .whole = table_.bottom()};
    way_.clear();
    for (std::optional<Value> at = start; at; at = origin(*at)) {
      if (const auto known = traced_.find(*at); known != traced_.end()) {
        result = known->second;  // nothing yet where the way runs in a circle
        break;
      }
      way_.push_back(*at);
      if (way_.size() % kStep == 0) traced_.emplace(*at, result);
    }
    for (std::size_t i = way_.size(); i-- > 0;) {
      add_collective(way_[i], result);
      if ((i + 1) % kStep == 0) traced_.insert_or_assign(way_[i], result);
    }
    return result;
  }

  /// Adds the collective that wrote the value, if one did.
  void add_collective(const Value& value, Reductions& result) {
    PartitionId group;
    if (const FlatOp* const plain = flow_.plain_writer(value).op) {
      if (plain->def->replicas.collective != Collective::kReduce) return;
      result.last = plain->id;
      group = partition_of(flow_.facts().schedule(flow_.graph(value.frame).id).groups()[plain->groups]);
    } else {
      const Op* const op = flow_.writer(value);
      if (op == nullptr || op->def->replicas.collective != Collective::kReduce) return;
      result.last = op->id;
      group = group_of(ir_, *op).partition(table_);
    }
    result.groups = table_.join(result.groups, group);
    if (!scatters_parts(ir_.op(result.last))) result.whole = table_.join(result.whole, group);
  }

  /// True for a reduction of which each member receives a part, as a reduce-scatter's.
  bool scatters_parts(const Op& op) const { return sizes_[op.outputs[0]] < sizes_[op.inputs[0]]; }

  PartitionId partition_of(const ReplicaGrouping& groups) {
    const Groups key{groups.identity()};
    if (const PartitionId* const known = partitions_.find(key)) return *known;
    partitions_.put(key, groups.partition(table_));
    return *partitions_.find(key);
  }

  /// True for a product: its elements are sums over those of an operand, whatever their numbers.
  static bool multiplies(const OpDef& def) {
    const std::string_view family = def.program.family;
    return family == "matmul" || family == "conv" || family == "attention";
  }

  /// Definition of the op that wrote the value; nullptr if none did.
  const OpDef* definition(const Value& value) const {
    if (const FlatOp* const plain = flow_.plain_writer(value).op) return plain->def;
    const Op* const op = flow_.writer(value);
    return op == nullptr ? nullptr : op->def;
  }

  /// The one value that this one is made of element by element, if there is one.
  std::optional<Value> origin(const Value& value) {
    const OpDef* const def = definition(value);
    if (def != nullptr && multiplies(*def)) return std::nullopt;
    const bool exchange = def != nullptr && def->replicas.collective != Collective::kNone;
    const std::int64_t size = sizes_[value.storage];
    std::optional<Value> only;
    bool several = false;
    for_each_source(value, [&](const OpDef* writer, const Source& source) {
      if (source.link == Link::kCondition) return true;
      several = source.link == Link::kIteration || source.link == Link::kRun;
      if (several) return false;
      if (source.link == Link::kOperand) {
        if (!writer->influences(source.input) || (writer->writes(source.input) && !exchange)) return true;
        if (!exchange && sizes_[source.value.storage] != size) return true;
        if (is_start(source.value)) return true;  // the variable itself, or other state
      }
      several = only.has_value();
      only = source.value;
      return !several;
    });
    return several ? std::nullopt : only;
  }

  /// Members of one's group that the other's lacks, at most.
  std::int64_t difference(PartitionId a, PartitionId b) const {
    const auto of_a = table_.labels(a), of_b = table_.labels(b);
    std::vector<std::int64_t> a_size(of_a.size(), 0), both(of_a.size(), 0);
    const PartitionId meet = table_.meet(a, b);
    for (std::size_t r = 0; r < of_a.size(); ++r) {
      ++a_size[of_a[r]];
      ++both[table_.labels(meet)[r]];
    }
    std::int64_t most = 0;
    for (std::size_t r = 0; r < of_a.size(); ++r) {
      most = std::max(most, a_size[of_a[r]] - both[table_.labels(meet)[r]]);
    }
    return most;
  }

  void report(const Tensor& variable, PartitionId declared, const Reductions& update, bool too_many) {
    const std::int64_t extra = difference(update.groups, declared);
    const std::int64_t missing = difference(declared, update.groups);
    const std::int64_t cost = too_many ? extra : missing;
    std::string wrong =
        fmt::format("{} replica{} too {}", cost, cost == 1 ? "" : "s", too_many ? "many" : "few");
    if (too_many && missing > 0) wrong += fmt::format(", {} missing", missing);
    const Op& last = ir_.op(update.last);
    lints_.push_back(
        {.code = 7,
         .op = last.id,
         .tensor = variable.id,
         .location = last.origin.location,
         .cost = cost,
         .unit = "replicas",
         .text = fmt::format("'{}' is updated with a value that {} reduces over groups {}, but its own "
                             "groups are {}: {}",
                             variable.name, last.def->name, table_.to_string(update.groups),
                             table_.to_string(declared), wrong)});
  }

  Dataflow& flow_;
  const Ir& ir_;
  PartitionTable& table_;
  std::vector<Lint>& lints_;
  const IdVector<TensorId, std::int64_t>& sizes_;  ///< Number of elements of each tensor.
  Recent<Groups, PartitionId> partitions_;
  std::unordered_map<Value, Reductions, ValueHash> traced_;  ///< Some results of trace().
  // Memory of the functions above, used again for each variable.
  std::vector<Value> operands_, stack_, seen_, way_;
  std::unordered_set<Value, ValueHash> many_seen_;
};

}  // namespace

void lint_updates(Explainer& explainer, std::vector<Lint>& lints) {
  const Ir& ir = explainer.flow().ir();
  const auto reduces = [](const OpDef& def) { return def.replicas.collective == Collective::kReduce; };
  if (!ir.may_have(reduces)) return;
  UpdateLint lint(explainer, lints);
  const std::vector<TensorId>& states = explainer.flow().facts().entry_tensors(kMainGraph);
  for (std::size_t i = 0; i < states.size(); ++i) {
    constexpr std::size_t kAhead = 6;
    if (i + kAhead < states.size()) fetch_object(ir.tensor(states[i + kAhead]));
    lint.check(states[i]);
  }
  for (const RemoteId b : ids<RemoteId>(ir.num_remotes())) {
    for (const TensorId entry : ir.remote(b).entries) {
      if (ir.tensor(entry).state.resident != kNone) lint.check(entry);
    }
  }
}

}  // namespace popsr
