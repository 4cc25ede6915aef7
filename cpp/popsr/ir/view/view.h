// Views: tensors whose elements are elements of other tensors' memory. Other tensors are roots, with memory
// of their own, or another name of an op's input after a write in place (TensorMemory::storage).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "popsr/ir/ir.h"
#include "popsr/ir/view/boxes.h"

namespace popsr {

/// One dimension of a slice: elements start, start + step, ...; step may be negative.
struct Range {
  std::int64_t start = 0;
  std::int64_t step = 1;
  std::int64_t count = 0;
};

/// Map of the elements of one input to a view of it, which is the output of an op.
struct ViewPart {
  std::vector<Range> ranges = {};      ///< Ranges of the part along the axes of the input.
  std::vector<std::size_t> axes = {};  ///< Axis d of the output runs along axis axes[d] of the input.
  Shape at = {};                       ///< Position in the output at which the part begins.
  /// True if the input in C order is the output in C order; then nothing else is set.
  bool same_order = false;
};

/// A part of the memory of a root.
struct Region {
  TensorId root = kNone;
  Boxes part = {};
  bool whole = false;  ///< True if the region is exactly the whole root.
};

struct View {
  /// Storages of the elements, with their maps. A view of a view is resolved to the inner view's bases if
  /// its parts are parts of that view's parts.
  std::vector<TensorId> bases = {};
  std::vector<ViewPart> parts = {};
  std::vector<Region> regions = {};  ///< Regions of memory, one per root.
  bool repeats = false;              ///< True if some element occurs twice, in the view or in a base.
};

/// View that op `op` makes of its inputs; its outputs exist already.
std::shared_ptr<const View> make_view(const Ir& ir, const Op& op);

/// True if the bytes of the view are the bytes of its base.
inline bool shares_bytes(const View& view) { return view.parts.size() == 1 && view.parts[0].same_order; }

/// View of a tensor; null if it has memory of its own. Outputs of ops that write a view are that view.
inline const View* view_of(const Ir& ir, TensorId tensor) {
  return ir.tensor(ir.tensor(tensor).memory.storage).memory.view.get();
}

/// Calls visit(root) for the roots whose memory the tensor has; for a tensor that is not a view, its
/// storage, even if it has no elements.
template <class Visit>
void for_each_root(const Ir& ir, TensorId tensor, const Visit& visit) {
  const View* const view = view_of(ir, tensor);
  if (view == nullptr) return visit(ir.tensor(tensor).memory.storage);
  for (const Region& region : view->regions) visit(region.root);
}
/// Elements of a box of the output that belong to the part, in coordinates of the input.
Boxes in_input(const ViewPart& part, const Box& box, const Shape& output, const Shape& input);
/// Elements of a box of the input that the part shows, in coordinates of the output.
Boxes in_output(const ViewPart& part, const Box& box, const Shape& output, const Shape& input);

/// Regions of memory that a tensor occupies.
std::vector<Region> regions_of(const Ir& ir, TensorId tensor);

}  // namespace popsr
