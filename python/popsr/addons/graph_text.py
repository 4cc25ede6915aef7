"""The schedule of a graph as text."""

from __future__ import annotations

from collections.abc import Iterable

from popsr._program.graph import Graph
from popsr._program.op import Op
from popsr._program.tensor import Tensor
from popsr._support.host.arguments import read_a
from popsr._support.text.entry_points import public
from popsr.addons.named_tensors import NamedTensors
from popsr.compat._objects.op_classes import op_type

__all__ = ["schedule_text"]


class _Numbers:
    """``%n`` for each tensor, by first mention."""

    def __init__(self, args: NamedTensors) -> None:
        self._names = {tensor: key for key, tensor in args.to_dict().items()}
        self._numbers: dict[Tensor, int] = {}

    def number(self, tensor: Tensor) -> str:
        return f"%{self._numbers.setdefault(tensor, len(self._numbers) + 1)}"

    def named(self, tensors: Iterable[Tensor]) -> str:
        """As inputs: those that have a name with it."""
        return ", ".join(
            f"{self._names[t]}={self.number(t)}" if t in self._names else self.number(t) for t in tensors
        )

    def typed(self, tensors: Iterable[Tensor | None]) -> str:
        return ", ".join(f"{self.number(t)} [{t.shape} {t.dtype.name}]" for t in tensors if t is not None)


@public
def schedule_text(graph: Graph, args: NamedTensors) -> str:
    """Header, a line an op, and a closing brace.

    Args:
        graph: the graph.
        args: names of its inputs.
    """
    read_a("schedule_text: graph", graph, Graph)
    read_a("schedule_text: args", args, NamedTensors)
    numbers = _Numbers(args)
    inputs, outputs = numbers.named(graph.inputs), ", ".join(map(numbers.number, graph.outputs))
    lines = [f"Graph : {graph.name}", f"  ({inputs}) -> ({outputs}) {{"]
    lines += [
        f"    {_name(op)} ({numbers.typed(op.inputs)}) -> ({numbers.typed(op.outputs)}){_called(op)}"
        for op in graph.ops
    ]
    return "\n".join([*lines, "  }"])


def _name(op: Op) -> str:
    return f"{op_type(op.kind)}.{op.id}"


def _called(op: Op) -> str:
    return "".join(f" ({graph.id})" for graph in op.called_graphs)
