"""The ops of a program as records that are read once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from popsr._program.ir import Ir
from popsr._support.fields import Array
from popsr._support.records import OpSchema, TensorInfo
from popsr.bridge._exact._native import SCHEMAS, run_op
from popsr.dtypes import dtype
from popsr.ops._exact import MEANINGS, OF_ALL, Exact

__all__ = ["GraphOps", "OpRecord", "as_numpy", "graphs_of", "is_float"]


def is_float(name: str) -> bool:
    """True for the dtypes whose values become exact numbers."""
    return "float" in name


def as_numpy(data: Array, name: str) -> Array:
    """Bytes of the core as an array of the dtype that has arithmetic."""
    return data.view(dtype._all[name].as_ml_dtypes())


@dataclass(frozen=True, slots=True)
class OpRecord:
    """An op of a graph.

    Attributes:
        meaning: its function of exact numbers; None of an op that has none.
        always: True if the meaning is that of integers, too.
        makes_floats: True if a result is one of floats.
        written: for each result the number of the operand whose memory it is, None where it has its own.
    """

    id: int
    kind: str
    inputs: list[int | None]
    outputs: list[int]
    attributes: Mapping[str, Any]
    schema: OpSchema
    operand_infos: tuple[TensorInfo | None, ...]
    result_infos: tuple[TensorInfo, ...]
    meaning: Callable[..., Any] | None
    always: bool
    makes_floats: bool
    written: tuple[int | None, ...]

    @classmethod
    def of(cls, ir: Ir, id_: int) -> OpRecord:
        """Read an op."""
        core = ir._core
        kind, inputs, outputs = core.op_kind(id_), core.op_inputs(id_), core.op_outputs(id_)
        results = tuple(core.tensor(output) for output in outputs)
        effects = {output: operand for operand, output in SCHEMAS[kind]["effects"]}
        written = (effects.get(i) for i in range(len(outputs)))
        return cls(
            id_,
            kind,
            inputs,
            outputs,
            core.op_attributes(id_),
            SCHEMAS[kind],
            tuple(None if operand is None else core.tensor(operand) for operand in inputs),
            results,
            MEANINGS.get(kind),
            kind in OF_ALL,
            any(is_float(each.dtype) for each in results),
            tuple(None if at is None or inputs[at] is None else at for at in written),
        )

    @property
    def makes_new(self) -> bool:
        """True of an op whose results are new values in memory of their own."""
        schema = self.schema
        is_plain = not schema["view"] and schema["control"] == "none"
        return is_plain and all(each is None for each in self.written)

    @property
    def given_attributes(self) -> dict[str, Any]:
        """Attributes as an op is emitted with."""
        return {name: value for name, value in self.attributes.items() if value is not None}

    def exact(self, replicas: int, low: int, draw: int) -> Exact:
        """The op as its meaning sees it in a run."""
        infos = self.operand_infos, self.result_infos
        return Exact(self.kind, self.attributes, *infos, replicas, low, draw, self._run)

    def _run(
        self,
        *operands: Array | None,
        kind: str | None = None,
        only: Mapping[str, Any] | None = None,
        **changed: Any,
    ) -> list[Array]:
        """The op's own kernel on arrays, or that of another op."""
        attributes = self.given_attributes if only is None else dict(only)
        return run_op(kind or self.kind, attributes | changed, operands)


class GraphOps:
    """The ops and constants of a graph."""

    def __init__(self, ir: Ir, graph: int) -> None:
        """Read them."""
        core = ir._core
        self.constants = [id_ for id_ in core.graph_tensors(graph) if core.tensor(id_).kind == "constant"]
        self.ops = [OpRecord.of(ir, id_) for id_ in core.graph_ops(graph)]


_READ: WeakKeyDictionary[Ir, tuple[int, dict[int, GraphOps]]] = WeakKeyDictionary()


def graphs_of(ir: Ir) -> dict[int, GraphOps]:
    """Graphs of a program that were read, by number; they are read anew once the program has changed."""
    epoch = ir._core.epoch
    found = _READ.get(ir)
    if found is None or found[0] != epoch:
        found = _READ[ir] = epoch, {}
    return found[1]
