// Data of a program's streams, for sessions of tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "popsr/runtime/session/session.h"
#include "support/program.h"

namespace popsr::test {

/// The program as sessions want it; it must outlive them.
inline std::shared_ptr<const Ir> borrow(const Program& program) {
  return {std::shared_ptr<const Ir>(), &program.ir};
}

/// Streams of float data for one run: [transfers, rows, elements].
struct Streams {
  explicit Streams(const Ir& ir, std::int64_t transfers = 1)
      : data(ir.num_streams()), buffers(ir.num_streams()) {
    for (const StreamId id : ids<StreamId>(ir.num_streams())) {
      const Stream& stream = ir.stream(id);
      const std::int64_t rows = num_rows(stream, ir.replication());
      data[id].resize(static_cast<std::size_t>(transfers * rows * num_elements(stream.type.shape)));
      for (std::size_t i = 0; i < data[id].size(); ++i)
        data[id][i] = 0.37F * static_cast<float>((i * 7 + id.index() * 3) % 23) - 3;
      buffers[id] = {reinterpret_cast<std::byte*>(data[id].data()), transfers};
    }
  }
  IdVector<StreamId, std::vector<float>> data;
  IdVector<StreamId, StreamBuffer> buffers;
};

}  // namespace popsr::test
