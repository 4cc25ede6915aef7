"""Products of weights that are cut along the dimension that is summed: each replica has a part of the sum."""

from __future__ import annotations

from collections.abc import Sequence

from popsr._program.tensor import Tensor
from popsr.bridge._step.builder import StepBuilder
from popsr.bridge.jax._mesh import Spec, Spread
from popsr.bridge.jax._rules.table import Equation, Value

__all__ = ["Cuts"]

_KEEP = frozenset(["convert_element_type", "pvary", "copy", "optimization_barrier", "name"])


class Cuts:
    """The cut of weights, also after moves and casts of them.

    Args:
        builder: the step that is being read.
        spread: the axes of the mesh.
    """

    def __init__(self, builder: StepBuilder, spread: Spread) -> None:
        """Without any weight."""
        self._builder, self._spread = builder, spread
        self._of: dict[int, Spec] = {}

    def add(self, weight: Tensor, spec: Spec) -> None:
        """A state, as it is cut."""
        self._of[weight._id] = spec

    def follow(self, equation: Equation, operands: Sequence[Value], results: Sequence[Value]) -> None:
        """Note what an equation makes of weights."""
        specs = [self._of.get(t._id) if isinstance(t, Tensor) else None for t in operands]
        if not any(specs):
            return
        if equation.primitive == "dot_general":
            self._product(equation, specs, results[0])
        elif equation.primitive == "transpose" and specs[0] is not None:
            self._keep(results[0], tuple(specs[0][axis] for axis in equation.params["permutation"]))
        elif equation.primitive in _KEEP and specs[0] is not None:
            self._keep(results[0], specs[0])

    def _keep(self, result: Value, spec: Spec) -> None:
        if isinstance(result, Tensor):
            self._of[result._id] = spec

    def _product(self, equation: Equation, specs: Sequence[Spec | None], result: Value) -> None:
        """Outside of backward passes, where factors of the other pass may be undone."""
        contracted = equation.params["dimension_numbers"][0]
        axes = {
            axis
            for spec, summed in zip(specs, contracted, strict=True)
            if spec is not None
            for dimension in summed
            for axis in spec[dimension]
        }
        if axes and isinstance(result, Tensor) and not self._builder.in_derivative:
            self._builder.partial_sum(
                result, self._spread.group([a for a in self._spread.sizes if a in axes])
            )
