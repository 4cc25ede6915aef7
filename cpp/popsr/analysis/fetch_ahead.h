// Memory of the ops that a pass comes to next, asked for before it is needed: the objects and lists of
// programs that Python builds lie far apart, and a pass over them waits for memory most of its time.
#pragma once

#include <cstddef>
#include <vector>

#include "popsr/ir/ir.h"

namespace popsr {

/// Of the ops after position `at` of a schedule.
inline void fetch_ahead(const Ir& ir, const std::vector<OpId>& ops, std::size_t at) {
  constexpr std::size_t kObjects = 12, kLists = 6;  // ops ahead
  if (at + kObjects >= ops.size()) return;
  const Op& object = ir.op(ops[at + kObjects]);
  __builtin_prefetch(&object);
  __builtin_prefetch(&object.schedule);
  const Op& lists = ir.op(ops[at + kLists]);
  __builtin_prefetch(lists.inputs.data());
  __builtin_prefetch(lists.outputs.data());
  __builtin_prefetch(lists.attrs.data());
}

}  // namespace popsr
