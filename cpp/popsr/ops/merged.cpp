// Several exchanges as one op (transform/merge.h). Such an op is its parts: each has its own rule, effects,
// noise and kernel, so there is nothing to say here but the names.
#include "popsr/base/error.h"
#include "popsr/ops/registry.h"

namespace popsr {
namespace {

std::vector<OutputDef> infer_merged(const InferContext& context) {
  raise<GraphError>("{}: made by transforms only, got a call, expected its parts one by one", context.name());
}

OpDef merged(std::string_view name, bool observable) {
  return {.name = name,
          .inputs = {{.name = "ts", .variadic = true}},
          .infer = infer_merged,
          .observable = observable,
          .internal = true};
}

}  // namespace

std::vector<OpDef> merged_ops() {
  return {
      merged("multi_replicated_all_reduce", false),
      merged("multi_replicated_all_gather", false),
      merged("multi_replicated_reduce_scatter", false),
      merged("multi_exchange", true),
  };
}

}  // namespace popsr
