// Random straight-line programs: the analysis must find exactly the replicas that hold equal terms.
//
// The oracle is a Herbrand interpreter of its own: it runs a program once per replica on hash-consed terms
// instead of numbers, with every op an opaque function. It shares no code with the rules it checks.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "popsr/analysis/partition_analysis.h"
#include "popsr/ir/print.h"
#include "popsr/transform/merge.h"
#include "program.h"

namespace popsr {
namespace {

using test::Attrs;
using test::kVector;
using test::Program;
using Term = std::uint64_t;
using Terms = std::vector<Term>;  ///< One per replica.

std::size_t at(std::uint64_t index) { return static_cast<std::size_t>(index); }

/// Equal lists of numbers get equal terms.
class TermTable {
 public:
  Term operator()(const std::vector<std::uint64_t>& key) {
    return terms_.try_emplace(key, terms_.size()).first->second;
  }

 private:
  std::map<std::vector<std::uint64_t>, Term> terms_;
};

class Interpreter {
 public:
  explicit Interpreter(const Ir& ir) : ir_(ir), replicas_(at(static_cast<std::uint64_t>(ir.replication()))) {
    for (const TensorId t : ir.graph(kMainGraph).tensors) {
      const Tensor& tensor = ir.tensor(t);
      if (tensor.producer != kNone) continue;
      Terms terms(replicas_);
      for (std::size_t r = 0; r < replicas_; ++r) {
        const std::int64_t group = tensor.grouping ? tensor.grouping->assignment()[r] : 0;
        terms[r] = table_({kSource, t, static_cast<std::uint64_t>(group)});
      }
      values_[t] = std::move(terms);
    }
  }

  /// Runs the op on every replica; the terms of what it changes.
  std::vector<Terms> run(const Op& op) {
    if (op.def->name == "remote_store") return store(op);
    std::vector<Terms> changed;
    for (const OpId part : op.parts) {
      for (Terms& terms : run(ir_.op(part))) changed.push_back(std::move(terms));
    }
    if (!op.parts.empty()) return changed;
    Terms terms(replicas_);
    for (std::size_t r = 0; r < replicas_; ++r) terms[r] = table_(key(op, r));
    const bool in_place = op.def->name.back() == '_';
    for (const TensorId result : op.outputs) {
      if (in_place) place_[result] = place(op.inputs[0]);
      values_[place(result)] = terms;
    }
    return std::vector<Terms>(op.outputs.size(), terms);
  }

 private:
  static constexpr std::uint64_t kSource = ~std::uint64_t{0};

  /// The first tensor that lived where `t` lives.
  TensorId place(TensorId t) const {
    const auto it = place_.find(t);
    return it == place_.end() ? t : it->second;
  }
  Term value(TensorId t, std::size_t replica) const { return values_.at(place(t))[replica]; }

  std::vector<std::uint64_t> key(const Op& op, std::size_t r) const {
    const std::string_view name = op.def->name;
    if (name.starts_with("remote_load")) return load(op, r);
    std::vector<std::uint64_t> key{op.id};
    if (name == "host_load") {
      const bool broadcast = ir_.stream(op.attr<StreamRef>("h2d_stream").id).mode == StreamMode::kBroadcast;
      key.push_back(broadcast ? 0 : r);
    } else if (name == "replicated_permute") {
      append_source(op, r, key);
    } else if (name == "replica_index") {
      const Group group = group_of(op, r);
      key.push_back(op.attr<std::string>("what") == "group" ? group.number : group.index);
    } else if (name.starts_with("replica")) {
      append_members(op, r, key);
    } else {
      const std::size_t first = name == "copy_var_update_" ? 1 : 0;  // the target is overwritten unread
      for (std::size_t i = first; i < op.inputs.size(); ++i) key.push_back(value(op.inputs[i], r));
    }
    return key;
  }

  /// The entries that an op may reach, and the term of its offset.
  std::vector<TensorId> entries(const Op& op) const {
    const std::vector<TensorId>& all = ir_.remote(op.attr<RemoteRef>("remote_buffer").id).entries;
    const auto entry = op.optional_attr<std::int64_t>("entry");
    return entry ? std::vector<TensorId>{all[at(static_cast<std::uint64_t>(*entry))]} : all;
  }
  static TensorId offset(const Op& op) { return op.inputs.empty() ? kNone : op.inputs.back(); }

  std::vector<std::uint64_t> load(const Op& op, std::size_t r) const {
    std::vector<std::uint64_t> key{op.id};
    for (const TensorId entry : entries(op)) key.push_back(value(entry, r));
    if (!op.optional_attr<std::int64_t>("entry")) key.push_back(value(offset(op), r));
    return key;
  }

  std::vector<Terms> store(const Op& op) {
    std::vector<Terms> changed;
    const std::vector<TensorId> reached = entries(op);
    for (const TensorId entry : reached) {
      Terms terms(replicas_);
      for (std::size_t r = 0; r < replicas_; ++r) {
        std::vector<std::uint64_t> key{op.id, value(op.inputs[0], r)};
        if (!op.optional_attr<std::int64_t>("entry")) {
          key.insert(key.end(), {entry, value(entry, r), value(offset(op), r)});
        }
        terms[r] = table_(key);
      }
      changed.push_back(terms);
    }
    for (std::size_t k = 0; k < reached.size(); ++k) values_[reached[k]] = changed[k];
    return changed;
  }

  struct Group {
    std::uint64_t number = 0, index = 0;
    std::vector<std::size_t> members = {};
  };
  Group group_of(const Op& op, std::size_t r) const {
    const std::vector<std::int64_t> groups = op.optional_attr<ReplicaGrouping>("group")
                                                 .value_or(ReplicaGrouping::from_stride(ir_.replication()))
                                                 .assignment();
    Group group{.number = static_cast<std::uint64_t>(groups[r])};
    for (std::size_t s = 0; s < replicas_; ++s) {
      if (groups[s] != groups[r]) continue;
      if (s == r) group.index = group.members.size();
      group.members.push_back(s);
    }
    return group;
  }

  /// What a collective gives a replica: a function of these.
  void append_members(const Op& op, std::size_t r, std::vector<std::uint64_t>& key) const {
    const std::string_view name = op.def->name;
    const Group group = group_of(op, r);
    const auto root = [&op] { return at(static_cast<std::uint64_t>(op.attr<std::int64_t>("root"))); };
    const bool own = name == "replicated_slice" || name == "replica_sharded_slice" ||
                     name == "replicated_all_reduce_identical_inputs";
    if (own) {
      key.push_back(value(op.inputs[0], r));
    } else if (name == "replicated_broadcast") {
      key.push_back(value(op.inputs[0], group.members.at(root())));
    } else if (name != "replicated_broadcast_grad" || group.index == root()) {
      for (const std::size_t s : group.members) key.push_back(value(op.inputs[0], s));
    }
    const bool parts = name == "replicated_reduce_scatter" || name == "replicated_all_to_all";
    if (parts || name.ends_with("_slice")) key.push_back(group.index);
  }

  /// Nothing, where nothing arrives.
  void append_source(const Op& op, std::size_t r, std::vector<std::uint64_t>& key) const {
    const auto& mapping = op.attr<std::vector<std::int64_t>>("mapping");
    for (std::size_t s = 0; s < replicas_; ++s) {
      if (mapping[s] == static_cast<std::int64_t>(r)) key.push_back(value(op.inputs[0], s));
    }
  }

  const Ir& ir_;
  std::size_t replicas_;
  TermTable table_;
  std::map<TensorId, TensorId> place_;
  std::map<TensorId, Terms> values_;
};

/// Grows a random program; in-place ops write only what was loaded, and remote entries are stored first, so
/// that one run tells all.
class Generator {
 public:
  Generator(Program& program, std::mt19937& random) : p_(program), random_(random) {}

  void grow(int ops) {
    p_.sequence = SequenceMode::kUnordered;
    for (int i = 0; i < 3; ++i) tensors_.push_back(p_.variable("w", grouping()));
    writable_.push_back(p_.load("x"));
    writable_.push_back(p_.load("b", StreamMode::kBroadcast));
    const TensorType index{DType::kInt32, {}};
    offsets_ = {p_.load("i", StreamMode::kReplicate, index), p_.load("j", StreamMode::kBroadcast, index)};
    tensors_.insert(tensors_.end(), writable_.begin(), writable_.end());
    for (std::int64_t e = 0; e < 2; ++e) {
      p_.emit("remote_store", {any_vector()}, {{"remote_buffer", RemoteRef{buffer_}}, {"entry", e}});
    }
    for (int i = 0; i < ops; ++i) step();
  }

 private:
  std::size_t below(std::size_t end) { return random_() % end; }
  TensorId any() { return tensors_[below(tensors_.size())]; }

  /// A tensor of the same type: the first one, when no try hits another.
  TensorId like(TensorId t, const std::vector<TensorId>& from) {
    for (int tries = 0; tries < 8; ++tries) {
      const TensorId other = from[below(from.size())];
      const Tensor &a = p_.ir.tensor(other), &b = p_.ir.tensor(t);
      if (a.type == b.type && a.meta_shape == b.meta_shape) return other;
    }
    return t;
  }

  TensorId any_vector() { return like(writable_[0], tensors_); }

  ReplicaGrouping grouping() {
    const auto n = p_.ir.replication();
    std::vector<std::int64_t> divisors;
    for (std::int64_t d = 1; d <= n; ++d) {
      if (n % d == 0) divisors.push_back(d);
    }
    const std::int64_t size = divisors[below(divisors.size())];
    if (below(3) != 0) {
      std::vector<std::int64_t> strides;
      for (const std::int64_t d : divisors) {
        if (n % (d * size) == 0) strides.push_back(d);
      }
      return p_.groups(strides[below(strides.size())], size);
    }
    return shuffled(n, size);
  }

  ReplicaGrouping shuffled(std::int64_t n, std::int64_t size) {
    std::vector<std::int64_t> groups;
    for (std::int64_t r = 0; r < n; ++r) groups.push_back(r / size);
    std::shuffle(groups.begin(), groups.end(), random_);
    std::vector<std::int64_t> fresh(at(static_cast<std::uint64_t>(n / size)), -1);
    std::int64_t next = 0;
    for (std::int64_t& group : groups) {
      std::int64_t& label = fresh[at(static_cast<std::uint64_t>(group))];
      if (label < 0) label = next++;
      group = label;
    }
    return ReplicaGrouping::from_assignment(groups);
  }

  /// A load or store of the remote buffer, at an entry that is known or not.
  void remote(TensorId t) {
    Attrs attrs{{"remote_buffer", RemoteRef{buffer_}}};
    std::vector<TensorId> inputs;
    if (below(3) == 0) {
      inputs.push_back(offsets_[below(2)]);
    } else {
      attrs.emplace_back("entry", static_cast<std::int64_t>(below(2)));
    }
    if (below(2) == 0) return keep(p_("remote_load", inputs, {}, attrs));
    inputs.insert(inputs.begin(), p_.ir.tensor(t).type == kVector ? t : any_vector());
    p_.emit("remote_store", inputs, attrs);
  }

  void step() {
    // What modifies is in a fixed order with all the rest.
    const std::size_t kind = below(20);
    p_.sequence = kind < 5 ? SequenceMode::kOrdered : SequenceMode::kUnordered;
    return kind < 5 ? modify(kind) : compute(kind);
  }

  void modify(std::size_t kind) {
    const TensorId target = writable_[below(writable_.size())];
    switch (kind) {
      case 0:
        return keep(p_("add_", {target, like(target, tensors_)}));
      case 1:
        return keep(p_("copy_var_update_", {target, like(target, tensors_)}));
      case 2:
        return keep(p_("replicated_all_reduce_", {target}, {}, {{"group", grouping()}}));
      default:
        return remote(any());
    }
  }

  void compute(std::size_t kind) {
    const TensorId t = any();
    switch (kind) {
      case 5:
        return keep(p_("add", {t, like(t, tensors_)}));
      case 6:
        return keep(p_("tanh", {t}));
      case 7:
      case 8:
        return collective("replicated_all_reduce", t);
      case 9:
        return collective("replicated_reduce_scatter", t);
      case 10:
        if (!small(t)) return keep(p_("relu", {t}));
        return keep(p_("replicated_all_gather", {t}, {},
                       {{"group", grouping()}, {"output_shape", std::string("concat")}}));
      case 11:
        return broadcast(t);
      case 12:
        return keep(p_("replicated_permute", {t}, {}, {{"mapping", destinations()}}));
      case 13:
        return part(below(2) == 0 ? "replicated_all_to_all" : "replicated_slice", t);
      case 14:
        return collective("replica_sharded_slice", t);
      case 15:
        return index();
      case 16:
        return collective(below(2) == 0 ? "replicated_all_reduce_identical_inputs"
                                        : "replicated_all_reduce_identical_grad_inputs",
                          t);
      case 17:
        for (const TensorId sum : p_.ir.op(p_.emit("all_reduce", {t, like(t, tensors_)})).outputs) keep(sum);
        return;
      case 18:
        return keep(p_("mul", {t, like(t, tensors_)}));
      default:
        return keep(p_.load("x"));
    }
  }

  void index() {
    const TensorId number =
        p_("replica_index", {}, {},
           {{"group", grouping()}, {"what", std::string(below(2) == 0 ? "index" : "group")}});
    keep(p_("cast", {number}, {}, {{"data_type", DType::kFloat32}}));
  }

  void broadcast(TensorId t) {
    const ReplicaGrouping group = grouping();
    const auto size = static_cast<std::size_t>(group.group_size());
    keep(p_(below(3) == 0 ? "replicated_broadcast_grad" : "replicated_broadcast", {t}, {},
            {{"root", static_cast<std::int64_t>(below(size))}, {"group", group}}));
  }

  std::vector<std::int64_t> destinations() {
    std::vector<std::int64_t> mapping;
    for (std::int64_t r = 0; r < p_.ir.replication(); ++r) mapping.push_back(r);
    std::shuffle(mapping.begin(), mapping.end(), random_);
    for (std::int64_t& to : mapping) to = below(4) == 0 ? -1 : to;
    return mapping;
  }

  /// Along an axis that divides.
  void part(std::string_view op, TensorId t) {
    const ReplicaGrouping group = grouping();
    const Shape& shape = p_.ir.tensor(t).type.shape;
    if (shape.empty() || shape[0] % group.group_size() != 0) return broadcast(t);
    keep(p_(op, {t}, {}, {{"group", group}}));
  }

  bool small(TensorId t) const { return num_elements(p_.ir.tensor(t).type.shape) <= 64; }
  void keep(TensorId t) { tensors_.push_back(t); }
  void collective(std::string_view op, TensorId t) { keep(p_(op, {t}, {}, {{"group", grouping()}})); }

  Program& p_;
  std::mt19937& random_;
  std::vector<TensorId> tensors_, writable_, offsets_;
  RemoteId buffer_ = p_.ir.add_remote_buffer(kVector, 2);
};

/// Checks all facts of the program; how many are neither top nor bottom.
int check_exact(const Program& p) {
  const PartitionAnalysis facts(p.ir);
  PartitionTable& table = p.ir.partitions();
  Interpreter interpreter(p.ir);
  const std::vector<OpId>& ops = p.ir.graph(kMainGraph).ops;
  int between = 0;
  for (std::size_t i = 0; i < ops.size(); ++i) {
    const std::vector<Terms> changed = interpreter.run(p.ir.op(ops[i]));
    REQUIRE(changed.size() == facts.main().ops[i].outputs.size());
    for (std::size_t k = 0; k < changed.size(); ++k) {
      const PartitionId fact = facts.main().ops[i].outputs[k];
      const PartitionId exact = table.from_keys(changed[k]);
      between += exact != table.top() && exact != table.bottom() ? 1 : 0;
      if (fact == exact) continue;
      FAIL("op ", i, " has ", table.to_string(fact), ", expected ", table.to_string(exact), " in\n",
           print_ir(p.ir));
    }
  }
  return between;
}

TEST_CASE("analysis fuzz: facts of straight-line programs are exact, before and after merging") {
  std::mt19937 random(20240612);
  int between = 0;
  std::size_t merged = 0;
  for (const std::int64_t replicas : {1, 4, 6, 8, 12}) {
    for (int round = 0; round < 150; ++round) {
      Program p(replicas);
      Generator(p, random).grow(40);
      between += check_exact(p);
      merged += merge_collectives(p.ir) + merge_exchange(p.ir);
      check_exact(p);
    }
  }
  CHECK(between > 6000);  // the programs are not all trivial
  CHECK(merged > 3000);
}

TEST_CASE("analysis fuzz: the oracle sees a wrong rule") {
  auto registry = std::make_shared<Registry>(*default_registry());
  OpDef wrong = registry->at("replicated_reduce_scatter");
  wrong.partition = registry->at("replicated_all_reduce").partition;
  registry->replace(wrong);
  std::mt19937 random(20240613);
  int unsound = 0;
  for (int round = 0; round < 20; ++round) {
    Program p(6, registry);
    Generator(p, random).grow(30);
    const PartitionAnalysis facts(p.ir);
    Interpreter interpreter(p.ir);
    const std::vector<OpId>& ops = p.ir.graph(kMainGraph).ops;
    for (std::size_t i = 0; i < ops.size(); ++i) {
      const std::vector<Terms> changed = interpreter.run(p.ir.op(ops[i]));
      if (changed.empty()) continue;
      const PartitionId exact = p.ir.partitions().from_keys(changed[0]);
      unsound += p.ir.partitions().refines(facts.main().ops[i].outputs[0], exact) ? 0 : 1;
    }
  }
  CHECK(unsound > 0);
}

}  // namespace
}  // namespace popsr
