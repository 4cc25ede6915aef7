// L8: reads of memory that nothing was written to. One summary a graph, composed at its calls.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "popsr/analysis/lint/lints.h"
#include "popsr/base/error.h"
#include "popsr/ir/op_def.h"

namespace popsr {
namespace {

/// Contents of an allocation: nothing since an op made it, inputs of the graph, or data.
struct Contents {
  OpId undefined = kNone;
  std::set<std::uint32_t> inputs = {};

  void merge(const Contents& other) {
    if (undefined == kNone) undefined = other.undefined;
    inputs.insert(other.inputs.begin(), other.inputs.end());
  }
};
using Memory = std::map<TensorId, Contents>;  // by storage; what is missing is data

/// A load of one of these entries, at the first of which something may have been stored before.
struct EntryRead {
  std::vector<TensorId> entries;
  OpId op = kNone;
};

struct GraphReads {
  std::map<std::uint32_t, OpId> inputs;  ///< First op that reads an input as it was given.
  std::vector<Contents> outputs, final_inputs;
  std::vector<EntryRead> loads;  ///< Before the graph stores to any of their entries.
  std::set<TensorId> stored;
};

class ReadLint {
 public:
  ReadLint(Explainer& explainer, std::vector<Lint>& lints) : ir_(explainer.flow().ir()), lints_(lints) {}

  void run() {
    for (const EntryRead& load : of(kMainGraph).loads) {
      const auto filled = [&](TensorId entry) { return ir_.tensor(entry).state.resident != kNone; };
      if (std::ranges::none_of(load.entries, filled)) report_load(load);
    }
  }

 private:
  const GraphReads& of(GraphId id) {
    if (const auto it = memo_.find(id.value); it != memo_.end()) return it->second;
    GraphReads reads;
    const Graph& graph = ir_.graph(id);
    Memory contents;
    if (id != kMainGraph) {
      for (std::uint32_t i = 0; i < graph.inputs.size(); ++i) contents[graph.inputs[i]].inputs = {i};
    }
    for (const OpId op : single_ops(ir_, id)) visit(ir_.op(op), contents, reads);
    for (const TensorId output : graph.outputs) reads.outputs.push_back(find(contents, output));
    for (const TensorId input : graph.inputs) reads.final_inputs.push_back(find(contents, input));
    return memo_[id.value] = std::move(reads);
  }

  /// Contents of a tensor; for a view, everything that the memory it shows may hold.
  Contents find(const Memory& contents, TensorId tensor) const {
    Contents result;
    for_each_root(ir_, tensor, [&](TensorId root) {
      if (const auto it = contents.find(root); it != contents.end()) result.merge(it->second);
    });
    return result;
  }

  /// A write to a part of some memory counts as one to all of it: nobody is warned in vain.
  void write(Memory& contents, TensorId tensor, const Contents& written) const {
    for_each_root(ir_, tensor, [&](TensorId root) { contents[root] = written; });
  }

  void visit(const Op& op, Memory& contents, GraphReads& reads) {
    if (op.def->program.control != Control::kNone) return visit_call(op, contents, reads);
    if (op.def->memory.view) return;
    for (std::uint32_t i = 0; i < op.inputs.size(); ++i) {
      if (op.inputs[i] != kNone && influences(op, i)) read(find(contents, op.inputs[i]), op.id, reads);
    }
    if (op.def->program.remote != Remote::kNone) visit_remote(op, reads);
    const bool undefined = op.def->memory.undefined != nullptr && op.def->memory.undefined(op);
    for (const TensorId output : op.outputs) {
      if (undefined) {
        write(contents, output, {.undefined = op.id});
      } else {
        for_each_root(ir_, output, [&contents](TensorId root) { contents.erase(root); });
      }
    }
  }

  /// Some factors of 0 make an op ignore an input; its partition rule says so.
  bool influences(const Op& op, std::uint32_t input) const {
    if (op.def->replicas.partition == meet_of_inputs || op.outputs.empty()) return op.def->influences(input);
    std::vector<PartitionId> facts(all_inputs(ir_, op).size(), ir_.partitions().top());
    facts[input] = ir_.partitions().bottom();
    const std::vector<PartitionId> equal(facts.size(), ir_.partitions().top());
    for (std::size_t k = 0; k < op.outputs.size(); ++k) {
      // All-reduces over all replicas hide from whom a value came, but not the value.
      if (op.def->kernel.collective != nullptr || rule_of(ir_, op, facts, k) != rule_of(ir_, op, equal, k))
        return true;
    }
    return op.def->program.remote == Remote::kStores;
  }

  void visit_remote(const Op& op, GraphReads& reads) const {
    std::vector<TensorId> entries = remote_entries(ir_, op);
    if (op.def->program.remote == Remote::kStores) {
      reads.stored.insert(entries.begin(), entries.end());
    } else {
      add_load({std::move(entries), op.id}, reads);
    }
  }

  static void add_load(const EntryRead& load, GraphReads& reads) {
    const auto stored = [&](TensorId entry) { return reads.stored.contains(entry); };
    if (std::ranges::none_of(load.entries, stored)) reads.loads.push_back(load);
  }

  void visit_call(const Op& op, Memory& contents, GraphReads& reads) {
    if (!runs_body(op)) {
      for (std::size_t k = 0; k < op.outputs.size(); ++k) {
        contents[op.outputs[k]] = find(contents, op.inputs[k]);
      }
      return;
    }
    if (op.def->program.control == Control::kConditional) read(find(contents, op.inputs[0]), op.id, reads);
    std::vector<Memory> left;  // by each branch
    std::set<TensorId> stored;
    for (const CalledGraph& called : called_graphs(ir_, op)) {
      left.push_back(visit_branch(op, called, contents, reads));
      const GraphReads& body = of(called.graph);
      for (const EntryRead& load : body.loads) add_load(load, reads);
      stored.insert(body.stored.begin(), body.stored.end());
    }
    reads.stored.merge(stored);
    Memory after;
    for (const Memory& branch : left) {
      for (const auto& [storage, unused] : branch) after[storage];
    }
    for (auto& [storage, merged] : after) {
      for (const Memory& branch : left) {
        const auto it = branch.find(storage);
        merged.merge(it == branch.end() ? find(contents, storage) : it->second);
      }
    }
    for (auto& [storage, merged] : after) contents[storage] = std::move(merged);
  }

  /// Reports the undefined reads of a body or branch, and returns the contents of memory after its writes.
  Memory visit_branch(const Op& op, const CalledGraph& called, const Memory& contents, GraphReads& reads) {
    const GraphReads& body = of(called.graph);
    const auto given = [&](std::uint32_t input) { return find(contents, op.inputs[called.first + input]); };
    const auto carried = [&](std::uint32_t input) {
      return op.def->program.control == Control::kRepeat && input < op.outputs.size();
    };
    for (const auto& [input, reader] : body.inputs) {
      read(given(input), reader, reads);
      if (carried(input)) read({.undefined = body.outputs[input].undefined}, reader, reads);
    }
    const auto after = [&](const Contents& inner) {
      Contents outer{.undefined = inner.undefined};
      for (const std::uint32_t input : inner.inputs) outer.merge(given(input));
      return outer;
    };
    Memory left;
    for (std::size_t k = 0; k < op.outputs.size(); ++k) left[op.outputs[k]] = after(body.outputs[k]);
    for (const std::uint32_t i : op.call.modified) {
      if (i < called.first || i >= called.end) continue;
      const std::uint32_t input = i - called.first;
      write(left, op.inputs[i], after(carried(input) ? body.outputs[input] : body.final_inputs[input]));
    }
    return left;
  }

  void read(const Contents& contents, OpId reader, GraphReads& reads) {
    for (const std::uint32_t input : contents.inputs) reads.inputs.try_emplace(input, reader);
    if (contents.undefined != kNone && reported_.insert(contents.undefined).second) {
      report_undefined(contents.undefined, reader);
    }
  }

  void report(const Op& op, const Tensor& tensor, std::string text) {
    const auto cost = static_cast<std::int64_t>(bytes_of(tensor.type));
    lints_.push_back({.code = 8,
                      .op = op.id,
                      .tensor = tensor.id,
                      .location = op.origin.location,
                      .cost = cost,
                      .unit = "bytes",
                      .text = std::move(text)});
  }

  void report_undefined(OpId made, OpId reader) {
    const Op& op = ir_.op(reader);
    const Tensor& tensor = ir_.tensor(ir_.op(made).outputs[0]);
    report(op, tensor,
           fmt::format(
               "{} reads '{}', which {} at {} leaves undefined: write to it first, or start it with zeros",
               op.def->name, tensor.name, ir_.op(made).def->name,
               place_text(ir_, ir_.op(made).origin.location)));
  }

  void report_load(const EntryRead& load) {
    const Op& op = ir_.op(load.op);
    const Tensor& entry = ir_.tensor(load.entries[0]);
    report(op, ir_.tensor(op.outputs[0]),
           fmt::format("{} reads '{}'{} before anything is stored there: zeros in the first run",
                       op.def->name, entry.name, load.entries.size() == 1 ? "" : " or another entry"));
  }

  const Ir& ir_;
  std::vector<Lint>& lints_;
  std::map<std::uint32_t, GraphReads> memo_;
  std::set<OpId> reported_;
};

}  // namespace

void lint_reads(Explainer& explainer, std::vector<Lint>& lints) {
  const auto matters = [](const OpDef& def) {
    return def.memory.undefined != nullptr || def.program.remote == Remote::kLoads;
  };
  if (explainer.flow().ir().may_have(matters)) ReadLint(explainer, lints).run();
}

}  // namespace popsr
