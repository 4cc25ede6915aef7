// Copies of variables between rows on the host and blocks on the device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "popsr/ir/ir.h"
#include "popsr/runtime/plan/plan.h"
#include "popsr/runtime/ranks/rank_link.h"

namespace popsr {

/// Layout of the host's rows of one variable.
enum class HostRows : std::uint8_t {
  kGroups,    ///< Rows [num_groups, *shape]: the value of the first replica of each group.
  kReplicas,  ///< Rows [replication, *shape]: one value per replica.
};

/// Two replicas of one group that hold different values.
struct Divergence {
  Replica first = 0, second = 0;
  std::int64_t element = 0;  ///< C-order index, in the variable, of the first element that differs.
};

std::size_t host_bytes(const Ir& ir, TensorId variable, HostRows rows);
/// Copies the rows of a variable to `out`. `link`: connection to the other ranks, all of which read at
/// once; null without them.
void read_rows(const Ir& ir, const Plan& plan, TensorId variable, HostRows rows, std::byte* out,
               RankLink* link);
/// Consecutive bytes of the rows that read_rows(kGroups) copies.
struct RowPiece {
  std::int64_t rank = 0;            ///< Lowest rank that holds the bytes.
  const std::byte* data = nullptr;  ///< Address of the bytes; null on other ranks.
  std::size_t bytes = 0;
};
/// Returns the rows in order as pieces, without a copy: valid until the program runs or the variable is
/// written.
std::vector<RowPiece> row_pieces(const Ir& ir, const Plan& plan, TensorId variable);
/// A copy from a row of the host to a block of the device.
struct RowCopy {
  std::byte* block = nullptr;
  const std::byte* row = nullptr;
  std::size_t bytes = 0;
  std::size_t padding = 0;  ///< Number of zero bytes to write behind the row.
};

/// Appends the copies that set a variable: replicas that share a stored copy are written once, from the row
/// of the first of them. Appends none if the variable still has the program's initial values.
void add_copies(const Ir& ir, const Plan& plan, TensorId variable, HostRows rows, const std::byte* data,
                std::vector<RowCopy>& copies);
/// Runs the copies; uses neither the program nor its partitions.
void run_copies(std::span<const RowCopy> copies);
/// True if copying these rows would change no bit on this rank.
bool has_rows_stored(const Ir& ir, const Plan& plan, TensorId variable, HostRows rows, const std::byte* data);
/// Copies the values of all variables, shards and remote entries from one plan of the program to another.
void move_variables(const Plan& from, Plan& to);
/// Compares the stored copies of each group; costs nothing if every group shares one copy. `link` is as in
/// read_rows().
std::optional<Divergence> find_divergence(const Ir& ir, const Plan& plan, TensorId variable, RankLink* link);

}  // namespace popsr
