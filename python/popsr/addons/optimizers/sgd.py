"""Stochastic gradient descent with momentum, for variables that may be sharded."""

from __future__ import annotations

from popsr import dtypes, ops
from popsr._program.building.operands import check_floats
from popsr._program.context import in_sequence
from popsr._program.tensor import Tensor, TensorByRef
from popsr._support.host.arguments import read_dtype, read_flag
from popsr._support.text.entry_points import public
from popsr.addons.ops._operands import widened
from popsr.addons.optimizers._step import OptimizerStep, decayed, descend
from popsr.errors import AttributeValueError
from popsr.replicas import ReplicaGrouping

__all__ = ["SGDOptimizerStep"]

_WHERE = "SGDOptimizerStep"


@public
class SGDOptimizerStep(OptimizerStep):
    """One step of gradient descent for one variable, as ``torch.optim.SGD`` without dampening.

    State, zeros at first and by reference, with momentum alone: ``velocity``, of the shape of the variable, sharded as
    it is.
    """

    @in_sequence()
    def build(
        self,
        var: TensorByRef,
        grad: Tensor,
        replica_grouping: ReplicaGrouping | None = None,
        *,
        lr: float | Tensor,
        momentum: float | Tensor = 0.0,
        nesterov: bool = False,
        weight_decay: float | Tensor = 0.0,
        velocity_dtype: dtypes.dtype = dtypes.float32,
        loss_scaling: float | Tensor = 1,
        global_norm: Tensor | None = None,
        global_norm_max: float | Tensor | None = None,
    ) -> None:
        """``var -= lr u`` in place, with ``d = g + weight_decay var`` and ``velocity = momentum velocity + d``.

        The step u is ``velocity``, or ``d + momentum velocity`` with ``nesterov``; without momentum it is d. The
        gradient g is ``grad / loss_scaling * global_norm_max / max(global_norm, global_norm_max)``. Arithmetic is in
        float32 (float64 where an operand is), also for narrow variables and velocities, which are rounded once when
        they are stored.

        Args:
            var: the variable, or a shard of one; floats of any shape. It is modified.
            grad: its gradient, of its shape.
            replica_grouping: groups of replicas with the same state. Default: one of all.
            lr: learning rate. Each scalar is a number, or a tensor of one element that becomes an input.
            momentum: factor of the velocity. 0: none, and no state.
            nesterov: look ahead by one step of the velocity; with momentum alone.
            weight_decay: factor of the variable in its gradient. 0: none.
            velocity_dtype: dtype of ``velocity``.
            loss_scaling: what the loss was multiplied by.
            global_norm: norm of all gradients without loss scaling, one element.
            global_norm_max: the norm that they are scaled down to.
        Raises:
            ValueError: shapes differ, a scalar has several elements, ``nesterov`` without momentum, only one of
                ``global_norm`` and ``global_norm_max`` is given, or ``var`` is not a shard that the groups could hold.
            TypeError: an operand is not a tensor of floats.
        Source:
            Sutskever et al., On the importance of initialization and momentum in deep learning, ICML 2013.
        """
        self._check(var, grad, lr=lr, momentum=momentum, weight_decay=weight_decay, loss_scaling=loss_scaling)
        kind = read_dtype(_WHERE, velocity_dtype)
        check_floats(_WHERE, "velocity_dtype", kind)
        moves = isinstance(momentum, Tensor) or momentum != 0
        if read_flag(f"{_WHERE}: nesterov", nesterov) and not moves:
            raise AttributeValueError(
                f"{_WHERE}: nesterov needs momentum, got {momentum}, expected another number"
            )
        g = self._gradient(grad, loss_scaling, global_norm, global_norm_max)
        u = decayed(var, g, weight_decay)
        if moves:
            velocity = self._state_of("velocity", var, kind, replica_grouping)
            ops.scaled_add_(velocity, u, momentum, 1.0)
            u = ops.scaled_add(widened(u), widened(velocity), 1.0, momentum) if nesterov else velocity
        descend(var, u, lr)
