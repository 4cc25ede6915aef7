// Several exchanges as one op (transform/merge.h). Such an op is its parts: each has its own rule, effects,
// noise and kernel. The reference has rules for the merged ops themselves; they are here, with the names.
#include "popsr/ops/replicas/merged.h"
#include "popsr/base/error.h"
#include "popsr/ops/registry.h"
#include "popsr/ops/replicas/rules.h"

namespace popsr {
namespace {

std::vector<OutputDef> infer_merged(const InferContext& context) {
  raise<GraphError>("{}: made by transforms only, got a call, expected its parts one by one", context.name());
}

/// Rule of one all-reduce; in smaller groups one unequal tensor makes all unequal.
bool popart_multi_all_reduce(const PopartContext& context, std::size_t output) {
  const Op& first = context.ir.op(context.op.schedule.parts.front());
  return popart_all_members({context.ir, first, context.inputs}, output);
}

/// Each exchange by its own rule and inputs.
bool popart_multi_exchange(const PopartContext& context, std::size_t output) {
  auto next = context.inputs.begin();
  for (const OpId id : context.op.schedule.parts) {
    const Op& part = context.ir.op(id);
    const auto end = next + static_cast<std::ptrdiff_t>(part.inputs.size());
    if (output < part.outputs.size())
      return part.def->replicas.popart({context.ir, part, {next, end}}, output);
    output -= part.outputs.size();
    next = end;
  }
  POPSR_CHECK(false);
}

OpDef merged(std::string_view name, PopartFn popart, bool observable = false) {
  return {.name = name,
          .inputs = {{.name = "ts", .variadic = true}},
          .infer = infer_merged,
          .replicas = {.popart = popart},
          .program = {.observable = observable, .internal = true}};
}

}  // namespace

std::vector<OpDef> merged_ops() {
  return {
      merged(kMultiAllReduce, popart_multi_all_reduce),
      // The reference has no rule for these two, whatever their groups are.
      merged(kMultiAllGather, and_of_inputs),
      merged(kMultiReduceScatter, and_of_inputs),
      merged(kMultiExchange, popart_multi_exchange, true),
  };
}

}  // namespace popsr
