// L7: what a variable is updated with was reduced over other groups than the variable's.
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <tuple>

#include "popsr/analysis/lint/lints.h"
#include "popsr/base/error.h"
#include "popsr/ir/op_def.h"

namespace popsr {
namespace {

using ValueKey = std::tuple<FrameId, TensorId, std::int32_t, PartId>;
ValueKey key_of(const Value& value) { return {value.frame, value.storage, value.time, value.part}; }

/// A value that is written into a variable, and the collectives that it went through on its way.
struct Update {
  Value value;
  const Op* reduce = nullptr;  ///< The last one; nullptr when there is none.
  PartitionId groups = {};     ///< Join of their groups.
  /// Replicas of groups whose members all receive the same value; the other collectives give each a part.
  PartitionId whole = {};
};

class UpdateLint {
 public:
  UpdateLint(Explainer& explainer, std::vector<Lint>& lints)
      : flow_(explainer.flow()), ir_(flow_.ir()), table_(ir_.partitions()), lints_(lints) {}

  void check(TensorId state) {
    const Tensor& tensor = ir_.tensor(state);
    const Tensor& variable =
        tensor.kind == TensorKind::kVariable ? tensor : ir_.tensor(tensor.state.resident);
    const PartitionId declared = variable.state.grouping->partition(table_);
    std::set<OpId> reported;
    for (const Value& operand : operands(state)) {
      const Update update = trace(operand);
      if (update.reduce == nullptr || update.groups == declared) continue;
      // Replicas that hold parts of one value share their reduction, unless the parts are one variable's.
      const PartitionId shared = tensor.kind == TensorKind::kVariable ? update.whole : update.groups;
      const bool too_many = !table_.refines(shared, declared);
      // Fewer replicas than declared are enough when the others hold the same.
      const bool enough =
          table_.refines(declared, update.groups) || table_.refines(declared, flow_.fact(update.value));
      if (!too_many && enough) continue;
      if (reported.insert(update.reduce->id).second) report(variable, declared, update, too_many);
    }
  }

 private:
  /// Values that ops write into the variable's memory, besides its own: from the end of a run backwards.
  std::vector<Value> operands(TensorId state) {
    std::vector<Value> result, stack{flow_.last(kMainFrame, state)};
    std::set<ValueKey> seen;
    while (!stack.empty()) {
      const Value value = stack.back();
      stack.pop_back();
      if (!seen.insert(key_of(value)).second) continue;
      const Op* op = flow_.writer(value);
      for (const Source& source : flow_.sources(value)) {
        if (source.link == Link::kRun || source.link == Link::kCondition) continue;
        const bool same_memory = source.link != Link::kOperand || op->def->writes(source.input) ||
                                 source.value.storage == value.storage;
        if (same_memory) {
          stack.push_back(source.value);
        } else if (op->def->influences(source.input) && reaches(value, source.value, *op)) {
          result.push_back(source.value);
        }
      }
    }
    return result;
  }

  /// False for an operand that does not influence the written value, as the count of steps does not depend
  /// on moments: a written value is equal on no more replicas than its operands, unless replicas exchange
  /// it.
  bool reaches(const Value& written, const Value& operand, const Op& op) {
    return op.def->replicas.collective != Collective::kNone ||
           table_.refines(flow_.fact(written), flow_.fact(operand));
  }

  /// Follows a value back through collectives and through ops that have one operand of its size.
  Update trace(const Value& start) {
    Update update{.value = start, .groups = table_.bottom(), .whole = table_.bottom()};
    std::set<ValueKey> seen;
    std::optional<Value> at = start;
    while (at && seen.insert(key_of(*at)).second) {
      const Op* op = flow_.writer(*at);
      if (op != nullptr && op->def->replicas.collective == Collective::kReduce) {
        if (update.reduce == nullptr) update.reduce = op;
        const PartitionId group = group_of(ir_, *op).partition(table_);
        update.groups = table_.join(update.groups, group);
        if (!scatters_parts(*op)) update.whole = table_.join(update.whole, group);
      }
      at = origin(*at);
    }
    return update;
  }

  /// True for a reduction of which each member receives a part, as a reduce-scatter's.
  bool scatters_parts(const Op& op) const {
    return num_elements(ir_.tensor(op.outputs[0]).type.shape) <
           num_elements(ir_.tensor(op.inputs[0]).type.shape);
  }

  /// True for a product: its elements are sums over those of an operand, whatever their numbers.
  static bool multiplies(const OpDef& def) {
    const std::string_view family = def.program.family;
    return family == "matmul" || family == "conv" || family == "attention";
  }

  /// The one value that this one is made of element by element, if there is one.
  std::optional<Value> origin(const Value& value) {
    const Op* op = flow_.writer(value);
    if (op != nullptr && multiplies(*op->def)) return std::nullopt;
    const bool exchange = op != nullptr && op->def->replicas.collective != Collective::kNone;
    const std::int64_t size = num_elements(ir_.tensor(value.storage).type.shape);
    std::optional<Value> only;
    for (const Source& source : flow_.sources(value)) {
      if (source.link == Link::kCondition) continue;
      if (source.link == Link::kIteration || source.link == Link::kRun) return std::nullopt;
      const TensorId storage = source.value.storage;
      if (source.link == Link::kOperand) {
        if (!op->def->influences(source.input) || (op->def->writes(source.input) && !exchange)) continue;
        if (num_elements(ir_.tensor(storage).type.shape) != size && !exchange) continue;
        const bool start = flow_.writer(source.value) == nullptr && source.value.frame == kMainFrame;
        if (start) continue;  // the variable itself, or other state
      }
      if (only) return std::nullopt;
      only = source.value;
    }
    return only;
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

  void report(const Tensor& variable, PartitionId declared, const Update& update, bool too_many) {
    const std::int64_t extra = difference(update.groups, declared);
    const std::int64_t missing = difference(declared, update.groups);
    const std::int64_t cost = too_many ? extra : missing;
    std::string wrong =
        fmt::format("{} replica{} too {}", cost, cost == 1 ? "" : "s", too_many ? "many" : "few");
    if (too_many && missing > 0) wrong += fmt::format(", {} missing", missing);
    lints_.push_back(
        {.code = 7,
         .op = update.reduce->id,
         .tensor = variable.id,
         .location = update.reduce->origin.location,
         .cost = cost,
         .unit = "replicas",
         .text = fmt::format("'{}' is updated with a value that {} reduces over groups {}, but its own "
                             "groups are {}: {}",
                             variable.name, update.reduce->def->name, table_.to_string(update.groups),
                             table_.to_string(declared), wrong)});
  }

  Dataflow& flow_;
  const Ir& ir_;
  PartitionTable& table_;
  std::vector<Lint>& lints_;
};

}  // namespace

void lint_updates(Explainer& explainer, std::vector<Lint>& lints) {
  const Ir& ir = explainer.flow().ir();
  const auto reduces = [](const OpDef& def) { return def.replicas.collective == Collective::kReduce; };
  if (!ir.may_have(reduces)) return;
  UpdateLint lint(explainer, lints);
  for (const TensorId state : explainer.flow().facts().entry_tensors(kMainGraph)) lint.check(state);
  for (const RemoteId b : ids<RemoteId>(ir.num_remotes())) {
    for (const TensorId entry : ir.remote(b).entries) {
      if (ir.tensor(entry).state.resident != kNone) lint.check(entry);
    }
  }
}

}  // namespace popsr
