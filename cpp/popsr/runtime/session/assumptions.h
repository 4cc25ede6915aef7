// Assumptions of a session about the rows that the host feeds and writes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "popsr/analysis/partition_analysis.h"
#include "popsr/ir/ir.h"
#include "popsr/runtime/session/equal_rows.h"
#include "popsr/runtime/session/variable_io.h"

namespace popsr {

/// Largest number of elements per transfer and replica for which rows that are equal as fed are taken as
/// equal.
constexpr std::int64_t kSmallStream = 64;

/// Assumptions of a new session: small streams are fed equal rows, and variables start with their initial
/// rows, which are compared within the groups of the program.
Assumptions initial_assumptions(const Ir& ir);

/// True for a stream whose rows are compared in each run and, if equal, taken as equal by the analysis.
bool is_small(const Stream& stream);

/// Tensor that holds a variable's value: the variable itself, a shard or a remote entry.
TensorId holder(const Ir& ir, TensorId variable);

/// Partition of the replicas by equal rows of a variable, after the host writes `data`.
PartitionId equal_rows_of(const Ir& ir, const RowGroups& groups, TensorId variable, HostRows rows,
                          const std::byte* data);

}  // namespace popsr
