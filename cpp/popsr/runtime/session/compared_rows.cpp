#include "popsr/runtime/session/compared_rows.h"

#include <algorithm>
#include <cstring>

#include "popsr/base/digest.h"
#include "popsr/runtime/session/equal_rows.h"

namespace popsr {
namespace {

/// Copies rows begin..end-1 of `rows` in each transfer from or to memory that holds those alone.
void place_rows(const std::byte* some, std::size_t begin, std::size_t end, std::size_t rows,
                std::size_t bytes, const StreamBuffer& all) {
  const std::size_t size = (end - begin) * bytes;
  for (std::int64_t t = 0; t < all.transfers; ++t) {
    const auto transfer = static_cast<std::size_t>(t);
    std::memcpy(all.data + (transfer * rows + begin) * bytes, some + transfer * size, size);
  }
}

}  // namespace

void ComparedRows::set(std::span<const StreamBuffer> buffers) {
  rows_.assign(buffers.begin(), buffers.end());
  if (link_ != nullptr) local_ = rows_;
}

void ComparedRows::gather(std::span<const StreamId> streams) {
  if (link_ == nullptr) return;
  const RankMap ranks = link_->map(ir_.replication());
  const auto replicas = static_cast<std::size_t>(ranks.replicas);
  gathered_.resize(ir_.num_streams());
  std::vector<OutgoingBytes> outgoing;
  std::vector<IncomingBytes> incoming;
  std::vector<std::vector<std::byte>> received;
  const auto size_of_rank = [&](std::int64_t rank, StreamId id) {
    return static_cast<std::size_t>(local_[id.index()].transfers) * (ranks.end(rank) - ranks.begin(rank)) *
           bytes_of(ir_.stream(id).type);
  };
  const auto for_each_other = [&](const auto& visit) {
    for (const StreamId id : streams) {
      for (std::int64_t rank = 0; rank < ranks.ranks; ++rank) {
        if (rank != ranks.rank && bytes_of(ir_.stream(id).type) > 0) visit(id, rank);
      }
    }
  };
  for_each_other([&](StreamId id, std::int64_t rank) {
    outgoing.push_back({rank, local_[id.index()].data, size_of_rank(ranks.rank, id)});
    std::vector<std::byte>& room = received.emplace_back(size_of_rank(rank, id));
    incoming.push_back({rank, room.data(), room.size()});
  });
  link_->exchange(outgoing, incoming);
  for (const StreamId id : streams) {
    const StreamBuffer& own = local_[id.index()];
    const std::size_t bytes = bytes_of(ir_.stream(id).type);
    gathered_[id].resize(static_cast<std::size_t>(own.transfers) * replicas * bytes);
    rows_[id.index()] = {gathered_[id].data(), own.transfers};
    if (bytes > 0) place_rows(own.data, ranks.begin(), ranks.end(), replicas, bytes, rows_[id.index()]);
  }
  auto next = received.begin();
  for_each_other([&](StreamId id, std::int64_t rank) {
    place_rows((next++)->data(), ranks.begin(rank), ranks.end(rank), replicas, bytes_of(ir_.stream(id).type),
               rows_[id.index()]);
  });
}

bool ComparedRows::are_equal(StreamId stream) const {
  const std::size_t bytes = bytes_of(ir_.stream(stream).type);
  const StreamBuffer& own = link_ == nullptr ? rows_[stream.index()] : local_[stream.index()];
  const RankMap ranks = link_ == nullptr ? RankMap{ir_.replication()} : link_->map(ir_.replication());
  const std::size_t rows = ranks.end() - ranks.begin();
  Digest digest;
  std::uint64_t is_equal = 1;
  for (std::int64_t t = 0; t < own.transfers; ++t) {
    const std::byte* const first = own.data + static_cast<std::size_t>(t) * rows * bytes;
    for (std::size_t row = 1; row < rows && is_equal == 1; ++row) {
      is_equal = same_bytes(first, first + row * bytes, bytes) ? 1 : 0;
    }
    if (link_ != nullptr) digest.add(std::span(first, bytes));
  }
  if (link_ == nullptr) return is_equal == 1;
  const std::array<std::uint64_t, 3> mine = {is_equal, digest.value()[0], digest.value()[1]};
  std::vector<std::array<std::uint64_t, 3>> all(static_cast<std::size_t>(ranks.ranks));
  link_->transport().gather(std::as_bytes(std::span(mine)), reinterpret_cast<std::byte*>(all.data()));
  return std::ranges::all_of(all, [&](const auto& each) { return each[0] == 1 && each == all.front(); });
}

}  // namespace popsr
