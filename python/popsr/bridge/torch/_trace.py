"""``trace_step``: a training step of PyTorch, with its model and its optimiser, as a program."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

from popsr import _core
from popsr._support.host.arguments import read_choice, read_int, read_mapping
from popsr._support.host.frameworks import framework
from popsr._support.host.garbage import collected_rarely
from popsr._support.text.entry_points import public
from popsr._support.text.phases import phase
from popsr._support.text.shown import shown
from popsr.bridge._step.arguments import Loss, Reading, groups_of_holders
from popsr.bridge._step.builder import StepBuilder, Unsupported
from popsr.bridge._step.reading import read_as
from popsr.bridge._step.step import BridgedStep
from popsr.bridge.torch._built import Seen, built
from popsr.bridge.torch._changes import Reader, changes, may_be_wrapped
from popsr.bridge.torch._one_device import Cuts, Parts, check_alone, joined
from popsr.bridge.torch._ranks.construction import Construction, wrappers_made
from popsr.bridge.torch._ranks.job import (
    grouping_of_one,
    grouping_of_ranks,
    grouping_of_values,
    is_running,
    rank_of,
)
from popsr.bridge.torch._ranks.merge import merge
from popsr.bridge.torch._ranks.meshes import axes_of, noted_meshes
from popsr.bridge.torch._ranks.stages import have_messages
from popsr.bridge.torch._ranks.united import united
from popsr.bridge.torch._states.around import Beside
from popsr.bridge.torch._states.leaves import Leaf, StepCall, prepare_optimizer
from popsr.bridge.torch._states.second_trace import record_steps
from popsr.bridge.torch._step_of import Groups
from popsr.bridge.torch._tracing.capture import Recorded, resolve_writes
from popsr.bridge.torch._tracing.generators import check_found
from popsr.bridge.torch._tracing.joined import join
from popsr.bridge.torch._tracing.losses import joined_losses, loss_of, rows_of, seeds_noted
from popsr.bridge.torch._tracing.synchronised import has_local_norms, local_norms_synchronised
from popsr.bridge.torch._user.modules import modules_named
from popsr.bridge.torch._user.quiet import without_debug_lines
from popsr.bridge.torch._wrappers.dtensors import SharedBatch, shared_batch, splitting_ranks
from popsr.bridge.torch._wrappers.recipes import check_read, followed, is_wrapped, recipe_for
from popsr.errors import ArgumentTypeError, ReplicaError, UnsupportedError
from popsr.replicas import ReplicaGrouping

__all__ = ["trace_step"]

Ranks = Literal["all", "first"]


@public
def trace_step(
    step: Callable[..., Any],
    model: Any,
    optimizer: Any = None,
    *batch: Any,
    replicas: int,
    groups: Mapping[str, Any] | None = None,
    equal: Iterable[str] = (),
    process_groups: Mapping[str, Any] | None = None,
    ranks: Ranks = "all",
    cuts: Mapping[str, Any] | None = None,
    unsupported: Unsupported = "error",
) -> BridgedStep:
    """Read a training step: ``step(model, optimizer, *batch)``, which computes gradients and updates the model.

    No process group is needed: the step is traced on fake tensors, as each rank in turn, and collectives of
    ``torch.distributed``, functional or not, become those of popsr. Nothing is computed, and model and optimiser stay
    as they are. In a job that the user has started, of whatever backend, its rank alone is traced.

    Parameters, buffers and the optimiser's state are states, under their names in ``state_dict`` and
    ``optimizer.NAME.KEY``; gradients are none when the step begins. Values of the batch are data, under the names of
    the step's arguments; the results are ``result`` and what follows. ``DistributedDataParallel``, anywhere in the
    model, reduces what torch reduces; hooks of parameters are run; broadcasts while the model is made arrive.

    Args:
        step: the function. Lines of errors and explanations are of what it calls.
        model: the module, or a function without arguments that makes it, which is called as each rank in turn, so that
            it may make process groups, meshes and shards.
        optimizer: an optimiser of its parameters, or a function of the model that makes it. None: the step is called
            without.
        batch: what the step takes besides: for one replica, tensors in any structure; numbers are constants. A single
            function of the rank that returns a tuple gives each replica its own.
        replicas: number of ranks.
        groups: replicas that hold equal values, by patterns of paths as of ``fnmatch``: a ``ReplicaGrouping``, lists
            of ranks, or a number for each rank. A parameter's groups are those of its optimiser state. Default: of
            DTensors those of their placements, of others those of equal initial values; of data none. Of states whose
            initial values differ while nothing is declared the proof says so, and is not ok.
        equal: patterns of paths of what all replicas share, such as data that is not different per replica, and
            ``random seed`` where all draw the same random numbers.
        process_groups: groups of ranks by the name of a process group, in a job of the user, for names whose other
            groups are not regular.
        ranks: "all" compares what all ranks do; "first" traces the first and takes the others to do the same.
        cuts: for ``like=``, by patterns of paths, how ranks hold parts of a tensor of one device, where their initial
            values do not tell: a dimension, along which each group of replicas has a part, or a function of the whole
            tensor and the rank that gives the rank's part, and moves elements only; or the path of a state in the
            program of one device, where it has another name there, alone or in a pair with one of these. Also of
            results, which groups return parts of.
        unsupported: "conservative" lets a step with ops that popsr lacks be proved.
    Raises:
        MissingPackageError: PyTorch is not installed, or too old.
        UnknownNameError: a pattern of ``groups``, ``equal`` or ``cuts`` fits nothing.
        UnsupportedOpsError: the step has ops that popsr lacks; all of them are named, with lines.
        UnsupportedError: Python's control flow or a shape depends on the data, or ranks run different ops.
        ReplicaError: process groups do not fit together, or not to the number of replicas.
    """
    where = "trace_step"
    framework(where, "torch")
    world = read_int(f"{where}: replicas", replicas, 1, _core.MAX_REPLICAS)
    read_choice(where, "ranks", ranks, ("all", "first"))
    patterns = Groups(groups, equal, world, where)
    declared = read_mapping(where, "process_groups", process_groups)
    named = {name: grouping_of_ranks(value, world, where) for name, value in declared.items()}

    places = Cuts(cuts, where)

    def read(model: Any, optimizer: Any, synchronous: bool = False) -> BridgedStep:
        with phase(where, "trace"), local_norms_synchronised() if synchronous else contextlib.nullcontext():
            seen = _trace_ranks(step, model, optimizer, batch, world, ranks, where)
        grouping = functools.partial(_grouping, seen, named, world, where)
        builder = StepBuilder(world, where=where, unsupported=unsupported)
        shared = _shared(seen, patterns, world)
        builder.hint(None if shared is None else shared.hint)
        made, apart = built(seen, grouping, patterns, places, builder, world)
        patterns.require_used_in(made)
        places.require_used([*(each.path for each in made.arguments), *(each.path for each in made.results)])
        reader = Reader(read, model, optimizer, synchronous, seen.has_local_norms, seen.may_be_wrapped)
        variants = changes(made, apart, shared, reader)

        def again(how: Reading) -> BridgedStep:
            check_alone(model, seen.leaves[0], where)
            if how.alone:
                return _alone(how, step, model, optimizer, _whole_batch(seen, batch, patterns, places, world))
            with read_as(how):
                others = StepBuilder(world, where=where, unsupported="conservative")
                read_again, _ = built(seen, grouping, patterns, places, others, world)
            return dataclasses.replace(read_again, again=again)

        return dataclasses.replace(made, variants=tuple(variants), loss=seen.loss, again=again)

    return read(model, optimizer)


def _alone(how: Reading, step: Any, model: Any, optimizer: Any, batch: Callable[[int], Any]) -> BridgedStep:
    """The step, or another one, as the only rank of a job."""
    where = "trace_step"
    seen = _trace_ranks(how.like or step, model, optimizer, (batch,), 1, "all", where)
    grouping = functools.partial(_grouping, seen, {}, 1, where)
    with read_as(how):
        builder = StepBuilder(1, where=where, unsupported="conservative")
        return built(seen, grouping, Groups(None, (), 1, where), Cuts(None, where), builder, 1)[0]


def _whole_batch(
    seen: Seen, batch: Sequence[Any], patterns: Groups, places: Cuts, world: int
) -> Callable[[int], tuple[Any, ...]]:
    """The batch of one device, as a function of its rank."""
    each = grouping_of_values(range(world))
    rows = seen.data if len(seen.data) == world else seen.data * world
    data = [leaf for leaf in seen.leaves[0] if leaf.role == "data"]
    parts = [
        Parts(
            leaf.path,
            groups_of_holders(patterns.of(leaf.path) or each, leaf.held),
            places.of(leaf.path).cut,
            [of_rank[i] for of_rank in rows],
        )
        for i, leaf in enumerate(data)
    ]
    return lambda rank: joined(batch[0](rank) if _is_function(batch) else batch, parts)


def _grouping(seen: Seen, named: Mapping[str, Any], world: int, where: str, name: str) -> ReplicaGrouping:
    """The groups that collectives of a process group are over."""
    found = named.get(name) or seen.merged.groupings.get(name)
    if found is not None:
        return found
    if name not in seen.first.groups:
        raise ReplicaError(
            f"{where}: unknown process group, got {shown(name)}, expected one of the step's own"
        )
    return grouping_of_one(name, seen.first.groups[name], world, where)


@collected_rarely()
def _trace_ranks(
    step: Any, model: Any, optimizer: Any, batch: Sequence[Any], world: int, ranks: str, where: str
) -> Seen:
    """Trace the step as each rank; the first comes last, so that results are named as it names them."""
    import torch

    if not isinstance(model, torch.nn.Module) and not callable(model):
        raise ArgumentTypeError(
            f"{where}: model is not a module, got {type(model).__name__}, expected nn.Module"
        )
    construction = Construction(lambda: _made(model, optimizer, where), where)
    numbers = [0] if ranks == "first" or is_running() else list(range(world))
    if len(numbers) > 1 and not isinstance(model, torch.nn.Module):
        construction.learn(numbers, world)
    recorded: dict[int, Recorded] = {}
    leaves: dict[int, list[Leaf]] = {}
    layouts: dict[int, dict[str, Any]] = {}
    splitting: dict[int, dict[str, tuple[int, ...]]] = {}
    losses: set[Loss] = set()
    beside = Beside()
    waiting = list(reversed(numbers))
    while waiting:
        rank = waiting.pop(0)
        with (
            phase(where, f"rank {rank}"),
            rank_of(rank, world, where),
            noted_meshes(world) as meshes,
            without_debug_lines(),
        ):
            made = construction.made(rank) if len(numbers) > 1 else _made(model, optimizer, where)
            call = _call(step, *made, batch, rank, where)
            with modules_named(call.model), seeds_noted() as seeds:
                ways, inputs = record_steps(call, where)
                if call.add_beside(beside):
                    ways, inputs = record_steps(call, where)
            losses.add("" if seeds.given else loss_of([way.module for way in ways], rows_of(call.leaves)))
            others = [way for each in recorded.values() for way in each.ways]
            for way in ways:
                resolve_writes(way, inputs, others)
            found = recorded[rank] = join(ways, call.labels(), where)
            leaves[rank], results, layouts[rank] = call.leaves, found.results, call.layouts
            axes = axes_of(meshes, (leaf.layout[0] for leaf in call.leaves if leaf.layout is not None), world)
            splitting[rank] = splitting_ranks(call.model)
        # Ranks before this one lack what it writes or sets beside the model.
        if call.beside().adds_to(beside):
            waiting = sorted({*waiting, *recorded} - {rank}, reverse=True)
    of_ranks, held, stages = [recorded[rank] for rank in numbers], [leaves[rank] for rank in numbers], None
    returned: list[tuple[int, ...] | None] = [None] * len(results)
    if have_messages(of_ranks):
        if len(numbers) < world:
            raise UnsupportedError(
                f'{where}: messages between two ranks, got a trace of rank 0 alone, expected ranks="all" and no '
                "process group of the caller: each rank is traced"
            )
        of_ranks, held, stages, returned = united(of_ranks, held, where)
        results = of_ranks[0].results
    _compare_leaves(held, where)
    merged = merge(of_ranks, where, stages)
    data = [[leaf.local for leaf in own if leaf.role == "data"] for own in held]
    if len(numbers) < world and _is_function(batch):
        data = [list(_tensors_of(batch, rank)) for rank in range(world)]
    drawn = [recorded[r].drawn for r in numbers]
    check_found([each for each in drawn if each is not None])
    return Seen(
        merged,
        of_ranks[0],
        held,
        dict(zip(results, returned, strict=True)),
        [layouts[rank] for rank in numbers],
        data,
        drawn,
        axes,
        [splitting[r] for r in numbers],
        joined_losses(losses),
        has_local_norms(call.model),
        not is_wrapped(call.model) and may_be_wrapped(model, call.leaves),
        step,
    )


def _compare_leaves(of_ranks: Sequence[list[Leaf]], where: str) -> None:
    """Refuse ranks that hold other tensors than the first: other names, shapes or element types."""
    for rank, leaves in enumerate(of_ranks):
        for own, first in itertools.zip_longest(leaves, of_ranks[0]):
            texts = [
                "none" if leaf is None else f"{shown(leaf.path)} {leaf.local.dtype} {list(leaf.local.shape)}"
                for leaf in (first, own)
            ]
            if texts[0] != texts[1]:
                raise UnsupportedError(
                    f"{where}: ranks 0 and {rank} hold different tensors, got {texts[0]} and {texts[1]}, expected the "
                    "same names, shapes and types on all ranks, and as many steps of schedulers"
                )


def _is_function(batch: Sequence[Any]) -> bool:
    """True if the batch is a function of the rank."""
    import torch

    return len(batch) == 1 and callable(batch[0]) and not isinstance(batch[0], torch.Tensor)


def _tensors_of(batch: Sequence[Any], rank: int) -> Iterator[Any]:
    import torch
    import torch.utils._pytree as trees

    return (t for t in trees.tree_leaves(tuple(batch[0](rank))) if isinstance(t, torch.Tensor))


def _made(model: Any, optimizer: Any, where: str) -> tuple[Any, Any]:
    """The model and the optimiser, of functions that make them."""
    import torch

    _check_makers(model, optimizer, where)
    with wrappers_made():
        made = model if isinstance(model, torch.nn.Module) else model()
    if not isinstance(made, torch.nn.Module):
        raise ArgumentTypeError(
            f"{where}: model is not a module, got {type(made).__name__}, expected nn.Module"
        )
    if optimizer is not None and not isinstance(optimizer, torch.optim.Optimizer):
        optimizer = optimizer(made)
    return made, optimizer


def _check_makers(model: Any, optimizer: Any, where: str) -> None:
    """Raise unless the functions can be called as they will be.

    Raises:
        ArgumentTypeError: the model's needs arguments, or the optimiser's is a class of torch, which takes parameters.
    """
    import torch

    if not isinstance(model, torch.nn.Module):
        try:
            inspect.signature(model).bind()
        except TypeError as error:
            raise ArgumentTypeError(
                f"{where}: model needs arguments, got {_name_of(model)} with {error}, expected a module, or a function "
                "without arguments that makes it"
            ) from None
        except ValueError:  # functions of C have none
            pass
    kind = getattr(optimizer, "func", optimizer)
    if isinstance(kind, type) and issubclass(kind, torch.optim.Optimizer):
        raise ArgumentTypeError(
            f"{where}: optimizer takes parameters, got {_name_of(kind)}, expected an optimiser, or a function of the "
            f"model: lambda model: {kind.__name__}(model.parameters(), ...)"
        )


def _name_of(function: Any) -> str:
    return shown(getattr(function, "__name__", type(function).__name__))


def _call(step: Any, model: Any, optimizer: Any, batch: Sequence[Any], rank: int, where: str) -> StepCall:
    check_read(optimizer)
    read = recipe_for(model)
    given = tuple(batch[0](rank)) if _is_function(batch) else tuple(batch)
    if optimizer is not None:
        prepare_optimizer(optimizer, where)
    return StepCall(followed(step, read, optimizer), read, optimizer, given, where)


def _shared(seen: Seen, patterns: Groups, world: int) -> SharedBatch | None:
    """Data that ranks which split layers may share."""
    if len(seen.splitting) != world:
        return None
    data = (leaf for leaf in seen.leaves[0] if leaf.role == "data" and leaf.layout is None)
    return shared_batch([leaf.path for leaf in data if not patterns.of(leaf.path)], seen.splitting)
