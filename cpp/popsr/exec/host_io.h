// The host's side of a run: streams, prints and reports.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "popsr/ir/ir.h"

namespace popsr {

struct InvalidLabel;

/// The replicas that run an op: all, or inside a conditional those that take its branch.
class ActiveReplicas {
 public:
  ActiveReplicas() = default;
  /// `mask`: not 0 for each replica that takes part.
  explicit ActiveReplicas(const std::uint8_t* mask) : mask_(mask) {}

  bool all() const { return mask_ == nullptr; }
  bool operator()(Replica replica) const { return all() || mask_[replica] != 0; }

 private:
  const std::uint8_t* mask_ = nullptr;
};

/// Output of the program's prints; C++ never prints itself.
struct PrintRequest {
  const Op& op;
  TensorType type;
  std::vector<const std::byte*> values;                ///< Distinct ones.
  std::vector<std::pair<Replica, std::size_t>> shown;  ///< Ascending replicas and their indices of values.
};

/// The host's side of streams and prints during one run.
class HostIo {
 public:
  virtual ~HostIo() = default;
  /// Next element of the stream for that replica; all replicas of one execution read before advance(), which
  /// moves those on that took part.
  virtual const std::byte* input(StreamId stream, Replica replica) = 0;
  virtual std::byte* output(StreamId stream, Replica replica) = 0;
  virtual void advance(StreamId stream, ActiveReplicas replicas) = 0;
  virtual void print(const PrintRequest& request) = 0;
  /// An op was given that label; throws where it is an error.
  virtual void report_invalid_label(const Op& op, const InvalidLabel& label) = 0;
};

}  // namespace popsr
