"""LAMB for variables that may be shards."""

from functools import partial
from typing import Optional

import numpy as np
import popxl
import popxl_addons as addons
from popxl import ops

from .config import Optimizer


class Lamb(addons.Module):
    """One step for one variable."""

    def __init__(self, options: Optimizer, loss_scaling: float):
        super().__init__(cache=True)
        self.options, self.loss_scaling = options, loss_scaling

    def state(self, name: str, var: popxl.Tensor, group: Optional[popxl.ReplicaGrouping]) -> popxl.Tensor:
        """Zeros, sharded as the variable is."""
        if not var.meta_shape:
            return self.add_variable_input(name, partial(np.zeros, var.shape), popxl.float32, by_ref=True)
        zeros = partial(np.zeros, var.meta_shape)
        return self.add_replica_sharded_variable_input(
            name, zeros, popxl.float32, by_ref=True, replica_grouping=group, shard_over=group.group_size
        )

    @popxl.in_sequence()
    def build(
        self,
        var: popxl.TensorByRef,
        grad: popxl.Tensor,
        lr: popxl.Tensor,
        group: Optional[popxl.ReplicaGrouping] = None,
        decay: float = 0.0,
    ) -> None:
        """``group`` of the replicas that have a shard each."""
        o = self.options
        grad = ops.cast(grad, popxl.float32) * (1 / self.loss_scaling)
        first, second = self.state("first_order", var, group), self.state("second_order", var, group)
        step = self.add_variable_input("step", partial(np.zeros, ()), popxl.float32, by_ref=True)
        ops.var_updates.accumulate_moving_average_(first, grad, f=o.beta1)
        ops.var_updates.accumulate_moving_average_square_(second, grad, f=o.beta2)
        updater = ops.var_updates.lamb_updater(
            first,
            second,
            weight=ops.cast(var, popxl.float32),
            time_step=step,
            weight_decay=decay,
            beta1=o.beta1,
            beta2=o.beta2,
            epsilon=o.eps,
        )
        squares = [ops.lamb_square(var), ops.lamb_square(updater)]
        if var.meta_shape:
            squares = [ops.collectives.replicated_all_reduce(s, op="add", group=group) for s in squares]
        ops.var_updates.adam_var_update(
            var, updater, *squares, learning_rate=lr, max_weight_norm=o.max_weight_norm
        )
