"""A linear layer split over replicas, and copied over others: what each replica holds. Written with PopXL's names.

Run it with ``python -m popsr run examples/popxl/tensor_parallel.py``.
"""

import numpy as np
import popxl
import popxl_addons as addons
from popxl import ops

TP, DP = 2, 2  # parts of the weight; copies of each part
IN, OUT = 2, 4


class Linear(addons.Module):
    """``x @ weight`` with the columns of the weight split over the replicas of a model."""

    def __init__(self, out_features: int, tp: int, dp: int):
        super().__init__()
        self.tp, self.shard_size = tp, out_features // tp
        # Replicas at a distance of tp hold the same part: 0 and 2, 1 and 3.
        self.replica_grouping = popxl.gcg().ir.replica_grouping(stride=tp, group_size=dp)

    def build(self, x: popxl.Tensor) -> popxl.Tensor:
        """All columns of the result, on every replica."""
        shards = [np.full((x.shape[-1], self.shard_size), i + 1, np.float32) for i in range(self.tp)]
        # The first group of replicas takes the first item, the second the second.
        w = self.add_variable_input("weight", iter(shards), x.dtype, replica_grouping=self.replica_grouping)
        print("sharded weight shape: ", w.shape)
        ops.print_tensor(w, title="w_shards", digits=2)
        y = x @ w
        print("y shard shape: ", y.shape)
        ops.print_tensor(y, title="y_shards", digits=2)
        # Different parts are put together over the transpose: 0 and 1, 2 and 3.
        transpose = self.replica_grouping.transpose()
        y_full = ops.collectives.replicated_all_gather(y, group=transpose, axis=-1)
        print("y full shape: ", y_full.shape)
        ops.print_tensor(y_full, title="y_full", digits=2)
        return y_full


ir = popxl.Ir(replication=TP * DP)
with ir.main_graph:
    x = popxl.constant(np.ones(IN), popxl.float32)
    factories, linear = Linear(OUT, TP, DP).create_graph(x)
    print("replica groupings in factories: ")
    print(factories.replica_groupings)
    print("assignment for weight: ")
    print(factories.replica_groupings.weight.assignment)
    variables = factories.init()
    (y,) = linear.bind(variables).call(x)

with popxl.Session(ir, "ipu_hw") as session:
    session.run()
