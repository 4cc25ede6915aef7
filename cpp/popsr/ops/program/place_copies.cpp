// Copies from one place of a replica to another: here they move nothing but what place_of says.
#include "popsr/ops/infer.h"
#include "popsr/ops/loops/tiles.h"
#include "popsr/ops/registry.h"

namespace popsr {
namespace {

std::vector<OutputDef> infer_ipu_copy(const InferContext& context) {
  check_ipu(context, "destination", context.op.attr<std::int64_t>("destination"));
  if (const auto source = context.op.optional_attr<std::int64_t>("source"))
    check_ipu(context, "source", *source);
  return same_as_input(context);
}

Place at_ipu(const Op& op, std::string_view attr) {
  const auto ipu = op.optional_attr<std::int64_t>(attr).value_or(op.place.ipu);
  return {static_cast<std::uint32_t>(ipu), op.place.tiles};
}

Place ipu_copy_input(const Op& op, std::size_t) { return at_ipu(op, "source"); }
Place ipu_copy_output(const Op& op, std::size_t) { return at_ipu(op, "destination"); }

/// The op is where it copies to.
Place other_tiles(const Op& op, std::size_t) {
  return {op.place.ipu, op.place.tiles == TileSet::kIo ? TileSet::kCompute : TileSet::kIo};
}

BlockKernel eval_copy(const EvalSpec& spec) { return copy_kernel(spec); }

}  // namespace

/// Gradients do not cross them, as in PopXL.
std::vector<OpDef> place_copy_ops() {
  return {
      {.name = "ipu_copy",
       .inputs = {{"t"}},
       .attrs = {required("destination", AttrType::kInt), optional("source", AttrType::kInt)},
       .infer = infer_ipu_copy,
       .kernel = {.eval = eval_copy},
       .memory = {.same_bytes = true},
       .program = {.input_place = ipu_copy_input, .output_place = ipu_copy_output}},
      {.name = "io_tile_copy",
       .inputs = {{"t"}},
       .infer = same_as_input,
       .kernel = {.eval = eval_copy},
       .memory = {.same_bytes = true},
       .program = {.input_place = other_tiles}},
  };
}

}  // namespace popsr
