"""Arrays whose shardings say that devices hold copies: the copies are compared, on one host and over hosts."""

from __future__ import annotations

import hashlib
from functools import cache
from typing import Any

import numpy as np

from popsr._support.host.frameworks import framework
from popsr._support.text.entry_points import public
from popsr._support.text.shown import shown
from popsr.errors import ArgumentTypeError, RankError, StateError
from popsr.guard._finding import Checked, Finding, drift_error, sets_text
from popsr.guard.jax._hash import array_hash
from popsr.guard.jax._values import Value, value_text, values_of

__all__ = ["check"]

_CALL = "check"


@public
def check(tree: Any) -> Checked:
    """Compare copies of arrays: devices that hold the same part of one, by its sharding, should hold equal bits.

    A hash of each part is computed on its device. In a job of several processes all call it with the same tree, and the
    hashes are gathered; the first element is named if one process has both copies.

    Args:
        tree: arrays of JAX, in any tree; other leaves are left out.
    Returns:
        Which arrays have copies whose hashes agree.
    Raises:
        DriftError: hashes of two copies differ.
        ArgumentTypeError: it is not a tree, or an array is being traced.
        RankError: processes have other arrays.
        StateError: an array was deleted or donated.
        UnsupportedError: an array has parts of bytes.
    """
    jax = framework(_CALL, "jax")
    values, others = values_of(_CALL, tree)
    for value in values:
        _require_data(value.array)
    devices = [_places(each) for each in values]
    tables = _gathered(
        values, [_local_hashes(each, there) for each, there in zip(values, devices, strict=True)]
    )
    compared, differing = [], []
    left_out = dict.fromkeys(others, "not an array of JAX")
    for value, there, table in zip(values, devices, tables, strict=True):
        groups = [index for _, index in there]
        if len(set(groups)) == len(groups):
            left_out[value.name] = "no other device holds a part of it"
            continue
        compared.append(value.name)
        pair = _pair(groups, table)
        if pair is not None:
            differing.append((value, there, groups, table, pair))
    finding = None
    if differing:
        finding = _finding(*differing[0], tuple(each[0].name for each in differing))
        raise drift_error(_CALL, finding)
    return Checked(None, jax.device_count(), tuple(compared), left_out)


def _require_data(array: Any) -> None:
    jax = framework(_CALL, "jax")
    if isinstance(array, jax.core.Tracer):
        raise ArgumentTypeError(
            f"{_CALL}: an array is being traced, got {shown(type(array).__name__)}, expected arrays with data, or "
            "assert_replicated inside of a traced function"
        )
    if array.is_deleted():
        raise StateError(
            f"{_CALL}: an array was deleted, got {array.dtype}{list(array.shape)}, expected its data"
        )


_Index = tuple[tuple[int, int], ...]


def _places(value: Value) -> list[tuple[Any, _Index]]:
    """All devices of an array in the order of their numbers, with the part that each holds."""
    found = value.array.sharding.devices_indices_map(value.shape)
    return sorted(
        (
            (device, tuple(part.indices(extent)[:2] for part, extent in zip(index, value.shape, strict=True)))
            for device, index in found.items()
        ),
        key=lambda each: int(each[0].id),
    )


def _local_hashes(value: Value, devices: list[tuple[Any, _Index]]) -> Any:
    """Hashes of the parts on this process, and zeros for others, in the order of the devices."""
    hashes = np.zeros((len(devices), 2), np.uint32)
    numbers = {device: i for i, (device, _) in enumerate(devices)}
    # All are started before one is waited for.
    started = [(numbers[each.device], _hash()(each.data)) for each in value.array.addressable_shards]
    for i, found in started:
        hashes[i] = np.asarray(found)
    return hashes


@cache
def _hash() -> Any:
    return framework(_CALL, "jax").jit(array_hash)


def _gathered(values: list[Value], tables: list[Any]) -> list[Any]:
    """Hashes of all devices, of all processes.

    Raises:
        RankError: processes have other arrays.
    """
    jax = framework(_CALL, "jax")
    if jax.process_count() == 1:
        return tables
    from jax.experimental.multihost_utils import process_allgather

    text = "\n".join(f"{each.name} {each.dtype}{list(each.shape)}" for each in values)
    mine = np.frombuffer(hashlib.sha256(text.encode()).digest()[:8], np.uint32)
    all_of_them = np.asarray(process_allgather(mine))
    other = next((i for i, each in enumerate(all_of_them) if (each != all_of_them[0]).any()), None)
    if other is not None:
        raise RankError(
            f"{_CALL}: processes have other arrays, got {len(values)} on process {jax.process_index()}, and another "
            f"tree on process {other} than on 0, expected the same names, dtypes and shapes"
        )
    # Zeros stand for the parts of other processes, and each part is told by one.
    return [np.asarray(process_allgather(each)).sum(0, dtype=np.uint32) for each in tables]


def _pair(groups: list[_Index], table: Any) -> tuple[int, int] | None:
    first: dict[_Index, int] = {}
    for i, group in enumerate(groups):
        if (table[first.setdefault(group, i)] != table[i]).any():
            return first[group], i
    return None


def _finding(
    value: Value,
    there: list[tuple[Any, _Index]],
    groups: list[_Index],
    table: Any,
    pair: tuple[int, int],
    names: tuple[str, ...],
) -> Finding:
    numbers = [int(device.id) for device, _ in there]
    keys = [(group, *map(int, row)) for group, row in zip(groups, table, strict=True)]
    size = int(np.prod([stop - start for start, stop in groups[pair[0]]], dtype=np.int64))
    element, values, count = None, tuple(f"hash {_hex(table[i])}" for i in pair), None
    parts = {each.device: each.data for each in value.array.addressable_shards}
    a, b = (parts.get(there[i][0]) for i in pair)
    if a is not None and b is not None:
        element, values, count = _first_element(value, np.asarray(a), np.asarray(b), groups[pair[0]])
    first, other = numbers[pair[0]], numbers[pair[1]]
    places = (_place(value, there[pair[0]][0]), _place(value, there[pair[1]][0]))
    return Finding(
        None,
        None,
        value.name,
        sets_text(list(groups), numbers),
        sets_text(keys, numbers),
        (first, other),
        places,
        element,
        (values[0], values[1]),
        count,
        size,
        names,
    )


def _first_element(
    value: Value, a: Any, b: Any, index: _Index
) -> tuple[tuple[int, ...], tuple[str, ...], int]:
    itemsize = value.dtype.itemsize
    rows = [np.ascontiguousarray(each).reshape(-1).view(np.uint8).reshape(-1, itemsize) for each in (a, b)]
    differ = np.flatnonzero((rows[0] != rows[1]).any(1))
    shape = [stop - start for start, stop in index]
    local = np.unravel_index(int(differ[0]), shape) if shape else ()
    element = tuple(int(i) + start for i, (start, _) in zip(local, index, strict=True))
    width = min(itemsize, 4)
    texts = []
    for each in rows:
        data = each[differ[0]].tobytes()
        units = [int.from_bytes(data[i : i + width], "little") for i in range(0, itemsize, width)]
        texts.append(value_text(value, units))
    return element, tuple(texts), len(differ)


def _place(value: Value, device: Any) -> str:
    """The device by the axes of the mesh, if there is one."""
    mesh = getattr(value.array.sharding, "mesh", None)
    if mesh is None:
        return ""
    at = np.argwhere(np.asarray(mesh.devices) == device)
    return (
        ", ".join(f"{name} {int(i)}" for name, i in zip(mesh.axis_names, at[0], strict=True))
        if len(at)
        else ""
    )


def _hex(pair: Any) -> str:
    return f"0x{int(pair[1]) << 32 | int(pair[0]):016x}"
