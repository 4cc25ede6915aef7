#include "popsr/runtime/check/finite_check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_map>

#include "popsr/analysis/explain/explanation.h"
#include "popsr/base/error.h"
#include "popsr/base/layout/shape.h"
#include "popsr/exec/host_io.h"
#include "popsr/ir/op_def.h"
#include "popsr/runtime/check/call_path.h"
#include "popsr/runtime/check/element_bits.h"
#include "popsr/runtime/plan/plan.h"
#include "popsr/runtime/ranks/block_exchange.h"

namespace popsr {
namespace {

template <class Word>
Word word_at(const std::byte* data, std::int64_t i) {
  Word word;
  std::memcpy(&word, data + i * static_cast<std::int64_t>(sizeof(Word)), sizeof(Word));
  return word;
}

/// The first element whose code is above the greatest finite one, as signed words, which SSE2 compares.
template <class Word>
std::optional<std::int64_t> first_above(const std::byte* data, std::int64_t n,
                                        const FloatFormatInfo& format) {
  constexpr std::int64_t kChunk = 4096;
  const auto code_bits = static_cast<Word>(format.sign_bit - 1);
  const auto greatest = static_cast<Word>(format.max_code);
  const auto above = [&](std::int64_t i) { return (word_at<Word>(data, i) & code_bits) > greatest; };
  for (std::int64_t begin = 0; begin < n; begin += kChunk) {
    const std::int64_t end = std::min(n, begin + kChunk);
    Word found = 0;
    for (std::int64_t i = begin; i < end; ++i) found = static_cast<Word>(found | (above(i) ? 1 : 0));
    for (std::int64_t i = begin; found != 0 && i < end; ++i) {
      if (above(i)) return i;
    }
  }
  return std::nullopt;
}

/// "inf", "-inf" or "nan", of an element that is not finite.
std::string_view value_text(const std::byte* element, DType dtype) {
  const std::size_t size = size_of(dtype);
  const std::uint64_t bits = bits_of(element, size);
  if (is_nan(bits, dtype)) return "nan";
  return (bits >> (8 * size - 1)) != 0 ? "-inf" : "inf";
}

/// "replica 3", "replicas 0, 1, 2"; the first of many.
std::string replicas_text(PartitionTable& table, PartitionId partition, Replica one) {
  constexpr std::size_t kShown = 8;
  const auto labels = table.labels(partition);
  std::vector<Replica> all;
  for (Replica r = 0; r < static_cast<Replica>(table.replicas()); ++r) {
    if (labels[r] == labels[one]) all.push_back(r);
  }
  if (all.size() == 1) return fmt::format("replica {}", one);
  const std::size_t shown = std::min(all.size(), kShown);
  const std::string first = fmt::format("{}", fmt::join(all.begin(), all.begin() + shown, ", "));
  return fmt::format("replicas {}{}", first, shown < all.size() ? ", ..." : "");
}

/// "3", "[1, 3]"
std::string element_text(const Shape& shape, std::int64_t element) {
  Shape index(shape.size());
  for (std::size_t d = shape.size(); d-- > 0;) {
    index[d] = element % shape[d];
    element /= shape[d];
  }
  return index.size() == 1 ? fmt::format("{}", index[0]) : to_string(index);
}

/// Data of its own comes from the host.
bool loads_from_host(const Ir& ir, const Op& op) {
  return std::ranges::any_of(op.attrs, [&](const Attribute& value) {
    const auto* stream = std::get_if<StreamId>(&value);
    return stream != nullptr && ir.stream(*stream).to_device;
  });
}

bool makes_values(const Ir& ir, const LoweredOp& op) {
  if (!op.is_single() || op.op->def->memory.view != nullptr) return false;
  const bool undefined = op.op->def->memory.undefined != nullptr && op.op->def->memory.undefined(*op.op);
  return !undefined && !loads_from_host(ir, *op.op);
}

}  // namespace

std::optional<std::int64_t> first_not_finite(const std::byte* data, DType dtype, std::int64_t n) {
  if (const auto nan = only_nan(dtype)) {
    const auto* const end = data + n;
    const auto* const found = std::find(data, end, std::byte{*nan});
    return found == end ? std::nullopt : std::optional<std::int64_t>(found - data);
  }
  if (!is_float(dtype)) return std::nullopt;
  const FloatFormatInfo& format = info(format_of(dtype));
  switch (format.size) {
    case 1:
      return first_above<std::int8_t>(data, n, format);
    case 2:
      return first_above<std::int16_t>(data, n, format);
    case 4:
      return first_above<std::int32_t>(data, n, format);
    default:
      return first_above<std::int64_t>(data, n, format);
  }
}

void FiniteCheck::add(const Ir& ir, const Plan& plan, const LoweredOp& op, BufferId id,
                      std::vector<Operand>& to) {
  if (id == kNone) return;
  const TensorType& type = plan.program().buffers[id].type;
  if (!has_nan(type.dtype)) return;
  Operand operand{id, type.dtype, num_elements(type.shape)};
  const Placement& placement = plan.memory().placements[id];
  for (const std::uint32_t label :
       halo_of(ir, plan.blocks(), op, plan.program().buffers[id].storage).labels) {
    operand.blocks.push_back(label == kAbsentBlock ? nullptr : placement.base + label * placement.nbytes);
  }
  to.push_back(std::move(operand));
}

std::unique_ptr<FiniteCheck> FiniteCheck::of(const Ir& ir, const Plan& plan, const LoweredOp& op) {
  if (!makes_values(ir, op)) return nullptr;
  PartitionTable& table = ir.partitions();
  std::unique_ptr<FiniteCheck> check(new FiniteCheck);
  for (const BufferId id : op.out) add(ir, plan, op, id, check->outputs_);
  if (check->outputs_.empty()) return nullptr;
  for (std::size_t i = 0; i < op.in.size(); ++i) {
    if (op.op->def->influences(i)) add(ir, plan, op, op.in[i], check->inputs_);
  }
  check->computed_ = op.exec.value_or(table.top());
  for (const PartitionId fact : op.facts) check->computed_ = table.meet(check->computed_, fact);
  check->groups_ = collective_groups(ir, *op.op);
  for (const Replica replica : plan.blocks().representatives(check->computed_))
    check->units_.push_back({replica});
  return check;
}

void FiniteCheck::read_operands(ActiveReplicas active) {
  std::unordered_map<const std::byte*, bool> known;
  const auto is_finite = [&](const Operand& operand, Replica replica) {
    const auto [it, fresh] = known.try_emplace(operand.blocks[replica], true);
    if (fresh) it->second = !first_not_finite(it->first, operand.dtype, operand.elements);
    return it->second;
  };
  const auto all_finite = [&](std::span<const Replica> replicas) {
    return std::ranges::all_of(replicas, [&](Replica replica) {
      return std::ranges::all_of(inputs_, [&](const Operand& input) { return is_finite(input, replica); });
    });
  };
  std::unordered_map<Replica, bool> groups;  // by their smallest replica
  for (Unit& unit : units_) {
    if (!active(unit.replica)) continue;
    const std::span<const Replica> alone(&unit.replica, 1);
    const std::span<const Replica> sources = groups_ ? groups_->members(unit.replica) : alone;
    const auto [it, fresh] = groups.try_emplace(sources.front(), false);
    if (fresh) it->second = all_finite(sources);
    unit.exempt = !it->second;
  }
}

std::optional<FiniteCheck::Found> FiniteCheck::find(ActiveReplicas active) const {
  for (const Unit& unit : units_) {
    if (unit.exempt || !active(unit.replica)) continue;
    for (std::size_t k = 0; k < outputs_.size(); ++k) {
      const Operand& output = outputs_[k];
      const auto element = first_not_finite(output.blocks[unit.replica], output.dtype, output.elements);
      if (element) return Found{unit.replica, k, *element};
    }
  }
  return std::nullopt;
}

void check_finite(const PartitionAnalysis& facts, const Plan& plan, const Instruction& instruction,
                  const IdVector<PathId, std::uint64_t>& iterations, ActiveReplicas active) {
  const FiniteCheck& check = *instruction.checks.finite;
  const std::optional<FiniteCheck::Found> found = check.find(active);
  if (!found) return;
  const Ir& ir = facts.ir();
  const Buffer& buffer = plan.program().buffers[check.output(found->output)];
  const std::byte* const block = plan.block(check.output(found->output), found->replica);
  const auto at = found->element * static_cast<std::int64_t>(size_of(buffer.type.dtype));
  Dataflow flow(facts);
  raise<FloatingPointError>(
      "{}: result is not finite, got {} at element {} of '{}' {} on {} at {}{}, expected finite numbers of "
      "finite operands",
      instruction.op->def->name, value_text(block + at, buffer.type.dtype),
      element_text(buffer.type.shape, found->element), ir.tensor(buffer.tensor).name, to_string(buffer.type),
      replicas_text(ir.partitions(), check.computed(), found->replica),
      place_text(ir, instruction.op->origin.location),
      place_of(flow, plan, instruction.path, iterations).second);
}

}  // namespace popsr
