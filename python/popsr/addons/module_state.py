"""What a module holds while one of its graphs is built, and graphs that it built before."""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Hashable
from dataclasses import dataclass, field

from popsr import _core
from popsr.addons.grad_graph import Aux, VarGrad
from popsr.addons.graph import GraphWithNamedArgs
from popsr.addons.named_tensors import NamedTensors
from popsr.addons.variable_factory import NamedVariableFactories
from popsr.graph import Graph
from popsr.ir import Ir
from popsr.transforms import GradGraphInfo

__all__ = ["CachedGraphs", "State"]


@dataclass
class State:
    """Of one graph."""

    factories: NamedVariableFactories = field(default_factory=NamedVariableFactories)
    inputs: NamedTensors = field(default_factory=NamedTensors)
    aux: Aux = field(default_factory=Aux)
    var_grad: VarGrad = field(default_factory=VarGrad)
    grad_infos: dict[Graph, GradGraphInfo] = field(default_factory=dict)

    def copy(self) -> State:
        """With trees of its own."""
        return dataclasses.replace(
            self, factories=self.factories.copy(), inputs=self.inputs.copy(), grad_infos=dict(self.grad_infos)
        )


class CachedGraphs:
    """Graphs of a module by Ir and arguments, as long as the Ir lives."""

    def __init__(self) -> None:
        """None yet."""
        self._found: weakref.WeakKeyDictionary[Ir, dict[Hashable, _Entry]] = weakref.WeakKeyDictionary()

    def find(self, ir: Ir, key: Hashable) -> tuple[NamedVariableFactories, GraphWithNamedArgs] | None:
        """Factories and graph, if they are there.

        Args:
            ir: the Ir.
            key: the arguments.
        """
        entry = self._found.get(ir, {}).get(key)
        if entry is None:
            return None
        inputs = NamedTensors.from_dict({name: ir._tensor(id_) for name, id_ in entry.inputs.items()})
        infos = [GradGraphInfo._of(ir, info) for info in entry.grad_infos]
        graph = GraphWithNamedArgs(
            ir._graph(entry.graph),
            inputs,
            called_graphs_grad_info={info.forward_graph: info for info in infos},
        )
        return entry.factories.copy(), graph

    def add(
        self, ir: Ir, key: Hashable, factories: NamedVariableFactories, graph: GraphWithNamedArgs
    ) -> None:
        """Keep them.

        Args:
            ir: the Ir.
            key: the arguments.
            factories: factories of the graph.
            graph: the graph.
        """
        inputs = {name: t._id for name, t in graph.args.to_dict().items()}
        infos = tuple(info._to_tuple() for info in graph.called_graphs_grad_info.values())
        self._found.setdefault(ir, {})[key] = _Entry(graph.graph._id, inputs, factories.copy(), infos)


@dataclass(frozen=True)
class _Entry:
    """By numbers: graphs and tensors hold their Ir."""

    graph: int
    inputs: dict[str, int]
    factories: NamedVariableFactories
    grad_infos: tuple[_core.GradTuple, ...]
