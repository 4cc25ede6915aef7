// The host's side of a run: streams, prints and reports.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "popsr/ir/ir.h"

namespace popsr {

struct InvalidLabel;

/// Replicas that run an op: all, or inside a conditional the ones that take its branch.
class ActiveReplicas {
 public:
  ActiveReplicas() = default;
  /// Constructs the set from `mask`, which is nonzero for each replica that takes part.
  explicit ActiveReplicas(const std::uint8_t* mask) : mask_(mask) {}

  bool all() const { return mask_ == nullptr; }
  bool operator()(Replica replica) const { return all() || mask_[replica] != 0; }

 private:
  const std::uint8_t* mask_ = nullptr;
};

/// Values that one print op shows; the host formats and prints them.
struct PrintRequest {
  const Op& op;
  TensorType type;
  std::vector<const std::byte*> values;  ///< Distinct values, each once.
  /// Replicas, ascending, each with the index of its value in `values`.
  std::vector<std::pair<Replica, std::size_t>> shown;
};

/// Interface of the host during one run: stream memory, prints, reports.
class HostIo {
 public:
  virtual ~HostIo() = default;
  /// Next element of the stream for the replica. All replicas of one execution read before advance(), which
  /// moves the positions of the replicas that took part.
  virtual const std::byte* input(StreamId stream, Replica replica) = 0;
  virtual std::byte* output(StreamId stream, Replica replica) = 0;
  virtual void advance(StreamId stream, ActiveReplicas replicas) = 0;
  virtual void print(const PrintRequest& request) = 0;
  /// Reports that an op was given a label out of range; throws if that is an error.
  virtual void report_invalid_label(const Op& op, const InvalidLabel& label) = 0;
};

}  // namespace popsr
