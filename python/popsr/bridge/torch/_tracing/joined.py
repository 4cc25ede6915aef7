"""One graph of all ways that a step may take: what depends on the way is selected by the truth values that decide.

Each way is computed to its end, and a state is that of the way whose truth values hold on the rank. A collective joins
the ways: ranks meet there whichever way each of them takes. Ways with different collectives stay apart, and all ranks
must take the same one, which is checked when the step is built.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Any

from popsr.bridge.torch._ranks.same import attribute_of, group_name, key_of, meta_key
from popsr.bridge.torch._tracing.capture import Recorded
from popsr.bridge.torch._tracing.choices import Numbering
from popsr.bridge.torch._tracing.draws import draw_of, generator_draw_of
from popsr.bridge.torch._tracing.uninitialised import EMPTY
from popsr.bridge.torch._user.locations import place_of_node, shown_place
from popsr.errors import UnsupportedError

__all__ = ["by_outcomes", "join", "select_way"]


def select_way(holds: Any, taken: Any, other: Any) -> Any:
    """Stand for the choice in graphs; a rule reads it."""
    return taken if holds else other


def join(ways: Sequence[Recorded], labels: Sequence[Hashable | None], where: str) -> Recorded:
    """The ways of one rank as one recorded step.

    Args:
        ways: each with its functional graph, in the order of their outcomes, true first.
        labels: by input, as of ``Numbering``.
        where: the call, for messages.
    Raises:
        UnsupportedError: the ways have different collectives, or truth values that were taken for one are two.
    """
    if len(ways) == 1 and not ways[0].outcomes:
        (found,) = ways
        found.groups = found.groups | {name: found.groups[own] for name, own in found.names.items()}
        return found
    _check_messages(ways, where)
    _check_draws(ways, where)
    _check_same_truth(ways, labels, where)
    names = [name for name in ways[0].results if all(name in way.results for way in ways)]
    found = Recorded(
        ways[0].module, dict(ways[0].groups), drawn=ways[0].drawn, end=ways[0].end, results=names
    )
    for way in ways:
        found.groups |= way.groups
    found.others = list(ways[1:])
    found.functional = _Join(ways, names, where).graph_module(found)
    return found


def _check_messages(ways: Sequence[Recorded], where: str) -> None:
    """Refuse messages between two ranks on several ways: who takes part would depend on the way.

    Raises:
        UnsupportedError: with the line of the first.
    """
    sent = next((each for way in ways for each in way.messages.events if each.kind != "collective"), None)
    if sent is not None:
        raise UnsupportedError(
            f"{where}: a step with a branch that asks data calls {sent.name} at {shown_place(sent.place)}, got "
            f"{len(ways)} ways through the step, expected one, or torch.where"
        )


def _check_draws(ways: Sequence[Recorded], where: str) -> None:
    """Refuse ways after which torch's generator is not in one state, and draws from others.

    Raises:
        UnsupportedError: with what is expected.
    """
    states = [sorted({str(draw_of(node)) for node in way.module.graph.nodes}) for way in ways]
    given = any(generator_draw_of(node) is not None for way in ways for node in way.module.graph.nodes)
    draws = any(each != [str(None)] for each in states)
    if given or any(each != states[0] for each in states) or (draws and len({way.end for way in ways}) > 1):
        raise UnsupportedError(
            f"{where}: a branch that asks data draws random numbers, got other draws or seeds on one way than on the "
            "other, expected the same ones on both, or torch.where"
        )


def _outputs(module: Any) -> list[Any]:
    """Values that a graph returns, numbers of Python among them."""
    returned = next(node for node in module.graph.nodes if node.op == "output").args[0]
    return list(returned) if isinstance(returned, list | tuple) else [returned]


def _check_same_truth(ways: Sequence[Recorded], labels: Sequence[Hashable | None], where: str) -> None:
    """Check that truth values that were taken for one are computed from inputs that stay equal in all steps."""
    current = [None if label is None else (label,) for label in labels]
    while True:
        keys: list[list[Hashable]] = [[] for _ in current]
        same = True
        for way in ways:
            numbering, known = Numbering(current), dict[Any, int]()
            numbering.of(list(way.functional.graph.nodes)[:-1], known)
            outputs = [known.get(each, ("constant", str(each))) for each in _outputs(way.functional)]
            for place, label in enumerate(current):
                if label is not None and place < len(outputs):
                    keys[place].append(outputs[place])
            asked = dict[int, set[Hashable]]()
            for number, value in zip(way.asked, outputs[len(outputs) - len(way.asked) :], strict=True):
                asked.setdefault(number, set()).add(value)
            same &= all(len(values) == 1 for values in asked.values())
        if not same:
            raise UnsupportedError(
                f"{where}: counters of the optimizer that begin alike go apart, got a branch of Python that asks "
                "them, expected one branch for all, or a state that torch.where selects"
            )
        refined = [
            None if label is None else (*label[:1], *key) for label, key in zip(current, keys, strict=True)
        ]
        if len(set(refined)) == len(set(current)):
            return
        numbers: dict[Hashable, int] = {}
        current = [None if each is None else (numbers.setdefault(each, len(numbers)),) for each in refined]


class _Way:
    """One way, and how far it is joined."""

    def __init__(self, recorded: Recorded) -> None:
        self.recorded = recorded
        self.nodes = list(recorded.functional.graph.nodes)
        self.values: dict[Any, Any] = {}
        self.place = 0

    def named(self, node: Any) -> tuple[Any, ...]:
        """Operands of a collective, with this rank's own name of the process group."""
        name = group_name(node)
        return tuple(self.recorded.names.get(name, name) if each is name else each for each in node.args)

    def kind(self, node: Any) -> Hashable:
        """Key of a collective: ways that meet in one have the same."""
        return (str(node.target), meta_key(node), key_of((self.named(node), node.kwargs), lambda _: 0))


class _Join:
    """The graph that all ways become."""

    def __init__(self, ways: Sequence[Recorded], names: Sequence[str], where: str) -> None:
        import torch

        self._ways, self._names, self._where = [_Way(way) for way in ways], names, where
        self.graph = torch.fx.Graph()
        self._root = torch.nn.Module()
        self._made: dict[Hashable, Any] = {}
        self._numbers: dict[Any, int] = {}
        self._common: list[Any] = []

    def graph_module(self, found: Recorded) -> Any:
        """Join the ways from collective to collective, then what they return."""
        import torch

        self._run(self._ways, 0)
        self._schedule(self._ways, 0)
        outputs = [self._returned(way) for way in self._ways]
        states, results = zip(*outputs, strict=True)
        made = [self._selected(each, self._ways) for each in zip(*states, strict=True)]
        kept = []
        for name in self._names:
            values = [each[name] for each in results]
            if len({meta_key(value) if hasattr(value, "meta") else str(value) for value in values}) == 1:
                made.append(self._selected(values, self._ways))
                kept.append(name)
        found.results = kept
        found.common = [shown_place(place_of_node(node)) for node in self._common]
        self.graph.output([*made, *self._common])
        self.graph.eliminate_dead_code()
        return torch.fx.GraphModule(self._root, self.graph)

    def _run(self, ways: Sequence[_Way], depth: int) -> None:
        """Join ways that are alike up to a truth value by its number, from collective to collective.

        Where they have different ones the truth value must be common to all ranks, and its ways go on apart.
        """
        while True:
            nodes = [self._advance(way) for way in ways]
            if all(node is None for node in nodes):
                return
            kinds = {None if node is None else way.kind(node) for way, node in zip(ways, nodes, strict=True)}
            if len(kinds) > 1:
                break
            self._collective(ways, nodes, depth)
        truth = self._truth(ways[0], depth)
        for outcome in (True, False):
            side = [way for way in ways if way.recorded.outcomes[depth] is outcome]
            if side:
                self._run(side, depth + 1)
        self._note_common(ways, depth, truth)

    def _schedule(self, ways: Sequence[_Way], depth: int) -> None:
        """Note truth values by which other schedulers step: numbers of later steps depend on them."""
        if len({way.recorded.scheduled for way in ways}) < 2:
            return
        self._note_common(ways, depth, self._truth(ways[0], depth))
        for outcome in (True, False):
            self._schedule([way for way in ways if way.recorded.outcomes[depth] is outcome], depth + 1)

    def _note_common(self, ways: Sequence[_Way], depth: int, truth: Any) -> None:
        if len({way.recorded.outcomes[depth] for way in ways}) > 1 and truth not in self._common:
            self._common.append(truth)

    def _returned(self, way: _Way) -> tuple[list[Any], dict[str, Any]]:
        values = [self._mapped(way, each) for each in _outputs(way.recorded.functional)]
        count = len(values) - len(way.recorded.asked) - len(way.recorded.results)
        return values[:count], dict(zip(way.recorded.results, values[count:], strict=False))

    def _mapped(self, way: _Way, value: Any) -> Any:
        import torch

        return torch.fx.node.map_arg(value, way.values.__getitem__)

    def _advance(self, way: _Way) -> Any:
        """Add the nodes of a way up to its next collective, which is returned; None at the end."""
        while way.place < len(way.nodes):
            node = way.nodes[way.place]
            if node.op == "output":
                return None
            if group_name(node) is not None:
                return node
            way.values[node] = self._node(way, node)
            way.place += 1
        return None

    def _node(self, way: _Way, node: Any) -> Any:
        args, kwargs = self._mapped(way, node.args), self._mapped(way, node.kwargs)
        if node.op == "placeholder":
            key: Hashable = ("placeholder", way.place)
        elif node.op == "get_attr":
            key = ("constant", key_of(attribute_of(way.recorded.functional, node)))
        else:
            own = id(node) if str(node.target).removeprefix("aten.") in EMPTY else None
            key = (str(node.target), self._key(args), self._key(kwargs), draw_of(node), own)
        if key not in self._made:
            self._made[key] = self._copied(way, node, args, kwargs)
        return self._made[key]

    def _key(self, value: Any) -> Hashable:
        return key_of(value, self._numbers.__getitem__)

    def _copied(self, way: _Way, node: Any, args: Any, kwargs: Any) -> Any:
        target = node.target
        if node.op == "get_attr":
            target = f"constant_{len(self._made)}"
            setattr(self._root, target, attribute_of(way.recorded.functional, node))
        return self._noted(self.graph.create_node(node.op, target, args, kwargs), dict(node.meta))

    def _noted(self, made: Any, meta: dict[str, Any]) -> Any:
        made.meta = meta
        self._numbers[made] = len(self._numbers)
        return made

    def _collective(self, ways: Sequence[_Way], nodes: Sequence[Any], depth: int) -> None:
        """Add a collective of some ways; its operands are those of the way that each rank takes."""
        first = nodes[0]
        called = [self._mapped(way, way.named(node)) for way, node in zip(ways, nodes, strict=True)]
        args = tuple(self._selected(each, ways, depth) for each in zip(*called, strict=True))
        made = self._noted(
            self.graph.create_node("call_function", first.target, args, first.kwargs), dict(first.meta)
        )
        for way, node in zip(ways, nodes, strict=True):
            way.values[node] = made
            way.place += 1

    def _selected(self, values: Sequence[Any], ways: Sequence[_Way], depth: int = 0) -> Any:
        """The value of the way that is taken, of a value of each way."""
        if isinstance(values[0], list | tuple):
            if len({len(each) for each in values}) > 1:
                raise self._unselected(values)
            return [self._selected(each, ways, depth) for each in zip(*values, strict=True)]
        return self._of_ways(list(zip(ways, values, strict=True)), depth)

    def _of_ways(self, ways: Sequence[tuple[_Way, Any]], depth: int) -> Any:
        """The value among ways that are alike up to a truth value by its number."""
        first = ways[0][1]
        if len({self._key(value) for _, value in ways}) == 1:
            return first
        if not all(hasattr(value, "meta") for _, value in ways) or (
            len({meta_key(value) for _, value in ways}) > 1
        ):
            raise self._unselected([value for _, value in ways])
        sides = [
            [each for each in ways if each[0].recorded.outcomes[depth] is outcome]
            for outcome in (True, False)
        ]
        parts = [self._of_ways(side, depth + 1) for side in sides if side]  # on the other one no step ends
        if len({self._key(part) for part in parts}) == 1:
            return parts[0]
        holds = self._truth(ways[0][0], depth)
        key = ("select", self._key(holds), *map(self._key, parts))
        if key not in self._made:
            made = self.graph.call_function(select_way, (holds, *parts))
            meta = {**dict(holds.meta), "val": parts[0].meta.get("val")}
            self._made[key] = self._noted(made, meta)
        return self._made[key]

    def _truth(self, way: _Way, number: int) -> Any:
        """The node of a truth value that a way asked for.

        Raises:
            UnsupportedError: it is computed after a collective that the ways do not share.
        """
        outputs = _outputs(way.recorded.functional)
        node = outputs[way.recorded.asked.index(number) - len(way.recorded.asked)]
        if node in way.nodes and node not in way.values:
            raise UnsupportedError(
                f"{self._where}: a branch asks data at {shown_place(place_of_node(node))} after other collectives on "
                "one way than on the other, got a truth value that is not known before them, expected the same "
                "collectives up to the branch"
            )
        return self._mapped(way, node)

    def _unselected(self, values: Sequence[Any]) -> UnsupportedError:
        kinds = " and ".join(dict.fromkeys(_told(value) for value in values))
        return UnsupportedError(
            f"{self._where}: a branch that asks data gives values of other kinds on its ways, got {kinds}, expected "
            "tensors of one shape and element type"
        )


def _told(value: Any) -> str:
    t = value.meta.get("val") if hasattr(value, "meta") else value
    return f"{t.dtype} of shape {tuple(t.shape)}" if hasattr(t, "shape") else f"{type(t).__name__}"


def by_outcomes(ways: Sequence[Recorded]) -> Iterator[Recorded]:
    """The ways in the order of a tree, true before false."""
    yield from sorted(ways, key=lambda way: [not outcome for outcome in way.outcomes])
