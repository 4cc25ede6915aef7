// Views: tensors whose elements are elements of other tensors' memory. Other tensors have memory of their own
// (they are roots), or are another name of an op's input after a write in place (TensorMemory::storage).
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
  std::vector<Range> ranges = {};      ///< The part of the input, along its axes.
  std::vector<std::size_t> axes = {};  ///< Axis d of the output runs along axis axes[d] of the input.
  Shape at = {};                       ///< Where the part begins in the output.
  bool same_order = false;  ///< The input in C order is the output in C order: nothing else is set.
};

/// A part of the memory of a root.
struct Region {
  TensorId root = kNone;
  Boxes part = {};
  bool whole = false;  ///< All of it, exactly.
};

struct View {
  /// The storages of the elements, with their maps. Views of views are traced back as far as the parts
  /// of these are parts of what these view.
  std::vector<TensorId> bases = {};
  std::vector<ViewPart> parts = {};
  std::vector<Region> regions = {};  ///< One a root.
  bool repeats = false;              ///< Some element is there twice, or twice in a base.
};

/// The view that op `op` makes of its inputs; its outputs exist.
std::shared_ptr<const View> make_view(const Ir& ir, const Op& op);

/// True if the bytes of the view are the bytes of its base.
inline bool shares_bytes(const View& view) { return view.parts.size() == 1 && view.parts[0].same_order; }

/// Null for a tensor with memory of its own. Outputs of ops that write a view are that view.
inline const View* view_of(const Ir& ir, TensorId tensor) {
  return ir.tensor(ir.tensor(tensor).memory.storage).memory.view.get();
}

/// Calls visit(root) for the tensors whose memory it is; the storage of a tensor that is not a view, even
/// without elements.
template <class Visit>
void for_each_root(const Ir& ir, TensorId tensor, const Visit& visit) {
  const View* const view = view_of(ir, tensor);
  if (view == nullptr) return visit(ir.tensor(tensor).memory.storage);
  for (const Region& region : view->regions) visit(region.root);
}
/// The elements of a box of the output that are of the part, in coordinates of the input.
Boxes in_input(const ViewPart& part, const Box& box, const Shape& output, const Shape& input);
/// The elements of a box of the input that the part shows, in coordinates of the output.
Boxes in_output(const ViewPart& part, const Box& box, const Shape& output, const Shape& input);

/// The memory of a tensor.
std::vector<Region> regions_of(const Ir& ir, TensorId tensor);

}  // namespace popsr
