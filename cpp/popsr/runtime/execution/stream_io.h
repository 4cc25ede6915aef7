// Streams during one run: positions in the host's memory, per replica, since a replica may skip a branch
// that loads or stores.
#pragma once

#include <algorithm>
#include <functional>
#include <span>

#include "popsr/exec/host_io.h"
#include "popsr/runtime/execution/stream_rows.h"

namespace popsr {

/// Memory of one stream during a run: element t of row r is at data + (t * rows + r) * nbytes, for the rows
/// of StreamRows. `transfers` is the number of elements t.
struct StreamBuffer {
  std::byte* data = nullptr;
  std::int64_t transfers = 0;
};

class StreamIo final : public HostIo {
 public:
  /// Makes the io of one run. `rows`: by stream. `positions`: memory for one number per stream and replica.
  StreamIo(const Ir& ir, const IdVector<StreamId, StreamRows>& rows, std::span<const StreamBuffer> buffers,
           const std::function<void(const PrintRequest&)>& print,
           const std::function<void(const Op&, const InvalidLabel&)>& on_invalid_label,
           std::span<std::int64_t> positions)
      : ir_(ir),
        rows_(rows),
        buffers_(buffers),
        print_(print),
        on_invalid_label_(on_invalid_label),
        positions_(positions) {
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
  void report_invalid_label(const Op& op, const InvalidLabel& label) override {
    on_invalid_label_(op, label);
  }

 private:
  std::size_t index(StreamId stream, Replica replica) const {
    return stream.index() * static_cast<std::size_t>(ir_.replication()) + replica;
  }

  std::byte* at(StreamId id, Replica replica) const {
    const Stream& stream = ir_.stream(id);
    const auto rows = static_cast<std::size_t>(rows_[id].count());
    const std::size_t row =
        static_cast<std::size_t>(positions_[index(id, replica)]) * rows + rows_[id].of(stream, replica);
    return buffers_[id.index()].data + row * bytes_of(stream.type);
  }

  const Ir& ir_;
  const IdVector<StreamId, StreamRows>& rows_;
  std::span<const StreamBuffer> buffers_;
  const std::function<void(const PrintRequest&)>& print_;
  const std::function<void(const Op&, const InvalidLabel&)>& on_invalid_label_;
  std::span<std::int64_t> positions_;
};

}  // namespace popsr
