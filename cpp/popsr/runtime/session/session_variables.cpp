// A session's variables between runs: what is known of them, reading and writing by the host.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "popsr/base/digest.h"
#include "popsr/base/error.h"
#include "popsr/ir/op_def.h"
#include "popsr/runtime/ranks/all_blocks.h"
#include "popsr/runtime/session/session.h"
#include "popsr/runtime/session/session_state.h"

namespace popsr {
namespace {

/// Items that all ranks must write alike.
std::vector<RankItem> row_items(const Ir& ir, std::span<const VariableRows> rows) {
  std::vector<RankItem> items;
  for (const auto& [id, kind, data] : rows) {
    const Digest::Value digest = Digest().add(std::span(data, host_bytes(ir, id, kind))).value();
    items.push_back({fmt::format("the data of variable '{}'", ir.tensor(id).name),
                     fmt::format("digest {:016x}{:016x}", digest[0], digest[1])});
  }
  return items;
}

}  // namespace

std::size_t Session::state_index(TensorId variable) const {
  return state_->variables.index.at(holder(*ir_, variable));
}

PartitionId Session::device_rows(TensorId state, PartitionId known) const {
  const Plan& plan = current().plan;
  const BufferId buffer = plan.variable(state);
  const std::size_t bytes = bytes_of(plan.program().buffers[buffer].type);
  const AllBlocks blocks(*ir_, plan, buffer, link_.get());
  return state_->groups.equal(
      known, [&](Replica r, Replica s) { return same_bytes(blocks.block(r), blocks.block(s), bytes); });
}

/// After a run that ended in its middle only the values on the device are known.
void Session::read_back_facts() {
  PartitionTable& table = ir_->partitions();
  state_->variables.pieces.clear();
  for (std::size_t i = 0; i < state_->variables.ids.size(); ++i) {
    state_->variables.start[i] =
        table.meet(state_->variables.home[i], device_rows(state_->variables.ids[i], table.bottom()));
  }
}

/// True if it is known that a run starts with these replicas alike, and with no others.
bool Session::is_known(std::size_t state, PartitionId equal) const {
  return state_->variables.home[state] == equal && state_->variables.start[state] == equal &&
         !state_->variables.pieces.contains(static_cast<std::uint32_t>(state));
}

/// Partition of replicas that are given equal rows, for each variable.
std::vector<PartitionId> Session::equal_rows_of_all(std::span<const VariableRows> rows) const {
  std::vector<PartitionId> equal;
  for (const auto& [id, kind, data] : rows) {
    equal.push_back(equal_rows_of(*ir_, state_->groups, id, kind, data));
  }
  return equal;
}

/// For each variable whether the device holds the rows already, as far as that is of interest.
std::vector<std::uint8_t> Session::unchanged_rows(std::span<const VariableRows> rows,
                                                  std::span<const PartitionId> equal) const {
  std::vector<std::uint8_t> unchanged;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto& [id, kind, data] = rows[i];
    const Plan& plan = current().plan;
    const bool may_stay = plan.is_shared(plan.variable(id)) || !is_known(state_index(id), equal[i]);
    const bool is_unchanged = may_stay && has_rows_stored(*ir_, plan, id, kind, data);
    unchanged.push_back(is_unchanged ? 1 : 0);
  }
  return link_ == nullptr || rows.empty() ? unchanged : link_->all_of(std::move(unchanged));
}

std::vector<RowCopy> Session::prepare_write(std::span<const VariableRows> rows) {
  PartitionTable& table = ir_->partitions();
  if (link_ != nullptr) link_->agree_or_raise(call_of("write variables", row_items(*ir_, rows)));
  if (!std::exchange(state_->variables.is_whole, true)) read_back_facts();
  const std::vector<PartitionId> equal_rows = equal_rows_of_all(rows);
  const std::vector<std::uint8_t> is_unchanged = unchanged_rows(rows, equal_rows);
  PlanKey key{current().key.rows, state_->variables.start, state_->variables.pieces};
  std::vector<PartitionId> home = state_->variables.home;
  bool fits = true;
  std::vector<TensorId> changed;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const TensorId id = rows[i].variable;
    const std::size_t at = state_index(id);
    const PartitionId equal = equal_rows[i];
    if (is_unchanged[i] != 0) continue;
    changed.push_back(id);
    home[at] = key.start[at] = equal;
    key.pieces.erase(static_cast<std::uint32_t>(at));
    const BufferId buffer = current().plan.variable(id);
    fits = fits && table.refines(current().plan.program().buffers[buffer].storage, equal);
  }
  std::vector<PartitionId> start = key.start;
  PiecesByInput pieces = key.pieces;
  if (!fits) state_->plans->switch_to(std::move(key));
  for (const TensorId id : changed) {  // may throw; the facts change after it
    const BufferId buffer = current().plan.variable(id);
    if (current().plan.is_shared(buffer)) current().plan.own(buffer);
  }
  state_->variables.home = std::move(home);
  state_->variables.start = std::move(start);
  state_->variables.pieces = std::move(pieces);
  std::vector<RowCopy> copies;
  for (const auto& [id, kind, data] : rows) add_copies(*ir_, current().plan, id, kind, data, copies);
  return copies;
}

PartitionId Session::storage(TensorId id) const {
  return plan().program().buffers[plan().variable(id)].storage;
}

std::size_t Session::host_bytes(TensorId id, HostRows rows) const {
  return popsr::host_bytes(*ir_, id, rows);
}

void Session::read_variable(TensorId id, HostRows rows, std::byte* out) const {
  agree_to_read(id);
  read_rows(*ir_, plan(), id, rows, out, link_.get());
}

void Session::agree_to_read(TensorId id) const {
  if (link_ != nullptr) link_->agree_or_raise(call_of("read variable " + ir_->tensor(id).name, {}));
}

std::vector<RowPiece> Session::row_pieces(TensorId id) const { return popsr::row_pieces(*ir_, plan(), id); }

std::optional<Divergence> Session::divergence(TensorId id) const {
  agree_to_read(id);
  return find_divergence(*ir_, plan(), id, link_.get());
}

bool Session::is_written(TensorId id) const { return current().written.contains(plan().variable(id)); }

}  // namespace popsr
