"""The ops of a program as records that are read once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from popsr._exact._native import SCHEMAS, run_op
from popsr._fields import Array
from popsr._records import OpSchema, TensorInfo
from popsr.dtypes import dtype
from popsr.ir import Ir
from popsr.ops._exact import Exact

__all__ = ["GraphOps", "OpRecord", "as_numpy", "is_float"]


def is_float(name: str) -> bool:
    """True for the dtypes whose values become exact numbers."""
    return "float" in name


def as_numpy(data: Array, name: str) -> Array:
    """Bytes of the core as an array of the dtype that has arithmetic."""
    return data.view(dtype._all[name].as_ml_dtypes())


@dataclass(frozen=True, slots=True)
class OpRecord:
    """An op of a graph."""

    id: int
    kind: str
    inputs: list[int | None]
    outputs: list[int]
    attributes: Mapping[str, Any]
    schema: OpSchema
    _exact: list[Exact] = field(default_factory=list)

    @property
    def given_attributes(self) -> dict[str, Any]:
        """Attributes as an op is emitted with."""
        return {name: value for name, value in self.attributes.items() if value is not None}

    def exact(self, ir: Ir, low: int, draw: int) -> Exact:
        """The op as its meaning sees it."""
        if not self._exact:
            tensor = ir._core.tensor
            inputs = tuple(None if id_ is None else tensor(id_) for id_ in self.inputs)
            outputs: tuple[TensorInfo, ...] = tuple(tensor(id_) for id_ in self.outputs)
            self._exact.append(
                Exact(
                    self.kind, self.attributes, inputs, outputs, ir.replication_factor, low, draw, self._run
                )
            )
        return self._exact[0]

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
        self.ops = [
            OpRecord(
                id_,
                core.op_kind(id_),
                core.op_inputs(id_),
                core.op_outputs(id_),
                core.op_attributes(id_),
                SCHEMAS[core.op_kind(id_)],
            )
            for id_ in core.graph_ops(graph)
        ]
