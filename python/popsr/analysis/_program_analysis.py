"""Base of the analyses of a program: its program, and checks of arguments."""

from __future__ import annotations

from typing import Any, NoReturn, Self, SupportsIndex

from popsr._program.handles import refuse_copy, refuse_pickle
from popsr._program.ir import Ir
from popsr._program.op import Op
from popsr._program.tensor import Tensor
from popsr._support.host.arguments import read_a
from popsr._support.text.entry_points import public
from popsr._support.text.shown import shown
from popsr._support.text.summary import line
from popsr.errors import ArgumentTypeError, AttributeValueError, GraphError

__all__ = ["ProgramAnalysis"]


@public
class ProgramAnalysis:
    """Of one Ir: tensors and ops of others are refused."""

    def __init__(self, ir: Ir) -> None:
        """Of that program."""
        self._ir = read_a(f"{type(self).__name__}: ir", ir, Ir)

    @property
    def ir(self) -> Ir:
        """The program."""
        return self._ir

    def _tensor(self, where: str, t: Tensor) -> int:
        if not isinstance(t, Tensor):
            raise ArgumentTypeError(f"{where}: t is not a Tensor, got {shown(t)}, expected a Tensor")
        self._require_own(where, "tensor", t, t._ir)
        if t._id in self._ir._core.graph_inputs(0):
            raise GraphError(
                f"{where}: an input of the main graph has no value, got {shown(t)}, expected another tensor"
            )
        return t._id

    def _op(self, where: str, op: Op, name: str = "op") -> int:
        if not isinstance(op, Op):
            raise ArgumentTypeError(
                f"{where}: {name} is not an op, got {shown(op)}, expected one of Graph.ops"
            )
        self._require_own(where, "op", op, op._ir)
        return op._id

    def _require_own(self, where: str, what: str, value: Any, ir: Ir) -> None:
        if ir is not self._ir:
            raise GraphError(
                f"{where}: {what} of another Ir, got {shown(value)} of {shown(ir)}, expected {shown(self._ir)}"
            )

    def _at_op(self, where: str, before: Op | None, after: Op | None, time: int | None) -> int | None:
        """The op before or after which a value is asked for; none where a time is, or the last value."""
        given = {"before": before, "after": after, "time": time}
        names = [name for name, value in given.items() if value is not None]
        if len(names) > 1:
            raise AttributeValueError(f"{where}: more than one time, got {' and '.join(names)}, expected one")
        op = before if before is not None else after
        return None if op is None else self._op(where, op, names[0])

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, object]) -> Self:
        refuse_copy(self, "itself, or popsr.analysis.analyze(ir) once more")

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        refuse_pickle(self)

    def __repr__(self) -> str:
        return line(f"{type(self).__name__}[{self._ir!r}]")
