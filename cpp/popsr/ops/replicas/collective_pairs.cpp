// Collectives whose gradient is declared instead of derived, and reductions of several tensors of one
// replica.
//
// They come in pairs: one is the identity and its gradient a reduction, the other the reverse. Both are right
// when what their names say is identical really is.
#include <algorithm>

#include "popsr/base/error.h"
#include "popsr/ops/infer.h"
#include "popsr/ops/loops/tiles.h"
#include "popsr/ops/registry.h"
#include "popsr/ops/replicas/kernels.h"
#include "popsr/ops/replicas/rules.h"

namespace popsr {
namespace {

void require_add(const InferContext& context) {
  check_reduction(context);
  const auto& op = context.op.attr<std::string>("op");
  if (op != "add") {
    raise<AttributeValueError>("{}: reduction has no such gradient, got '{}', expected 'add'", context.name(),
                               op);
  }
}

// --- between replicas
// --------------------------------------------------------------------------------------------

std::vector<OutputDef> infer_between_replicas(const InferContext& context) {
  checked_group_size(context);
  require_add(context);
  return same_as_input(context);
}

BlockKernel same(const EvalSpec& spec) { return copy_kernel(spec); }

void grad_by_all_reduce(GradContext& g) {
  if (!differentiates(g, 0) || g.cotangent(0) == kNone) return;
  g.set(0, g.emit("replicated_all_reduce", {g.cotangent(0)}, {{"group", g.op().attribute("group")}}));
}

void grad_by_identity(GradContext& g) {
  if (differentiates(g, 0)) g.set(0, g.cotangent(0));
}

// --- tensors of one replica
// --------------------------------------------------------------------------------------

using Ipus = std::vector<std::int64_t>;

void check_ipus(const InferContext& context) {
  const auto ipus = context.op.optional_attr<Ipus>("ipus");
  if (!ipus) return;
  if (ipus->size() != context.op.inputs.size()) {
    raise<AttributeValueError>("{}: not one of ipus for each tensor, got {}, expected {}", context.name(),
                               ipus->size(), context.op.inputs.size());
  }
  for (const std::int64_t ipu : *ipus) check_ipu(context, "one of ipus", ipu);
}

/// Tensor k and what is made of it are on IPU k of the list.
Place place_of_tensor(const Op& op, std::size_t index) {
  const auto ipus = op.optional_attr<Ipus>("ipus");
  return {ipus ? static_cast<std::uint32_t>(ipus->at(index)) : op.place.ipu, op.place.tiles};
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
void grad_tensors_by_sum(GradContext& g) {
  const auto ipus = g.op().optional_attr<Ipus>("ipus");
  std::vector<TensorId> terms;
  Ipus places;
  for (std::size_t k = 0; k < g.op().outputs.size(); ++k) {
    if (g.cotangent(k) == kNone) continue;
    terms.push_back(g.cotangent(k));
    if (ipus) places.push_back(ipus->at(k));
  }
  if (terms.empty()) return;
  const Attribute on = ipus ? Attribute(places) : Attribute();
  const std::vector<TensorId> sums =
      terms.size() == 1 ? terms : g.emit_all("all_reduce", terms, {{"ipus", on}});
  std::size_t next = 0;
  for (std::size_t i = 0; i < g.op().inputs.size(); ++i) {
    const bool has_sum = g.cotangent(i) != kNone;
    TensorId sum = has_sum ? sums[next++] : sums[0];
    if (!differentiates(g, i)) continue;
    if (!has_sum && ipus)
      sum = g.emit("ipu_copy", {sum}, {{"destination", ipus->at(i)}, {"source", places[0]}});
    g.set(i, sum);
  }
}

void grad_tensors_by_identity(GradContext& g) {
  for (std::size_t i = 0; i < g.op().inputs.size(); ++i) {
    if (differentiates(g, i)) g.set(i, g.cotangent(i));
  }
}

/// As PopXL: a gradient for "add" alone.
bool is_no_sum(const Op& op) { return op.attr<std::string>("op") != "add"; }

OpDef between_replicas(std::string_view name, GradFn grad) {
  return {.name = name,
          .inputs = {{"t", kNumbers}},
          .attrs = {optional("op", AttrType::kString, std::string("add")),
                    optional("group", AttrType::kGrouping)},
          .infer = infer_between_replicas,
          .grad = {.rule = grad}};
}

OpDef of_tensors(std::string_view name, InferFn infer, EvalFn eval, GradFn grad, Rounding rounding) {
  const DTypeSet dtypes = infer == infer_paired_tensors ? kNumbers : kNumbersAndBool;
  return {.name = name,
          .inputs = {{.name = "ts", .dtypes = dtypes, .variadic = true}},
          .attrs = {optional("ipus", AttrType::kInts), optional("op", AttrType::kString, std::string("add"))},
          .infer = infer,
          .kernel = {.eval = eval},
          .grad = {.rule = grad, .refuses = infer == infer_reduce_tensors ? is_no_sum : nullptr},
          .numerics = {.rounding = rounding},
          .program = {.input_place = place_of_tensor, .output_place = place_of_tensor}};
}

}  // namespace

std::vector<OpDef> collective_pair_ops() {
  OpDef identity = between_replicas("replicated_all_reduce_identical_inputs", grad_by_all_reduce);
  identity.kernel = {.eval = same};
  OpDef reduction = between_replicas("replicated_all_reduce_identical_grad_inputs", grad_by_identity);
  reduction.kernel = {.exchange = all_reduce, .sink = all_reduce_sink};
  reduction.replicas = all_members(Collective::kReduce);
  reduction.numerics = kRoundsOnce;
  return {
      std::move(identity),
      std::move(reduction),
      of_tensors("all_reduce", infer_reduce_tensors, fold_tensors_kernel, grad_tensors_by_sum,
                 Rounding::kOnce),
      of_tensors("all_reduce_identical_inputs", infer_paired_tensors, same_tensors, grad_tensors_by_sum,
                 Rounding::kNone),
      of_tensors("all_reduce_identical_grad_inputs", infer_paired_tensors, fold_tensors_kernel,
                 grad_tensors_by_identity, Rounding::kOnce),
  };
}

}  // namespace popsr
