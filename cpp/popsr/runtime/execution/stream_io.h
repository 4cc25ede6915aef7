// Streams during one run: positions in the host's memory, of each replica, since a replica may skip a branch
// that loads or stores.
#pragma once

#include <algorithm>
#include <functional>
#include <span>

#include "popsr/exec/host_io.h"

namespace popsr {

/// Memory of one stream during a run: element t of replica r at data + (t * rows + r) * nbytes, where rows is
/// 1 for broadcast streams, else the replication factor. `transfers` = number of t that data holds.
struct StreamBuffer {
  std::byte* data = nullptr;
  std::int64_t transfers = 0;
};

class StreamIo final : public HostIo {
 public:
  /// `positions`: room for one number per stream and replica.
  StreamIo(const Ir& ir, std::span<const StreamBuffer> buffers,
           const std::function<void(const PrintRequest&)>& print,
           const std::function<void(const Op&, const StrayLabel&)>& stray, std::span<std::int64_t> positions)
      : ir_(ir), buffers_(buffers), print_(print), stray_(stray), positions_(positions) {
    std::ranges::fill(positions_, 0);
  }

  const std::byte* input(StreamId stream, Replica replica) override { return at(stream, replica); }
  std::byte* output(StreamId stream, Replica replica) override { return at(stream, replica); }
  void advance(StreamId stream, ActiveReplicas replicas) override {
    for (Replica r = 0; r < static_cast<Replica>(ir_.replication()); ++r) {
      if (!replicas(r)) continue;
      std::int64_t& position = positions_[index(stream, r)];
      if (++position == buffers_[stream.index()].transfers) position = 0;
    }
  }
  void print(const PrintRequest& request) override {
    if (print_) print_(request);
  }
  void stray(const Op& op, const StrayLabel& label) override { stray_(op, label); }

 private:
  std::size_t index(StreamId stream, Replica replica) const {
    return stream.index() * static_cast<std::size_t>(ir_.replication()) + replica;
  }

  std::byte* at(StreamId id, Replica replica) const {
    const Stream& stream = ir_.stream(id);
    const auto rows = static_cast<std::size_t>(num_rows(stream, ir_.replication()));
    const std::size_t row =
        static_cast<std::size_t>(positions_[index(id, replica)]) * rows + row_of(stream, replica);
    return buffers_[id.index()].data + row * bytes_of(stream.type);
  }

  const Ir& ir_;
  std::span<const StreamBuffer> buffers_;
  const std::function<void(const PrintRequest&)>& print_;
  const std::function<void(const Op&, const StrayLabel&)>& stray_;
  std::span<std::int64_t> positions_;
};

}  // namespace popsr
