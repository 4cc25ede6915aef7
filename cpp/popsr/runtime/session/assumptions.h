// Assumptions of a session about the rows that the host feeds and writes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "popsr/analysis/partition_analysis.h"
#include "popsr/ir/ir.h"
#include "popsr/runtime/session/equal_rows.h"
#include "popsr/runtime/session/variable_io.h"

namespace popsr {

/// Elements of one transfer to one replica up to which rows that are equal as fed are taken as equal.
constexpr std::int64_t kSmallStream = 64;

/// Assumptions of a new session: small streams are fed equal rows, and variables start with their initial
/// rows, which are compared in the groups of the program.
Assumptions initial_assumptions(const Ir& ir);

/// True for a stream whose rows are compared and, where they are equal, taken as equal.
bool is_small(const Stream& stream);

/// The tensor that holds a variable's value: the variable itself, a shard or a remote entry.
TensorId holder(const Ir& ir, TensorId variable);

/// Replicas that have the same rows of a variable, when the host writes these.
PartitionId equal_rows_of(const Ir& ir, const RowGroups& groups, TensorId variable, HostRows rows,
                          const std::byte* data);

}  // namespace popsr
