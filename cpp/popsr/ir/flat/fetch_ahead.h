// Prefetch of the memory of ops that a pass visits next: the objects and lists of programs that Python
// builds lie far apart, and a pass over them waits for memory most of its time.
#pragma once

#include <cstddef>
#include <vector>

#include "popsr/ir/op_def.h"

namespace popsr {

/// Prefetches all cache lines of an object.
template <class T>
void fetch_object(const T& object) {
  constexpr std::size_t kLine = 64;
  const char* const bytes = reinterpret_cast<const char*>(&object);
  for (std::size_t at = 0; at < sizeof(T); at += kLine) __builtin_prefetch(bytes + at);
}

/// Distances of prefetches in ops: an op is fetched first, and its lists once it is there.
inline constexpr std::size_t kOpsAhead = 24, kListsAhead = 12;

/// Prefetches the lists of an op.
inline void fetch_lists(const Op& op) {
  __builtin_prefetch(op.inputs.data());
  __builtin_prefetch(op.outputs.data());
  if (op.def->replicas.collective != Collective::kNone) __builtin_prefetch(op.attrs.data());
}

/// Prefetches ops that follow position `at` of a schedule.
inline void fetch_ahead(const Ir& ir, const std::vector<OpId>& ops, std::size_t at) {
  if (at + kOpsAhead >= ops.size()) return;
  fetch_object(ir.op(ops[at + kOpsAhead]));
  fetch_lists(ir.op(ops[at + kListsAhead]));
}

}  // namespace popsr
