"""Shared members of the infos of ops that run other graphs."""

from __future__ import annotations

from popsr._program.handles import Handle
from popsr._program.ir import Ir
from popsr._program.op import Op
from popsr._program.tensor import Constant, Tensor
from popsr._support.host.arguments import read_index
from popsr._support.text.entry_points import public
from popsr._support.text.shown import shown
from popsr.errors import GraphError


@public
class Site(Handle):
    """An op that runs graphs: what is passed and what comes out. Outputs are live: autodiff may add some."""

    def __init__(self, ir: Ir, op: int) -> None:
        """Of the op of that number."""
        self._view = Op(ir, op)

    @property
    def _ir(self) -> Ir:
        return self._view._ir

    @property
    def _op(self) -> int:
        return self._view._id

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """Tensors that are passed; of a call or loop, in the order of the graph's inputs.

        Of a conditional: the condition, the inputs of the then branch, the inputs of the else branch.
        """
        return self._ir._tensors_of(id_ for id_ in self._ir._core.op_inputs(self._op) if id_ is not None)

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        """Results, in the order of the graph's outputs."""
        return self._ir._tensors_of(self._ir._core.op_outputs(self._op))

    def parent_input(self, idx: int) -> Tensor:
        """Tensor that is passed as input ``idx`` here; IndexError when there is none."""
        return self.inputs[read_index("parent_input: index", idx, len(self.inputs))]

    def parent_output(self, idx: int) -> Tensor:
        """Result ``idx``; IndexError when there is none."""
        return self.outputs[read_index("parent_output: index", idx, len(self.outputs))]

    def __repr__(self) -> str:
        return f"{type(self).__name__}[{self._ir._core.print_op(self._op)}]"


def require_modifiable(where: str, t: Tensor) -> None:
    """Constants are not passed by reference."""
    if isinstance(t, Constant):
        raise GraphError(
            f"{where}: a constant would be modified, got {shown(t)}, expected a variable or the result of an op"
        )
