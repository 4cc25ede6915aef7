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

template <typename T>
T value_of(std::uint64_t bits) {
  T value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

/// An element as a number, and its bits: numbers that print alike may differ, as NaNs do.
std::string element_text(std::uint64_t bits, DType dtype) {
  switch (dtype) {
    case DType::kBool:
      return bits == 0 ? "False" : "True";
    case DType::kInt8:
      return fmt::format("{}", value_of<std::int8_t>(bits));
    case DType::kInt16:
      return fmt::format("{}", value_of<std::int16_t>(bits));
    case DType::kInt32:
      return fmt::format("{}", value_of<std::int32_t>(bits));
    case DType::kInt64:
      return fmt::format("{}", value_of<std::int64_t>(bits));
    case DType::kUInt8:
    case DType::kUInt16:
    case DType::kUInt32:
    case DType::kUInt64:
      return fmt::format("{}", bits);
    case DType::kFloat32:
      return fmt::format("{} (bits {:#x})", value_of<float>(bits), bits);
    case DType::kFloat64:
      return fmt::format("{} (bits {:#x})", value_of<double>(bits), bits);
    case DType::kBFloat16:
      return fmt::format("{} (bits {:#x})", value_of<float>(bits << 16), bits);
    case DType::kFloat16:
      if ((bits & 0x7c00U) == 0x7c00U) break;  // infinite or NaN
      // Exponents of float32 are biased by 127 instead of 15.
      return fmt::format("{} (bits {:#x})",
                         value_of<float>((bits & 0x8000U) << 16 | (bits & 0x7fffU) << 13) * 0x1p112F, bits);
    case DType::kFloat8_143:
    case DType::kFloat8_152:
      break;
  }
  return fmt::format("bits {:#x}", bits);
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
    if (tensor.kind == TensorKind::kVariable) add(tensor.grouping->partition(table));
    if (tensor.kind == TensorKind::kShard) add(declared_fact(ir, id));
  }
  for (OpId id = 0; id < ir.num_ops(); ++id) {
    const Op& op = ir.op(id);
    if (op.def->replicas.collective == Collective::kNone) continue;
    if (const auto groups = exchange_groups(ir, op)) add(groups->partition(table));
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
