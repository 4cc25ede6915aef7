#include "popsr/ops/registry.h"

namespace popsr {

std::shared_ptr<const Registry> default_registry() {
  static const std::shared_ptr<const Registry> registry = [] {
    auto all = std::make_shared<Registry>();
    for (const auto family : {elementwise_ops,
                              cast_ops,
                              shape_ops,
                              concat_ops,
                              indexing_ops,
                              dynamic_slice_ops,
                              onehot_ops,
                              reduction_ops,
                              matmul_ops,
                              pool_ops,
                              interpolate_ops,
                              roi_align_ops,
                              conv_ops,
                              loss_ops,
                              label_check_ops,
                              norm_ops,
                              random_ops,
                              lamb_ops,
                              host_io_ops,
                              remote_ops,
                              control_ops,
                              replica_index_ops,
                              collective_ops,
                              collective_move_ops,
                              collective_pair_ops,
                              place_copy_ops,
                              merged_ops,
                              var_update_ops,
                              optimiser_ops,
                              sparse_update_ops}) {
      for (OpDef& def : family()) all->add(std::move(def));
    }
    return all;
  }();
  return registry;
}

}  // namespace popsr
