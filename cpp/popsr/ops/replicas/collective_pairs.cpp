// Collectives whose gradient is declared instead of derived, and reductions of several tensors of one
// replica.
//
// They come in pairs: one is the identity and its gradient a reduction, the other the reverse. Both are right
// when what their names say is identical really is.
#include <algorithm>

#include "popsr/base/error.h"
#include "popsr/exec/block_kernel.h"
#include "popsr/ops/infer.h"
#include "popsr/ops/loops/blocks.h"
#include "popsr/ops/loops/tiles.h"
#include "popsr/ops/registry.h"
#include "popsr/ops/replicas/collective_kernels.h"
#include "popsr/ops/replicas/rules.h"

namespace popsr {
namespace {

void require_add(const InferContext& context) {
  check_reduction(context);
  if (const CollectiveOp op = context.get(kReduction); op != CollectiveOp::kAdd) {
    raise<AttributeValueError>("{}: reduction has no such gradient, got '{}', expected 'add'", context.name(),
                               kReduction.name_of(op));
  }
}

// Between replicas

std::vector<OutputDef> infer_between_replicas(const InferContext& context) {
  checked_group_size(context);
  require_add(context);
  return same_as_input(context);
}

BlockKernel same(const EvalSpec& spec) { return copy_kernel(spec); }

GradValue all_reduced_grad(Grad& g) { return g.call("replicated_all_reduce", {g.dy()}, {g.same(kGroup)}); }

GradValue same_grad(Grad& g) { return g.call("replicated_identical_grad", {g.dy()}, {g.same(kGroup)}); }

// Tensors of one replica

using Ipus = std::vector<std::int64_t>;

constexpr Attr<Ipus> kIpus{"ipus"};

void check_ipus(const InferContext& context) {
  const auto ipus = context.find(kIpus);
  if (!ipus) return;
  if (ipus->size() != context.op.inputs.size()) {
    raise<AttributeValueError>("{}: not one of ipus for each tensor, got {}, expected {}", context.name(),
                               ipus->size(), context.op.inputs.size());
  }
  for (const std::int64_t ipu : *ipus) check_ipu(context, "one of ipus", ipu);
}

/// Place of tensor k and its result: IPU k of the list.
Place place_of_tensor(const Op& op, std::size_t index) {
  const auto ipus = op.find(kIpus);
  return {ipus ? static_cast<std::uint32_t>(ipus->at(index)) : op.origin.place.ipu, op.origin.place.tiles};
}

/// One output per input, of its type; all inputs agree in dtype and shape.
std::vector<OutputDef> infer_tensors(const InferContext& context) {
  if (context.op.inputs.empty()) {
    raise<GraphError>("{}: nothing to reduce, got no tensors, expected at least one", context.name());
  }
  check_ipus(context);
  const OutputDef output = all_same(context).at(0);
  return std::vector<OutputDef>(context.op.inputs.size(), output);
}

std::vector<OutputDef> infer_reduce_tensors(const InferContext& context) {
  std::vector<OutputDef> outputs = infer_tensors(context);
  check_reduction(context);
  return outputs;
}

std::vector<OutputDef> infer_paired_tensors(const InferContext& context) {
  std::vector<OutputDef> outputs = infer_tensors(context);
  require_add(context);
  return outputs;
}

BlockKernel same_tensors(const EvalSpec& spec) {
  std::vector<BlockKernel> copies;
  for (std::size_t i = 0; i < spec.outputs.size(); ++i) copies.push_back(copy_kernel(spec, i, i));
  return [copies = std::move(copies)](const BlockRun& run) {
    for (const BlockKernel& copy : copies) copy(run);
  };
}

/// Gradient of each tensor: the sum of the outputs' gradients, as far as they have one, on the tensor's IPU.
void summed_grads(Grad& g) {
  const auto ipus = g.find(kIpus);
  std::vector<GradValue> terms;
  Ipus places;
  for (std::size_t k = 0; k < g.op().outputs.size(); ++k) {
    if (!g.dy(k)) continue;
    terms.push_back(g.dy(k));
    if (ipus) places.push_back(ipus->at(k));
  }
  if (terms.empty()) return;
  std::vector<NamedAttribute> on;
  if (ipus) on.push_back(kIpus(places));
  const std::vector<GradValue> sums = terms.size() == 1 ? terms : g.call_all("all_reduce", terms, on);
  std::size_t next = 0;
  for (std::size_t i = 0; i < g.op().inputs.size(); ++i) {
    if (g.dy(i)) {
      g.set(i, sums[next++]);
    } else if (ipus) {
      g.set(i, g.call("ipu_copy", {sums[0]}, {{"destination", ipus->at(i)}, {"source", places[0]}}));
    } else {
      g.set(i, sums[0]);
    }
  }
}

GradValue same_grad_of(Grad& g, std::size_t i) { return g.dy(i); }

/// True unless the reduction is "add", the only one with a gradient, as in PopXL.
bool is_not_sum(const Op& op) { return op.get(kReduction) != CollectiveOp::kAdd; }

OpDef between_replicas(std::string_view name, InputGradFn grad) {
  return {.name = name,
          .inputs = {{"t", kNumbers}},
          .attrs = {optional(kReduction, CollectiveOp::kAdd), optional(kGroup)},
          .infer = infer_between_replicas,
          .grad = per_input({grad})};
}

OpDef of_tensors(std::string_view name, InferFn infer, EvalFn eval, GradAspect grad, Rounding rounding) {
  const DTypeSet dtypes = infer == infer_paired_tensors ? kNumbers : kNumbersAndBool;
  if (infer == infer_reduce_tensors) grad.refuses = is_not_sum;
  return {.name = name,
          .inputs = {{.name = "ts", .dtypes = dtypes, .variadic = true}},
          .attrs = {optional(kIpus), optional(kReduction, CollectiveOp::kAdd)},
          .infer = infer,
          .kernel = {.eval = eval},
          .grad = std::move(grad),
          .numerics = {.rounding = rounding},
          .program = {.input_place = place_of_tensor, .output_place = place_of_tensor}};
}

}  // namespace

std::vector<OpDef> collective_pairs_ops() {
  OpDef identity = between_replicas("replicated_all_reduce_identical_inputs", all_reduced_grad);
  identity.grad.of_whole = [](Grad& g) { return g.dy(); };
  identity.kernel = {.eval = same};
  OpDef reduction = between_replicas("replicated_all_reduce_identical_grad_inputs", same_grad);
  reduction.kernel = {.collective = all_reduce, .fusion = all_reduce_fusion};
  reduction.replicas = all_members(Collective::kReduce, {}, all_reduce_chain);
  reduction.numerics = kRoundsOnce;
  return {
      std::move(identity),
      std::move(reduction),
      {.name = "replicated_identical_grad",
       .inputs = {{"t"}},
       .attrs = {optional(kGroup)},
       .infer = same_as_input,
       .kernel = {.eval = same},
       .grad = {.missing = NoGrad::kThrows},
       .replicas = {.expects_whole_gradient = true},
       .memory = {.same_bytes = true},
       .program = {.internal = true}},
      of_tensors("all_reduce", infer_reduce_tensors, reduce_tensors_kernel, {.rule = summed_grads},
                 Rounding::kOnce),
      of_tensors("all_reduce_identical_inputs", infer_paired_tensors, same_tensors, {.rule = summed_grads},
                 Rounding::kNone),
      of_tensors("all_reduce_identical_grad_inputs", infer_paired_tensors, reduce_tensors_kernel,
                 {.each = same_grad_of}, Rounding::kOnce),
  };
}

}  // namespace popsr
