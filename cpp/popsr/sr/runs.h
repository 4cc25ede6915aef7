// Numbers of the elements of a part of an array: runs of consecutive ones.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

namespace popsr::kernels {

/// Elements of the part from the end of the run before it up to `end`, in C order. Element i has the number
/// i + shift, modulo 2**64.
struct SrRun {
  std::int64_t end;
  std::uint64_t shift;
};

/// The runs of a part, in order, the last of which ends with the part. None: element i has the number i.
using SrRuns = std::span<const SrRun>;

/// Calls body(begin, n, number) for the pieces of the elements [begin, end) with consecutive numbers.
template <class Body>
void for_each_run(SrRuns runs, std::int64_t begin, std::int64_t end, const Body& body) {
  if (runs.empty()) return body(begin, end - begin, static_cast<std::uint64_t>(begin));
  auto run = std::ranges::upper_bound(runs, begin, {}, &SrRun::end);
  for (; begin < end; ++run) {
    const std::int64_t last = std::min(end, run->end);
    body(begin, last - begin, static_cast<std::uint64_t>(begin) + run->shift);
    begin = last;
  }
}

}  // namespace popsr::kernels
