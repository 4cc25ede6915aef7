"""Arguments and results of a step: names, roles, and rows for groups of replicas."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from popsr._support.text.shown import shown
from popsr.bridge.jax._framework import the_jax
from popsr.bridge.jax._importer import is_key, stored
from popsr.bridge.jax._mesh import Spec, Spread
from popsr.bridge.jax._rules.table import Aval
from popsr.errors import ArgumentTypeError, AttributeValueError, ReplicaError

__all__ = [
    "Leaf",
    "assembled",
    "is_shape",
    "leaves_of",
    "names_of",
    "only_row",
    "parts_of",
    "read_replicated",
    "read_roles",
    "value_of",
]

ROLES = ("state", "data", "constant")


@dataclass(frozen=True, slots=True)
class Leaf:
    """An array in the arguments of a step.

    Attributes:
        argument: position of the argument that it is in.
        path: its name for the user.
        value: what was given: an array, or its shape and dtype alone.
    """

    argument: int
    path: str
    value: Any


def leaves_of(function: Any, args: Sequence[Any], names: Sequence[str] | None) -> list[Leaf]:
    """The arrays in the arguments, in the order of the jaxpr."""
    jax = the_jax()

    given = names_of(function, len(args), names)
    leaves = []
    for path, value in jax.tree_util.tree_flatten_with_path(tuple(args))[0]:
        number = path[0].idx
        leaves.append(Leaf(number, given[number] + jax.tree_util.keystr(path[1:]), value))
    return leaves


def names_of(function: Any, count: int, names: Sequence[str] | None) -> list[str]:
    """A name for each argument, from the signature where none are given."""
    if names is not None:
        if isinstance(names, str) or not all(isinstance(name, str) for name in names):
            raise ArgumentTypeError(
                f"from_jax: names are not strings, got {shown(names)}, expected a list of str"
            )
        if len(names) != count or len(set(names)) != count:
            raise AttributeValueError(
                f"from_jax: not one name for each argument, got {shown(list(names))}, expected {count} different names"
            )
        return list(names)
    try:
        parameters = list(inspect.signature(inspect.unwrap(function)).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    found = [
        each.name for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)
    ]
    return [found[number] if number < len(found) else f"arg{number}" for number in range(count)]


def read_roles(
    names: Sequence[str], roles: Mapping[str, str] | None, updates: Mapping[int, int]
) -> list[str]:
    """The role of each argument: as given, else a state where the step returns its new value, else data."""
    given = {} if roles is None else dict(roles)
    for name, role in given.items():
        if name not in names:
            raise AttributeValueError(
                f"from_jax: role of no argument, got {shown(name)}, expected one of {shown(list(names))}"
            )
        if role not in ROLES:
            raise AttributeValueError(
                f"from_jax: no such role, got {shown(role)}, expected one of {shown(list(ROLES))}"
            )
    return [given.get(name, "state" if number in updates else "data") for number, name in enumerate(names)]


def read_replicated(names: Sequence[str], roles: Sequence[str], given: Sequence[str]) -> set[int]:
    """Positions of the states of which each replica has an equal row."""
    if isinstance(given, str) or not all(isinstance(name, str) for name in given):
        raise ArgumentTypeError(
            f"from_jax: replicated is not names, got {shown(given)}, expected a list of str"
        )
    states = [name for name, role in zip(names, roles, strict=True) if role == "state"]
    for name in given:
        if name not in states:
            raise AttributeValueError(
                f"from_jax: replicated has no such state, got {shown(name)}, expected one of {shown(states)}"
            )
    return {number for number, name in enumerate(names) if name in given}


def only_row(path: str, rows: NDArray[Any]) -> NDArray[Any]:
    """The row that all replicas have."""
    if any(row.tobytes() != rows[0].tobytes() for row in rows[1:]):
        raise ReplicaError(
            f"from_jax: rows of replicated {shown(path)} differ, got {len({row.tobytes() for row in rows})} different "
            "ones, expected equal rows"
        )
    first: NDArray[Any] = rows[0]
    return first


def inferred_updates(args: Sequence[Any], outputs: Sequence[Any]) -> dict[int, int]:
    """For each argument the first result of its tree, shapes and dtypes, which is taken for its new value.

    A single float is not taken for a state: it may be a loss.
    """
    jax = the_jax()

    found: dict[int, int] = {}
    for number, output in enumerate(outputs):
        leaves, tree = jax.tree.flatten(output)
        if not leaves or (len(leaves) == 1 and not leaves[0].shape and _is_float(leaves[0])):
            continue
        for position, argument in enumerate(args):
            theirs, their_tree = jax.tree.flatten(argument)
            if position in found or their_tree != tree:
                continue
            if all(_same(mine, its) for mine, its in zip(leaves, theirs, strict=True)):
                found[position] = number
                break
    return found


def _is_float(leaf: Any) -> bool:
    return not is_key(leaf) and leaf.dtype.kind not in "iu"


def _same(a: Any, b: Any) -> bool:
    return tuple(a.shape) == tuple(np.shape(b)) and a.dtype == getattr(b, "dtype", np.asarray(b).dtype)


def is_shape(value: Any) -> bool:
    """True for an argument that is known by its shape and dtype alone."""
    return type(value).__name__ == "ShapeDtypeStruct"


def value_of(value: Any) -> NDArray[Any] | None:
    """The array that was given; None for a shape and dtype."""
    return None if is_shape(value) else stored(value)


def parts_of(value: Any, spec: Spec, spread: Spread) -> NDArray[Any]:
    """Rows for the groups of replicas that hold the same part; the array itself where there is one group."""
    array = stored(value) if is_key(value) or not isinstance(value, np.ndarray) else value
    groups = spread.shards(spec).groups
    if len(groups) == 1:
        return array
    return np.stack([array[spread.part(spec, array.shape, members[0])] for members in groups])


def assembled(rows: NDArray[Any], spec: Spec, spread: Spread, aval: Aval) -> NDArray[Any]:
    """The array of which each row is the part of a replica; of equal parts the first replica's."""
    if not any(spec):
        return np.asarray(rows[0])
    whole = np.empty(aval.shape, rows.dtype)
    for replica in reversed(range(len(rows))):
        whole[spread.part(spec, aval.shape, replica)] = rows[replica]
    return whole
