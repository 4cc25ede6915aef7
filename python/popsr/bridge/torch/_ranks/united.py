"""Tensors that only some ranks hold, such as the layers of a stage: inputs and results of all ranks, in one order."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple

from popsr.bridge.torch._ranks.same import communicates, meta_key
from popsr.bridge.torch._ranks.stages import Stages, communicating, stages_of
from popsr.bridge.torch._states.leaves import Leaf
from popsr.bridge.torch._tracing.capture import Recorded
from popsr.bridge.torch._tracing.draws import of_stage
from popsr.bridge.torch._tracing.messages import is_received, is_sent

__all__ = ["United", "united"]

_ROLES = ("state", "data", "number")


def united(recorded: Sequence[Recorded], leaves: Sequence[Sequence[Leaf]], where: str) -> United:
    """Ranks with the inputs and results of all, and their stages.

    A rank gets an input of zeros for a tensor that it lacks, which it returns as it is, and zeros for a result.

    Args:
        recorded: what the ranks recorded.
        leaves: the tensors of each.
        where: the call, for messages.
    """
    of_ranks = [{_leaf_key(leaf): leaf for leaf in own} for own in leaves]
    stages = stages_of(
        recorded,
        [(tuple(own), tuple(each.results)) for own, each in zip(of_ranks, recorded, strict=True)],
        where,
    )
    keys = sorted(dict.fromkeys(key for own in of_ranks for key in own), key=lambda key: key.role)
    named = collections.Counter(key.path for key in keys)
    used = [_used(each, [*own]) for each, own in zip(recorded, of_ranks, strict=True)]
    first = [_first(key, of_ranks, used, is_unique=named[key.path] == 1) for key in keys]
    rows = [[_of_rank(own.get(key), leaf) for key, leaf in zip(keys, first, strict=True)] for own in of_ranks]
    kinds = [_result_kinds(each) for each in recorded]
    results = list(dict.fromkeys(key for own in kinds for key in own))
    names = _names(results, kinds)
    nodes = [_nodes(each, [*own]) for each, own in zip(recorded, of_ranks, strict=True)]
    made: dict[tuple[int, int], Any] = {}
    found = []
    for rank, each in enumerate(recorded):
        label = stages.labels[rank]
        own = label, id(each.functional)
        if own not in made:
            copied = _Copied(each.functional, label)
            made[own] = copied.united(nodes, rank, keys, results)
        module, points = made[own]
        stages.points[rank] = points
        found.append(dataclasses.replace(each, functional=module, results=names))
    returned = [_held([rank for rank, own in enumerate(kinds) if key in own], len(kinds)) for key in results]
    return United(found, rows, stages, returned)


class United(NamedTuple):
    """Ranks with the inputs and results of all.

    Attributes:
        recorded: what each rank would have recorded with these.
        leaves: the tensors of each rank.
        stages: their stages.
        returned: for each result the ranks that return it; None if all do.
    """

    recorded: list[Recorded]
    leaves: list[list[Leaf]]
    stages: Stages
    returned: list[tuple[int, ...] | None]


class _Key(NamedTuple):
    """Equal for one tensor on several ranks.

    Attributes:
        role: its place in the order of inputs: states first, then data, then numbers.
        path: its name.
        dtype: its element type.
        shape: its shape.
    """

    role: int
    path: str
    dtype: str
    shape: tuple[int, ...]


def _leaf_key(leaf: Leaf) -> _Key:
    return _Key(_ROLES.index(leaf.role), leaf.path, str(leaf.local.dtype), tuple(leaf.local.shape))


def _used(recorded: Recorded, held: Sequence[_Key]) -> set[_Key]:
    """Inputs that what a rank returns, sends or reduces follows from."""
    nodes = list(recorded.functional.graph.nodes)
    live: set[Any] = set()
    for node in reversed(nodes):
        if node in live or node.op == "output" or communicates(node):
            live.update((node, *node.all_input_nodes))
    inputs = [node for node in nodes if node.op == "placeholder"]
    return {key for key, node in zip(held, inputs, strict=True) if node in live}


def _held(holders: Sequence[int], count: int) -> tuple[int, ...] | None:
    """Some ranks; None of all of them."""
    return None if len(holders) == count else (*holders,)


def _first(
    key: _Key, of_ranks: Sequence[Mapping[_Key, Leaf]], used: Sequence[set[_Key]], *, is_unique: bool
) -> Leaf:
    """A tensor as the first rank has it that holds it, with the ranks that do, by which it is named if it must be.

    Data are held by the ranks that read them, as each stage may be given the whole batch.
    """
    having = [rank for rank, own in enumerate(of_ranks) if key in own]
    reading = [rank for rank, own in enumerate(used) if key in own]
    return dataclasses.replace(
        of_ranks[having[0]][key],
        path=key.path if is_unique else f"{key.path} ({_ranks(having)})",
        held=_held(reading if reading and key.role else having, len(of_ranks)),
        name="" if is_unique else key.path,
    )


def _of_rank(own: Leaf | None, first: Leaf) -> Leaf:
    """A tensor as a rank has it; as the first where the rank does not hold it."""
    return (
        first if own is None else dataclasses.replace(own, path=first.path, held=first.held, name=first.name)
    )


def _ranks(ranks: Sequence[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"


def _returned(module: Any) -> list[Any]:
    output = list(module.graph.nodes)[-1]
    return list(output.args[0])


def _result_kinds(recorded: Recorded) -> list[Hashable]:
    """Name and kind of each result of a rank."""
    if not recorded.results:
        return []
    values = _returned(recorded.functional)[-len(recorded.results) :]
    return [
        (name, meta_key(value) if hasattr(value, "meta") else str(value))
        for name, value in zip(recorded.results, values, strict=True)
    ]


def _names(results: Sequence[Any], kinds: Sequence[Sequence[Any]]) -> list[str]:
    """A name for each result, with the ranks that return it where others return another kind."""
    names = [name for name, _ in results]
    return [
        name
        if names.count(name) == 1
        else f"{name} ({_ranks([rank for rank, own in enumerate(kinds) if (name, kind) in own])})"
        for name, kind in results
    ]


def _nodes(recorded: Recorded, held: Sequence[_Key]) -> tuple[dict[_Key, Any], dict[Hashable, Any]]:
    """Inputs of a rank's graph by key, and the nodes that it returns by key of the result."""
    inputs = [node for node in recorded.functional.graph.nodes if node.op == "placeholder"]
    kinds = _result_kinds(recorded)
    values = _returned(recorded.functional)
    return dict(zip(held, inputs, strict=True)), dict(
        zip(kinds, values[len(values) - len(kinds) :], strict=True)
    )


class _Copied:
    """A copy of a graph for one stage."""

    def __init__(self, module: Any, label: int) -> None:
        import torch

        self._module, self._label = module, label
        self._graph = torch.fx.Graph()
        self._values: dict[Any, Any] = {}

    def united(
        self,
        nodes: Sequence[tuple[dict[_Key, Any], dict[Hashable, Any]]],
        rank: int,
        keys: Sequence[_Key],
        results: Sequence[Hashable],
    ) -> tuple[Any, list[Any]]:
        """The graph of a rank with the inputs and results of all ranks, and its nodes that communicate.

        Args:
            nodes: inputs and results of each rank by their keys.
            rank: the rank.
            keys: the inputs of all.
            results: the results of all.
        """
        import torch

        own_inputs, own_results = nodes[rank]
        inputs = {key: self._input(key, own_inputs, nodes) for key in keys}
        for node in self._module.graph.nodes:
            if node.op in ("placeholder", "output"):
                continue
            made = self._values[node] = self._graph.node_copy(node, self._values.__getitem__)
            if is_sent(made) or is_received(made):
                made.args = (*made.args[:-1], 0)  # messages are numbered by rank
            of_stage(made, self._label)
        states = [key for key in keys if key.role == 0]
        returned = _returned(self._module)
        given = dict(zip([key for key in own_inputs if key.role == 0], returned, strict=False))
        outputs = [self._mapped(given[key]) if key in given else inputs[key] for key in states]
        for kind in results:
            if kind in own_results:
                outputs.append(self._mapped(own_results[kind]))
                continue
            like = next(of[kind] for _, of in nodes if kind in of)
            outputs.append(self._zeros(like) if hasattr(like, "meta") else like)
        self._graph.output(outputs)
        module = torch.fx.GraphModule(self._module, self._graph)
        return module, communicating(module.graph.nodes)

    def _input(self, key: _Key, own: Mapping[_Key, Any], nodes: Sequence[Any]) -> Any:
        like = own.get(key)
        if like is not None:
            made = self._values[like] = self._graph.node_copy(like, self._values.__getitem__)
            return made
        like = next(of[key] for of, _ in nodes if key in of)
        made = self._graph.placeholder(f"absent_{len(self._graph.nodes)}")
        made.meta = {"val": like.meta.get("val")}
        return made

    def _mapped(self, value: Any) -> Any:
        return self._values[value] if hasattr(value, "meta") else value

    def _zeros(self, like: Any) -> Any:
        import torch

        value = like.meta["val"]
        made = self._graph.call_function(
            torch.ops.aten.full.default, (list(value.shape), 0), {"dtype": value.dtype}
        )
        made.meta = {"val": value}
        return made
