// Loads from and stores to remote buffers. Their entries follow an op's own operands (ir/remote_access.h).
#include <cstring>

#include "popsr/base/error.h"
#include "popsr/exec/block_kernel.h"
#include "popsr/ops/infer.h"
#include "popsr/ops/loops/blocks.h"
#include "popsr/ops/registry.h"
#include "popsr/ops/replicas/merged.h"

namespace popsr {
namespace {

const RemoteBuffer& buffer_of(const Ir& ir, const Op& op) { return ir.remote(op.get(kRemoteBuffer)); }

[[noreturn]] void raise_out_of_range(std::string_view op, std::int64_t offset, const RemoteBuffer& buffer) {
  raise<OutOfRangeError>("{}: offset is outside the buffer, got {}, expected 0 to {} of remote buffer {}", op,
                         offset, buffer.entries.size() - 1, buffer.id.value + 1);
}

/// Checks the offset as far as it is known, and that `t`, if there is one, has the type of an entry.
const RemoteBuffer& checked_buffer(const InferContext& context, std::size_t offset, bool has_tensor) {
  const RemoteBuffer& buffer = buffer_of(context.ir, context.op);
  if (context.has(offset) && num_elements(context.type(offset).shape) != 1) {
    raise<ShapeError>("{}: offset is not one number, got {}, expected one element", context.name(),
                      describe(context, offset));
  }
  const std::optional<std::int64_t> known = known_offset(context.ir, context.op);
  if (!known && !context.has(offset)) raise<AttributeValueError>("{}: offset is missing", context.name());
  if (known && (*known < 0 || *known >= static_cast<std::int64_t>(buffer.entries.size())))
    raise_out_of_range(context.name(), *known, buffer);
  if (has_tensor && context.type(0) != buffer.type) {
    raise<ShapeError>("Tensor {} does not match buffer. {}: got {}, expected {} of remote buffer {}",
                      context.tensor(0).name, context.name(), to_string(context.type(0)),
                      to_string(buffer.type), buffer.id.value + 1);
  }
  const Shape meta = has_tensor ? context.tensor(0).meta_shape : Shape{};
  if (!meta.empty() && !buffer.meta_shape.empty() && meta != buffer.meta_shape) {
    raise<ShapeError>("Tensor {} does not match buffer. {}: got a shard of {}, expected one of {}",
                      context.tensor(0).name, context.name(), to_string(meta), to_string(buffer.meta_shape));
  }
  return buffer;
}

/// Calls visit(block, entry) for each block of a run, after all offsets were found to be in range.
template <class Visit>
void for_each_entry(const EvalSpec& spec, std::size_t input, const BlockRun& run, const Visit& visit) {
  const RemoteBuffer& buffer = buffer_of(spec.ir, spec.op);
  const bool known = known_offset(spec.ir, spec.op).has_value();
  const auto entry = [&](const Block& block) {
    if (known) return std::int64_t{0};  // the only entry among the operands
    return read_integer(block.in(input), spec.inputs[input]->dtype);
  };
  for_each_block(run, [&](const Block& block) {
    if (known || static_cast<std::uint64_t>(entry(block)) < buffer.entries.size()) return;
    raise_out_of_range(spec.op.def->name, entry(block), buffer);
  });
  for_each_block(run, [&](const Block& block) { visit(block, static_cast<std::size_t>(entry(block))); });
}

// remote_load

std::vector<OutputDef> infer_load(const InferContext& context) {
  const RemoteBuffer& buffer = checked_buffer(context, 0, false);
  return {{buffer.type, buffer.meta_shape}};
}

std::vector<OutputDef> infer_load_inplace(const InferContext& context) {
  const RemoteBuffer& buffer = checked_buffer(context, 1, true);
  return {{buffer.type, buffer.meta_shape}};
}

/// `input`: where the offset is; entries follow it.
BlockKernel load_kernel(const EvalSpec& spec, std::size_t input) {
  return [spec, input, bytes = bytes_of(spec.outputs[0])](const BlockRun& run) {
    for_each_entry(spec, input, run, [&](const Block& block, std::size_t entry) {
      const std::size_t at = input + 1 + entry;
      if (bytes > 0) std::memcpy(block.out(), block.in(at), bytes);
    });
  };
}

BlockKernel load(const EvalSpec& spec) { return load_kernel(spec, 0); }
BlockKernel load_inplace(const EvalSpec& spec) { return load_kernel(spec, 1); }

// remote_store

std::vector<OutputDef> infer_store(const InferContext& context) {
  checked_buffer(context, 1, true);
  return {};
}

/// The only entry is overwritten; of several, each may keep its value or take the stored one.
PartitionId store_partition(const RuleContext& context, std::size_t output) {
  const PartitionId stored = context.table.meet(context.inputs[0], context.exec);
  if (known_offset(context.ir, context.op)) return stored;
  const PartitionId kept = context.inputs[2 + output];
  return context.table.meet(context.table.meet(stored, context.inputs[1]), kept);
}

BlockKernel store(const EvalSpec& spec) {
  return [spec, bytes = bytes_of(*spec.inputs[0])](const BlockRun& run) {
    for_each_entry(spec, 1, run, [&](const Block& block, std::size_t entry) {
      if (bytes > 0) std::memcpy(block.out(entry), block.in(0), bytes);
    });
  };
}

std::vector<AttrDef> remote_attrs() { return {required(kRemoteBuffer), internal(kEntry)}; }

InputDef offset_input() { return {.name = "offset", .dtypes = kIntegers, .optional = true}; }

}  // namespace

std::vector<OpDef> remote_ops() {
  return {
      {.name = "remote_load",
       .inputs = {offset_input()},
       .attrs = remote_attrs(),
       .infer = infer_load,
       .kernel = {.eval = load},
       .program = {.remote = Remote::kLoads, .merged = kMultiExchange}},
      {.name = "remote_load_",
       .inputs = {{.name = "t", .influences = false}, offset_input()},
       .attrs = remote_attrs(),
       .infer = infer_load_inplace,
       .kernel = {.eval = load_inplace},
       .memory = {.effects = {{.input = 0, .output = 0}}},
       .program = {.remote = Remote::kLoads, .merged = kMultiExchange}},
      {.name = "remote_store",
       .inputs = {{"t"}, offset_input()},
       .attrs = remote_attrs(),
       .infer = infer_store,
       .kernel = {.eval = store},
       .replicas =
           {.partition = store_partition,
            .rule_text =
                "the entry: what is stored; at an offset that is a tensor also that and the old value"},
       .program = {.remote = Remote::kStores, .merged = kMultiExchange, .observable = true}},
  };
}

}  // namespace popsr
