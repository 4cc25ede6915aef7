"""Lion, whose steps are signs, for variables that may be sharded."""

from __future__ import annotations

from popsr import dtypes, ops
from popsr._program.building.operands import check_floats
from popsr._program.context import in_sequence
from popsr._program.tensor import Tensor, TensorByRef
from popsr._support.host.arguments import read_dtype
from popsr._support.text.entry_points import public
from popsr.addons.ops._operands import widened
from popsr.addons.optimizers._step import OptimizerStep, decayed, descend, scalar
from popsr.ops import var_updates
from popsr.ops.utils import cast_if_needed
from popsr.replicas import ReplicaGrouping

__all__ = ["LionOptimizerStep"]

_WHERE = "LionOptimizerStep"


@public
class LionOptimizerStep(OptimizerStep):
    """One step of Lion for one variable.

    State, zeros at first and by reference: ``first_order`` (m), of the shape of the variable, sharded as it is.
    """

    @in_sequence()
    def build(
        self,
        var: TensorByRef,
        grad: Tensor,
        replica_grouping: ReplicaGrouping | None = None,
        *,
        lr: float | Tensor,
        beta1: float | Tensor = 0.9,
        beta2: float | Tensor = 0.99,
        weight_decay: float | Tensor = 0.0,
        first_order_dtype: dtypes.dtype = dtypes.float32,
        loss_scaling: float | Tensor = 1,
        global_norm: Tensor | None = None,
        global_norm_max: float | Tensor | None = None,
    ) -> None:
        """``var -= lr (sign(beta1 m + (1 - beta1) g) + weight_decay var)``, then ``m = beta2 m + (1 - beta2) g``.

        The gradient g is ``grad / loss_scaling * global_norm_max / max(global_norm, global_norm_max)``. Arithmetic is
        in float32 (float64 where an operand is), also for narrow variables and moments, which are rounded once when
        they are stored. The sign of 0 is 0.

        Args:
            var: the variable, or a shard of one; floats of any shape. It is modified.
            grad: its gradient, of its shape.
            replica_grouping: groups of replicas with the same state. Default: one of all.
            lr: learning rate. Each scalar is a number, or a tensor of one element that becomes an input.
            beta1: weight of the moment in the step.
            beta2: decay of the moment.
            weight_decay: factor of the variable in its step. 0: none.
            first_order_dtype: dtype of ``first_order``.
            loss_scaling: what the loss was multiplied by.
            global_norm: norm of all gradients without loss scaling, one element.
            global_norm_max: the norm that they are scaled down to.
        Raises:
            ValueError: shapes differ, a scalar has several elements, only one of ``global_norm`` and
                ``global_norm_max`` is given, or ``var`` is not a shard that the groups could hold.
            TypeError: an operand is not a tensor of floats.
        Source:
            Chen et al., Symbolic Discovery of Optimization Algorithms, 2023, arXiv:2302.06675.
        """
        self._check(
            var, grad, lr=lr, beta1=beta1, beta2=beta2, weight_decay=weight_decay, loss_scaling=loss_scaling
        )
        kind = read_dtype(_WHERE, first_order_dtype)
        check_floats(_WHERE, "first_order_dtype", kind)
        g = widened(self._gradient(grad, loss_scaling, global_norm, global_norm_max))
        m = self._state_of("first_order", var, kind, replica_grouping)
        kept = scalar(beta1, g.dtype)
        mixed = cast_if_needed(m, g.dtype) * kept + g * (1.0 - kept)
        u = decayed(var, ops.sign(mixed), weight_decay)
        var_updates.accumulate_moving_average_(m, g, beta2)
        descend(var, u, lr)
