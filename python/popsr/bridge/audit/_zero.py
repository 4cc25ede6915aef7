"""Flat shards of DeepSpeed ZeRO, cut into parameters by the shapes that the files of the model say.

Stages 1 and 2: each group of parameters is one flat vector, of which each data rank has an equal part; the end is
filled up. Stage 3: each parameter is cut for itself, and a rank has its parts of all of them one behind the other.
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from popsr._support.host.files import shown_name
from popsr.bridge.audit._differences import first_byte
from popsr.bridge.audit._held import Array, Contents, Held
from popsr.errors import CheckpointError
from popsr.io._budget import Budget
from popsr.io._pickle import Pairs, Record

__all__ = ["whole_states"]

_STATE = "optimizer_state_dict"
_MASTER = {1: "single_partition_of_fp32_groups", 2: "single_partition_of_fp32_groups", 3: "fp32_flat_groups"}
_ALIGNED = 2  # elements of each rank that the last one may be filled up with
_STAGES = {"optimizer_states": 1, "gradients": 2, "weights": 3}  # members of DeepSpeed's enumeration


@dataclass(frozen=True)
class _Flat:
    """One kind of value of all parameters of a group: of each data rank a vector, in one or several tensors."""

    name: str
    parts: Sequence[_Vector]


class _Vector:
    """Tensors one behind the other."""

    def __init__(self, tensors: Sequence[Held]) -> None:
        self.tensors = tensors
        self._ends = list(itertools.accumulate(each.shape[0] for each in tensors))
        self.length = self._ends[-1]

    def pieces(self, begin: int, end: int) -> list[tuple[Held, int, int]]:
        """Parts of tensors that lie between two elements."""
        found: list[tuple[Held, int, int]] = []
        for i in range(bisect.bisect_right(self._ends, begin), len(self.tensors)):
            at = self._ends[i] - self.tensors[i].shape[0]
            if at >= end:
                break
            found.append((self.tensors[i], max(begin, at) - at, min(end, self._ends[i]) - at))
        return [each for each in found if each[1] < each[2]]


def whole_states(where: str, model: Contents, shards: Sequence[Contents]) -> dict[str, Held]:
    """Parameters in fp32 and states of the optimiser by name, as ``fp32.layer.weight`` and ``exp_avg.layer.weight``.

    A scalar that all data ranks have with equal bits, as a count of steps, is one; others keep their names.

    Args:
        where: the call and the checkpoint, for messages.
        model: the file that has the shapes of parameters.
        shards: the files of the optimiser, of each data rank in order.

    Raises:
        CheckpointError: they do not belong together, or do not say what is needed.
    """
    state = _of(shards[0].value, _STATE)
    stage = _stage(_of(state, "zero_stage"))
    if stage not in _MASTER:
        raise CheckpointError(f"{where} does not say its stage of ZeRO, expected 1, 2 or 3")
    size = sum(each.nbytes for shard in shards for each in shard.tensors.values())
    budget = Budget(lambda text: CheckpointError(f"{where} {text}"), size)
    shapes = _shapes(where, budget, _of(model.value, "param_shapes"))
    count = _of(state, "partition_count")
    expected = next(iter(count), None) if type(count) in (list, tuple) else count
    if type(expected) is int and expected != len(shards):
        raise CheckpointError(f"{where} lacks shards, got {len(shards)} of data ranks, expected {expected}")
    found: dict[str, Held] = {}
    used: set[str] = set()
    groups = [[each for group in shapes for each in group]] if stage == 3 else shapes
    for number, group in enumerate(groups):
        for flat in _flats(where, stage, number, shards, used):
            cut = _cut_each if stage == 3 else _cut_group
            for name, held in cut(where, flat, group):
                if name in found:
                    raise CheckpointError(
                        f"{where} has two shapes of one name, got {shown_name(name)} twice, expected once"
                    )
                found[name] = held
    return found | _others(shards, used)


def _others(shards: Sequence[Contents], used: set[str]) -> dict[str, Held]:
    """Tensors that are no flat shards."""
    found: dict[str, Held] = {}
    for rank, shard in enumerate(shards):
        for name, held in shard.tensors.items():
            if name in used:
                continue
            first = found.setdefault(name, held)
            if first is not held and not _is_same(first, held):
                found[f"{name} (data rank {rank})"] = held
    return found


def _is_same(a: Held, b: Held) -> bool:
    return (a.kind, a.shape) == (b.kind, b.shape) and first_byte(a.read(), b.read()) is None


def _stage(value: Any) -> Any:
    """A number, also as a member of an enumeration, which its pickle makes of the number or by its name."""
    last = value.arguments[-1:] if isinstance(value, Record) else (value,)
    found = next(iter(last), None)
    return _STAGES.get(found) if type(found) is str else found if type(found) is int else None


def _of(value: Any, key: str) -> Any:
    """A value of a mapping; None where it has none."""
    pairs = value.pairs if isinstance(value, Record) else value
    if not isinstance(pairs, Pairs):
        return None
    return next((each for name, each in pairs if type(name) is str and name == key), None)


def _shapes(where: str, budget: Budget, value: Any) -> list[list[tuple[str, tuple[int, ...]]]]:
    """Names and shapes of the parameters of each group."""
    groups = value if type(value) is list else [value]
    found = []
    for group in groups:
        pairs = group.pairs if isinstance(group, Record) else group
        if not isinstance(pairs, Pairs):
            raise CheckpointError(
                f"{where} does not say the shapes of parameters, expected param_shapes in the states of the model"
            )
        found.append([_shape(where, budget, name, shape) for name, shape in pairs])
    return found


def _shape(where: str, budget: Budget, name: Any, value: Any) -> tuple[str, tuple[int, ...]]:
    extents: Any = next(iter(value.arguments), None) if isinstance(value, Record) else value
    if type(name) is not str or type(extents) is not tuple or not all(type(each) is int for each in extents):
        raise CheckpointError(f"{where} has a wrong shape of a parameter, expected a name and numbers")
    return name, budget.add_tensor(name, extents)


def _flats(where: str, stage: int, group: int, shards: Sequence[Contents], used: set[str]) -> Iterator[_Flat]:
    """The weights in fp32 and each state of the optimiser, of all data ranks."""
    master = f"{_STATE}.{_MASTER[stage]}."
    first = shards[0].tensors
    numbers = [group]
    if stage == 3:  # parameters go through all of them
        numbers = [n for n in range(len(first)) if f"{master}{n}" in first]
    heads = {"fp32": [f"{master}{n}" for n in numbers]}
    for before in (f"{_STATE}.base_optimizer_state", f"{_STATE}.{_STATE}"):
        for middle in (".state.", "."):
            names = _states_of(first, f"{before}{middle}", numbers, heads["fp32"])
            heads |= {name: [f"{before}{middle}{n}.{name}" for n in numbers] for name in names}
    for name, keys in heads.items():
        parts = [
            _Vector([_part(where, shard, key, rank) for key in keys]) for rank, shard in enumerate(shards)
        ]
        kinds = {each.kind for part in parts for each in part.tensors}
        if len(kinds) != 1:
            raise CheckpointError(
                f"{where} has no vectors of one dtype as {shown_name(name)} of group {group}"
            )
        used.update(keys)
        yield _Flat(name, parts)


def _states_of(first: dict[str, Held], before: str, numbers: list[int], masters: list[str]) -> list[str]:
    """Names of the states of a group whose vectors are as long as the weights."""
    if not numbers or masters[0] not in first:
        return []
    start = f"{before}{numbers[0]}."
    length = first[masters[0]].shape
    return [
        name.removeprefix(start)
        for name, held in first.items()
        if name.startswith(start) and held.shape == length
    ]


def _part(where: str, shard: Contents, key: str, rank: int) -> Held:
    found = shard.tensors.get(key)
    if found is None or len(found.shape) != 1:
        raise CheckpointError(f"{where} lacks the vector {shown_name(key)} in the shard of data rank {rank}")
    return found


def _cut_group(
    where: str, flat: _Flat, shapes: Sequence[tuple[str, tuple[int, ...]]]
) -> Iterator[tuple[str, Held]]:
    """Parameters of a vector that all ranks have in turn."""
    vector = _Vector([each for part in flat.parts for each in part.tensors])
    total, needed, begin = vector.length, sum(math.prod(shape) for _, shape in shapes), 0
    if not needed <= total < needed + _ALIGNED * len(flat.parts):
        raise CheckpointError(
            f"{where} has shards of another length, got {total} elements of {flat.name}, expected {needed} and less "
            f"than {_ALIGNED} for each data rank beyond"
        )
    for name, shape in shapes:
        end = begin + math.prod(shape)
        yield f"{flat.name}.{name}", _held(vector.tensors[0], shape, vector.pieces(begin, end))
        begin = end


def _cut_each(
    where: str, flat: _Flat, shapes: Sequence[tuple[str, tuple[int, ...]]]
) -> Iterator[tuple[str, Held]]:
    """Parameters of which each rank has a part of its own."""
    ranks, at = len(flat.parts), 0
    needed = sum(-(-math.prod(shape) // ranks) for _, shape in shapes)
    wrong = next((each.length for each in flat.parts if each.length != needed), None)
    if wrong is not None:
        raise CheckpointError(
            f"{where} has shards of another length, got {wrong} elements of {flat.name}, expected {needed}"
        )
    for name, shape in shapes:
        left = math.prod(shape)
        mine, pieces = -(-left // ranks), []
        for part in flat.parts:
            taken = min(mine, left)
            pieces += part.pieces(at, at + taken)
            left -= taken
        at += mine
        yield f"{flat.name}.{name}", _held(flat.parts[0].tensors[0], shape, pieces)


def _held(like: Held, shape: tuple[int, ...], pieces: list[tuple[Held, int, int]]) -> Held:
    read = partial(_joined, pieces, like.itemsize)
    return Held(like.kind, shape, read, math.prod(shape) * like.itemsize, like.itemsize, like.dtype)


def _joined(pieces: list[tuple[Held, int, int]], itemsize: int) -> Array:
    found = [each.read()[begin * itemsize : end * itemsize] for each, begin, end in pieces]
    return found[0] if len(found) == 1 else np.concatenate(found) if found else np.empty(0, np.uint8)
