"""The program of what was traced: states and data with their groups, the merged graph, and its results."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from popsr._program.building.location import short_place
from popsr._program.tensor import Tensor
from popsr._support.text.shown import shown
from popsr.analysis._axes import ReplicaAxes
from popsr.bridge._step.arguments import Loss, Placement
from popsr.bridge._step.builder import StepBuilder
from popsr.bridge._step.places import Place, at_definition
from popsr.bridge._step.step import BridgedStep
from popsr.bridge.torch._dtypes import Scalar, dtype_of
from popsr.bridge.torch._importer import Importer, array_of
from popsr.bridge.torch._one_device import Cuts, start_of, whole_of
from popsr.bridge.torch._ranks.job import grouping_of_holders, grouping_of_values
from popsr.bridge.torch._ranks.merge import Merged
from popsr.bridge.torch._ranks.varying import Varying
from popsr.bridge.torch._states.leaves import Leaf
from popsr.bridge.torch._step_of import RANDOM_SEED, Groups, RandomSeeds, Values, add_results
from popsr.bridge.torch._tracing.capture import Recorded
from popsr.bridge.torch._tracing.generators import Drawn
from popsr.bridge.torch._user.locations import place_of_node, shown_place
from popsr.errors import ReplicaError, UnsupportedError
from popsr.replicas import ReplicaGrouping

__all__ = ["Seen", "built"]


@dataclass
class Seen:
    """The result of tracing: one graph, the tensors on each rank that was traced, and the batch of every rank.

    Results are named with the ranks that return them, None if all do; layouts are those of DTensors on each rank.
    """

    merged: Merged
    first: Recorded
    leaves: list[list[Leaf]]
    results: dict[str, tuple[int, ...] | None]
    layouts: list[dict[str, Any]]
    data: list[list[Any]]
    drawn: list[Drawn | None]
    axes: ReplicaAxes | None
    splitting: list[dict[str, tuple[int, ...]]]
    loss: Loss
    has_local_norms: bool
    may_be_wrapped: bool
    step: Any


def built(
    seen: Seen,
    grouping: Callable[[str], ReplicaGrouping],
    patterns: Groups,
    places: Cuts,
    builder: StepBuilder,
    world: int,
) -> tuple[BridgedStep, list[str]]:
    """The step, and paths of states that start apart while nothing is declared of them."""
    _check_seeds(seen, patterns)
    builder.axes = seen.axes
    undeclared: list[str] = []
    with builder:
        inputs: list[Any] = []
        states: list[str] = []
        labels: dict[Hashable, list[Hashable]] = {}
        data = zip(*seen.data, strict=True)
        owned = {leaf.name or leaf.path: leaf for leaf in reversed(seen.leaves[0])}
        for each in zip(*seen.leaves, strict=True):
            leaf = each[0]
            rows = next(data) if leaf.role == "data" else [other.local for other in each]
            _require_values(leaf, rows[0])
            values = Values([array_of(row) for row in rows], world)
            holders = range(world) if leaf.held is None else leaf.held
            owners = labels.get((leaf.owner, leaf.held)) or [None] * world
            placed = leaf.layout is not None and len(each) == world
            own = [other.label() for other in each] if placed else values.labels()
            if leaf.origin is not None:
                own = [other.origin for other in each] * (world // len(each))
            mine: list[Hashable] = list(zip(owners, own, strict=True))
            labels.setdefault((leaf.owner, leaf.held), mine)
            kinds = [{each[rank] for rank in holders} for each in (mine, owners)]
            grouping_of_own = _own_grouping(mine, leaf)
            apart = grouping_of_own is None or (not placed and len(kinds[0]) > len(kinds[1]))
            said = places.of(leaf.path)
            whole = whole_of([other.layout for other in each]) if placed else None
            placement = Placement(said.cut, whole, leaf.owner, start_of(leaf, owned), leaf.name, said.name)
            with at_definition(seen.step):
                inputs.append(
                    _argument(
                        builder, leaf, values, patterns, grouping_of_own or builder.each(), apart, placement
                    )
                )
            if leaf.role == "state":
                states.append(leaf.path)
                if patterns.of(leaf.path, leaf.owner) is None and (apart or leaf.owner in undeclared):
                    undeclared.append(leaf.path)
        for path, place, varying in _of_each_rank(seen.merged):
            values = Values([array_of(row) for row in varying.values], world)
            groups = grouping_of_values(values.labels())
            beside = Placement(start="own")
            with builder.at(place):
                state = builder.state(path, values.of_groups(groups), groups, placement=beside)
            inputs.append(Scalar(state) if varying.is_number else state)
        seeds = RandomSeeds(builder, patterns, world, seen.drawn)
        made = Importer(builder, grouping, seeds, seeds.of_generator).run(seen.merged.module, inputs)
        for path, old, new in zip(states, inputs, made, strict=False):
            if new is not old:
                builder.update(path, new)
        count = len(states) + len(seen.results)
        add_results(builder, _returned(seen, patterns, places, world), made[len(states) : count])
        seeds.finish()
        found = builder.finish()
    _check_common(found, dict(zip(seen.first.common, made[count:], strict=True)))
    return found, undeclared


def _of_each_rank(merged: Merged) -> Iterator[tuple[str, Place | None, Varying]]:
    """Values that differ between ranks, called by the user's line that first reads them."""
    if not merged.varying:
        return
    nodes = merged.module.graph.nodes
    first: dict[Any, Any] = {}
    for node in nodes:
        for read in node.all_input_nodes:
            first.setdefault(read, node)
    given = [node for node in nodes if node.op == "placeholder"][-len(merged.varying) :]
    paths: dict[str, int] = {}
    for node, varying in zip(given, merged.varying, strict=True):
        place = None
        while place is None and node in first:
            node = first[node]
            place = place_of_node(node)
        path = "value of each rank" + (f" at {short_place(f'{place.file}:{place.line}')}" if place else "")
        paths[path] = paths.get(path, 0) + 1
        yield path + (f" ({paths[path]})" if paths[path] > 1 else ""), place, varying


def _returned(seen: Seen, patterns: Groups, places: Cuts, world: int) -> dict[str, dict[str, Any]]:
    """Ranks that return each result, and the parts of one device's that these are."""
    each = grouping_of_values(range(world))
    found: dict[str, dict[str, Any]] = {}
    for path, held in seen.results.items():
        layouts = [of_rank[path] for of_rank in seen.layouts if path in of_rank]
        whole = whole_of(layouts) if len(layouts) == world else None
        parts = patterns.of(path) or each
        found[path] = {"held": held, "cut": places.of(path).cut, "parts": parts, "whole": whole}
    return found


def _check_common(step: BridgedStep, truths: Mapping[str, Any]) -> None:
    """Refuse a branch with collectives on one way only whose truth value may differ between ranks.

    Raises:
        UnsupportedError: with its line.
    """
    facts = step.prove().facts if truths else None
    for place, truth in truths.items():
        value = truth.tensor if isinstance(truth, Scalar) else truth
        if facts is not None and isinstance(value, Tensor) and len(facts.partition(value).blocks) > 1:
            raise UnsupportedError(
                f"trace_step: a branch at {place} has other collectives on one way than on the other, or steps of "
                "schedulers, got a truth value that may differ between ranks, expected one that is reduced before: "
                "ranks that go apart wait for each other, take part in a collective that is not theirs, or train at "
                "other rates"
            )


def _check_seeds(seen: Seen, patterns: Groups) -> None:
    """Refuse random seeds that are said to be equal where the step seeds ranks apart."""
    grouping = patterns.of(RANDOM_SEED)
    if grouping is None:
        return
    for states, node in seen.merged.draws:
        for members in grouping.groups:
            if len({states[member] for member in members}) > 1:
                raise ReplicaError(
                    f"trace_step: ranks that share {shown(RANDOM_SEED)} seed generators apart before "
                    f"{shown_place(place_of_node(node))}, got ranks {list(members)}, expected one seed on all of them"
                )


def _require_values(leaf: Leaf, value: Any) -> None:
    if value.is_meta:
        raise UnsupportedError(
            f"trace_step: {leaf.role} {shown(leaf.path)} has no values, got a tensor on the meta device, expected "
            "one with values: they say what is equal before the step"
        )


def _own_grouping(labels: Sequence[Hashable], leaf: Leaf) -> ReplicaGrouping | None:
    """The grouping of the ranks that hold a tensor, by equal labels; None if such groups cannot be."""
    return grouping_of_values(labels) if leaf.held is None else grouping_of_holders(labels, leaf.held)


def _argument(
    builder: StepBuilder,
    leaf: Leaf,
    values: Values,
    patterns: Groups,
    own: ReplicaGrouping,
    apart: bool,
    placement: Placement,
) -> Any:
    """One leaf on all ranks.

    Args:
        builder: the program.
        leaf: the tensor, as the first rank has it.
        values: what ranks have.
        patterns: the groups that the user declares.
        own: ranks that hold equal values: by the placements of a DTensor, else by the values themselves; of the
            optimiser's state by those of its parameter, too.
        apart: True if values differ for which there is no placement.
        placement: how ranks hold parts of a tensor of one device.
    """
    kind = dtype_of(leaf.local.dtype)
    declared = patterns.of(leaf.path, leaf.owner)
    if leaf.role != "state":
        shared = own if leaf.role == "number" else builder.each()
        grouping = declared or shared
        rows = values.of_groups(grouping)
        return builder.data(
            leaf.path,
            tuple(leaf.local.shape),
            kind,
            grouping,
            example=rows,
            placement=placement,
            held=leaf.held,
        )
    grouping = declared or own
    if leaf.held is not None:
        values = values.filled(grouping, leaf.held)
    if not values.equal_in(grouping):
        raise ReplicaError(
            f"trace_step: initial values of {shown(leaf.path)} differ inside its groups, got {grouping}, expected "
            "equal values on the replicas of a group"
        )
    undeclared = apart and declared is None
    return builder.state(
        leaf.path,
        values.of_groups(grouping),
        grouping,
        dtype=kind,
        undeclared=undeclared,
        sharded=leaf.is_sharded,
        placement=placement,
        held=leaf.held,
    )
