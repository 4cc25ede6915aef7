// Copies from one place of a replica to another: here they change the device placement alone.
#include "popsr/exec/block_kernel.h"
#include "popsr/ops/infer.h"
#include "popsr/ops/loops/blocks.h"
#include "popsr/ops/loops/tiles.h"
#include "popsr/ops/registry.h"

namespace popsr {
namespace {

constexpr Attr<std::int64_t> kDestination{"destination"};
constexpr Attr<std::int64_t> kSource{"source"};

std::vector<OutputDef> infer_ipu_copy(const InferContext& context) {
  check_ipu(context, kDestination.name, context.get(kDestination));
  if (const auto source = context.find(kSource)) check_ipu(context, kSource.name, *source);
  return same_as_input(context);
}

Place at_ipu(const Op& op, std::int64_t ipu) {
  return {static_cast<std::uint32_t>(ipu), op.origin.place.tiles};
}

Place ipu_copy_input(const Op& op, std::size_t) {
  return at_ipu(op, op.find(kSource).value_or(op.origin.place.ipu));
}
Place ipu_copy_output(const Op& op, std::size_t) { return at_ipu(op, op.get(kDestination)); }

/// The op is where it copies to.
Place other_tiles(const Op& op, std::size_t) {
  return {op.origin.place.ipu, op.origin.place.tiles == TileSet::kIo ? TileSet::kCompute : TileSet::kIo};
}

BlockKernel eval_copy(const EvalSpec& spec) { return copy_kernel(spec); }

}  // namespace

/// Gradients do not cross them, as in PopXL.
std::vector<OpDef> place_copies_ops() {
  return {
      {.name = "ipu_copy",
       .inputs = {{"t"}},
       .attrs = {required(kDestination), optional(kSource)},
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
