"""Changes of a step of PyTorch that are tried as advice: what ranks are given, wrappers and modules."""

from __future__ import annotations

import copy
import fnmatch
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from popsr.bridge._advice import Variant, redeclared
from popsr.bridge._proof.proof import Proof
from popsr.bridge._step.arguments import Argument, Step
from popsr.bridge._step.paths import named_paths, path_patterns
from popsr.bridge._step.step import BridgedStep
from popsr.bridge.torch._ranks.job import grouping_of_labels, grouping_of_ranks, is_running
from popsr.bridge.torch._states.leaves import Leaf
from popsr.bridge.torch._step_of import RANDOM_SEED
from popsr.bridge.torch._wrappers.dtensors import SharedBatch

__all__ = ["Reader", "changes", "may_be_wrapped"]

_CONVERT = "convert batch norms: nn.SyncBatchNorm.convert_sync_batchnorm(model)"
_WRAP = "wrap the model: DistributedDataParallel(model)"
_SEED = "draw the same random numbers on all ranks: one torch.manual_seed for all, and equal=['random seed']"
_ASKED = 8  # values whose explanations are asked for


@dataclass(frozen=True, slots=True)
class Reader:
    """The call that reads a step, to read it again with another model.

    Attributes:
        read: the step, of a model and an optimiser as ``trace_step`` takes them; with synchronous batch norms if True.
        model: the user's.
        optimizer: the user's.
        synchronous: True if batch norms were made synchronous already.
        norms_are_local: True if some batch norm computes the statistics of its rank.
        may_be_wrapped: True for a model whose parameters are plain tensors without a wrapper or hooks.
    """

    read: Callable[[Any, Any, bool], BridgedStep]
    model: Any
    optimizer: Any
    synchronous: bool
    norms_are_local: bool
    may_be_wrapped: bool

    def converted(self) -> BridgedStep:
        """The step with synchronous batch norms."""
        return self.read(self.model, self.optimizer, True)

    def wrapped(self) -> BridgedStep:
        """The step of a wrapped model."""
        return self.read(*_wrapped(self.model, self.optimizer), self.synchronous)


def changes(
    step: BridgedStep, apart: Collection[str], shared: SharedBatch | None, reader: Reader
) -> Iterator[Variant]:
    """Changes of a step that may be cures.

    Args:
        step: the step.
        apart: paths of states whose initial values differ while nothing is declared of them, and of what belongs to
            them.
        shared: data that ranks which split layers may share.
        reader: reads it again.
    """
    world = step.ir.replication_factor
    everyone = grouping_of_labels([0] * world)
    if shared is not None:
        groups = dict.fromkeys(shared.paths, grouping_of_ranks(shared.groups, world, "trace_step"))
        text = f"let ranks that split layers share their batch: {shared.option}"
        yield Variant(text, lambda proof: redeclared(proof.step, groups))
    if apart:
        start = dict.fromkeys(apart, everyone)
        text = f"start from equal values of {named_paths(sorted(apart))} on all ranks: one seed, or dist.broadcast"
        yield Variant(text, lambda proof: redeclared(proof.step, start))
        states = [each for each in step.states if each.undeclared]
        text = f"declare that shards differ: groups={_as_option(states, step.states)}"
        yield Variant(text, lambda proof: _declared(proof, start))
    if any(each.path == RANDOM_SEED for each in step.states):
        yield Variant(_SEED, _with_one_seed)
    if reader.norms_are_local and not reader.synchronous:
        yield Variant(_CONVERT, lambda _: reader.converted())
    if reader.may_be_wrapped:
        text = f"{_CONVERT}; {_WRAP}" if reader.synchronous else _WRAP
        yield Variant(text, lambda _: reader.wrapped(), takes_means=True)


def _as_option(states: Sequence[Argument], all_states: Sequence[Argument]) -> str:
    """Groups of states as the keyword of ``trace_step``; a pattern for layers where it fits no other state."""
    chosen = {each.path for each in states}
    others = [each.path for each in all_states if each.path not in chosen]
    found: dict[str, list[list[int]]] = {}
    for groups in dict.fromkeys(each.grouping for each in states):
        paths = [each.path for each in states if each.grouping == groups]
        patterns = path_patterns(paths)
        fits = any(fnmatch.fnmatchcase(path, pattern) for pattern in patterns for path in others)
        found |= {key: [*map(list, groups.groups)] for key in (paths if fits else patterns)}
    return str(found)


def _declared(proof: Any, start: Mapping[str, Any]) -> Step | None:
    """A step whose states may start apart, where equal ones would be added up as if they were shards."""
    equal = redeclared(proof.step, start).prove()  # type: ignore[attr-defined]
    if equal.drifting or not equal.suspicious:
        return None
    states = {each.path: each.grouping for each in proof.step.states if each.undeclared}
    return redeclared(proof.step, states)


def _with_one_seed(proof: Any) -> Step | None:
    """A step whose random numbers are equal on all ranks, where only they make states differ."""
    found: Proof = proof
    seed = found.step.argument(RANDOM_SEED)
    values = (*found.drifting, *found.unequal)
    whys = [each.explanation for each in values[:_ASKED] if each.pending is None]
    if not whys or any(why is None or why.steps[-1].tensor is not seed.tensor for why in whys):
        return None
    world = found.step.ir.replication_factor
    return redeclared(found.step, {RANDOM_SEED: grouping_of_labels([0] * world)})


def may_be_wrapped(model: Any, leaves: Sequence[Leaf]) -> bool:
    """True for a model without DTensors or hooks of parameters, outside of a job of the user.

    Args:
        model: the user's.
        leaves: tensors of its step.
    """
    import torch

    has_hooks = isinstance(model, torch.nn.Module) and any(
        p._backward_hooks or p._post_accumulate_grad_hooks for p in model.parameters()
    )
    return not (has_hooks or is_running() or any(leaf.layout is not None for leaf in leaves))


def _wrapped(model: Any, optimizer: Any) -> tuple[Any, Any]:
    """Functions that make the model in ``DistributedDataParallel``, and the optimiser for it."""
    import torch
    from torch.nn.parallel import DistributedDataParallel

    if not isinstance(model, torch.nn.Module):
        return lambda: DistributedDataParallel(model()), optimizer
    copied: list[Any] = []

    def make() -> Any:
        copied[:] = copy.deepcopy((model, optimizer))  # together, as they share parameters
        return DistributedDataParallel(copied[0])

    is_made = optimizer is None or isinstance(optimizer, torch.optim.Optimizer)
    return make, (lambda _: copied[1]) if is_made and optimizer is not None else optimizer
