// Rows of the host's data of a stream that one rank sends or receives: the rows of its own replicas.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "popsr/ir/stream.h"
#include "popsr/replica/rank_map.h"

namespace popsr {

class StreamRows {
 public:
  StreamRows() = default;
  StreamRows(const Stream& stream, const RankMap& ranks) : count_(num_rows(stream, ranks.replicas)) {
    if (ranks.is_alone() || stream.mode == StreamMode::kBroadcast) return;
    if (!stream.groups) {
      first_ = ranks.begin();
      count_ = ranks.end() - ranks.begin();
      return;
    }
    is_here_.resize(static_cast<std::size_t>(count_), 0);
    for (Replica r = ranks.begin(); r < ranks.end(); ++r) is_here_[row_of(stream, r)] = 1;
    count_ = 0;
    for (const std::uint8_t is_here : is_here_) {
      local_.push_back(static_cast<std::size_t>(count_));
      count_ += is_here;
    }
  }

  std::int64_t count() const { return count_; }
  /// Numbers of this rank's rows among the rows of all ranks.
  std::vector<std::size_t> rows() const {
    std::vector<std::size_t> rows;
    if (local_.empty()) {
      for (std::size_t row = first_; row < first_ + static_cast<std::size_t>(count_); ++row)
        rows.push_back(row);
    }
    for (std::size_t row = 0; row < local_.size(); ++row) {
      if (local_[row] == rows.size() && is_here_[row] != 0) rows.push_back(row);
    }
    return rows;
  }
  /// Index of a replica's row among this rank's rows.
  std::size_t of(const Stream& stream, Replica replica) const {
    const std::size_t row = row_of(stream, replica);
    return local_.empty() ? row - first_ : local_[row];
  }

 private:
  std::int64_t count_ = 0;
  std::size_t first_ = 0;
  // Per row of all ranks, for streams with groups: number of this rank's rows before it, and 1 if it is one
  // of them.
  std::vector<std::size_t> local_;
  std::vector<std::uint8_t> is_here_;
};

}  // namespace popsr
