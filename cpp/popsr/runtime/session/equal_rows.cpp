#include "popsr/runtime/session/equal_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "popsr/analysis/partition_analysis.h"
#include "popsr/ir/op_def.h"
#include "popsr/runtime/check/claims.h"
#include "popsr/runtime/check/element_bits.h"

namespace popsr {
namespace {

const std::byte* row(const Ir& ir, StreamId id, const StreamBuffer& buffer, std::int64_t transfer,
                     Replica r) {
  const auto rows = static_cast<std::size_t>(ir.replication());
  return buffer.data + (static_cast<std::size_t>(transfer) * rows + r) * bytes_of(ir.stream(id).type);
}

/// An element as a number, and the bits of a float: numbers that print alike may differ, as NaNs do.
std::string element_text(std::uint64_t bits, DType dtype) {
  const auto unused = 64 - 8 * static_cast<int>(size_of(dtype));
  switch (info(dtype).kind) {
    case DTypeKind::kBool:
      return bits == 0 ? "False" : "True";
    case DTypeKind::kInt:
      return fmt::format("{}", static_cast<std::int64_t>(bits << unused) >> unused);
    case DTypeKind::kUInt:
      return fmt::format("{}", bits);
    case DTypeKind::kCarrier:
      return fmt::format("bits {:#x}", bits);
    case DTypeKind::kFloat:
      break;
  }
  const double number = number_of(format_of(dtype), bits);
  if (dtype == DType::kFloat64) return fmt::format("{} (bits {:#x})", number, bits);
  return fmt::format("{} (bits {:#x})", static_cast<float>(number), bits);
}

}  // namespace

RowGroups::RowGroups(const Ir& ir) : ir_(ir), groups_{ir.partitions().top()} {
  PartitionTable& table = ir.partitions();
  const auto add = [&](PartitionId groups) {
    if (groups != table.bottom() && std::ranges::find(groups_, groups) == groups_.end()) {
      groups_.push_back(groups);
    }
  };
  for (const TensorId id : ir.graph(kMainGraph).tensors) {
    const Tensor& tensor = ir.tensor(id);
    if (tensor.kind == TensorKind::kVariable) add(tensor.state.grouping->partition(table));
    if (tensor.kind == TensorKind::kShard) add(declared_fact(ir, id));
  }
  for (const OpId id : ids<OpId>(ir.num_ops())) {
    const Op& op = ir.op(id);
    if (op.def->replicas.collective == Collective::kNone) continue;
    if (const auto groups = collective_groups(ir, op)) add(groups->partition(table));
  }
}

bool same_rows(const Ir& ir, StreamId stream, const StreamBuffer& buffer, Replica r, Replica s) {
  const std::size_t bytes = bytes_of(ir.stream(stream).type);
  for (std::int64_t t = 0; t < buffer.transfers; ++t) {
    if (!same_bytes(row(ir, stream, buffer, t, r), row(ir, stream, buffer, t, s), bytes)) return false;
  }
  return true;
}

std::optional<RowDifference> find_difference(const Ir& ir, StreamId stream, const StreamBuffer& buffer,
                                             PartitionId blocks) {
  const std::span<const std::uint32_t> labels = ir.partitions().labels(blocks);
  for (std::int64_t t = 0; t < buffer.transfers; ++t) {
    for (Replica s = 0; s < labels.size(); ++s) {
      const Replica r = ir.partitions().representatives(blocks)[labels[s]];
      if (r == s) continue;
      const auto element = first_difference(row(ir, stream, buffer, t, r), row(ir, stream, buffer, t, s),
                                            ir.stream(stream).type);
      if (element) return RowDifference{stream, r, s, t, *element};
    }
  }
  return std::nullopt;
}

std::string to_string(const Ir& ir, const StreamBuffer& buffer, const RowDifference& difference) {
  const auto& [stream, r, s, transfer, element] = difference;
  const DType dtype = ir.stream(stream).type.dtype;
  const auto text = [&](Replica replica) {
    const std::size_t size = size_of(dtype);
    const std::byte* const data = row(ir, stream, buffer, transfer, replica);
    return element_text(bits_of(data + static_cast<std::size_t>(element) * size, size), dtype);
  };
  return fmt::format("rows of replicas {} and {} differ at element {} of transfer {}, got {} and {}", r, s,
                     element, transfer, text(r), text(s));
}

}  // namespace popsr
