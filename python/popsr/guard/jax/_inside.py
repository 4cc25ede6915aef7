"""Replicated values compared inside a traced function, and errors that reach its caller with their type."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, wraps
from typing import Any

import numpy as np

from popsr._support.host.arguments import read_call
from popsr._support.host.frameworks import framework
from popsr._support.text.entry_points import public
from popsr._support.text.shown import shown
from popsr.errors import ArgumentTypeError, UnknownNameError
from popsr.guard._finding import Finding, drift_error, sets_text
from popsr.guard._keys import BLOCK_BYTES
from popsr.guard.jax._hash import flat_bits, hash_words
from popsr.guard.jax._values import Value, value_text, values_of

__all__ = ["assert_replicated", "checked"]

_CALL = "assert_replicated"
_UNITS = 4  # of 32 bits in the largest element


@public
def assert_replicated(tree: Any, axis: str | tuple[str, ...], *, when: Any = None) -> None:
    """Compare a tree of arrays along axes of a mesh, inside ``shard_map``; devices along them should hold equal bits.

    A hash of each array is computed where it lives and gathered: 8 bytes an array and device. Where hashes differ, the
    first element is searched for on the devices, and the program fails: with a ``DriftError`` where its function is
    called through ``checked``, else with JAX's own error that has the text of it.

    Args:
        tree: arrays, in any tree.
        axis: the axis of the mesh, or several.
        when: a bool of an array of all devices alike, as ``step % 100 == 0``; nothing is computed where it is false.
    Raises:
        ArgumentTypeError: ``axis`` is not a name, or the tree has no array.
        UnknownNameError: no mesh has the axis here.
        UnsupportedError: an array has parts of bytes.
    """
    jax = framework(_CALL, "jax")
    axes = axis if isinstance(axis, tuple) else (axis,)
    for each in axes:
        if not isinstance(each, str):
            raise ArgumentTypeError(f"{_CALL}: axis is not a name, got {shown(each)}, expected a str")
        try:
            jax.lax.axis_index(each)
        except NameError:
            raise UnknownNameError(
                f"{_CALL}: no such axis, got {shown(each)}, expected one of a mesh, inside of shard_map"
            ) from None
    values, _ = values_of(_CALL, tree)
    if not values:
        raise ArgumentTypeError(
            f"{_CALL}: nothing to compare, got {shown(tree)}, expected a tree with arrays of JAX"
        )
    others = tuple(each for each in _manual_axes(jax) if each not in axes)
    compare = partial(_compare, values, axes, others)
    if when is None:
        compare()
    else:
        jax.lax.cond(when, compare, lambda: None)


def _manual_axes(jax: Any) -> tuple[str, ...]:
    """Axes that are manual here; none where JAX is too old to say."""
    mesh = getattr(jax.sharding, "get_abstract_mesh", lambda: None)()
    return tuple(getattr(mesh, "manual_axes", ()))


def _compare(values: list[Value], axes: tuple[str, ...], others: tuple[str, ...]) -> None:
    jax = framework(_CALL, "jax")
    jnp, lax = jax.numpy, jax.lax
    bits = [_varying(flat_bits(_CALL, each.array), (*axes, *others)) for each in values]
    hashes = lax.all_gather(jnp.stack([hash_words(each) for each in bits]), axes)
    differ = (hashes != hashes[:1]).any()
    # Devices of all groups stop together: one that went on would wait for those that stopped.
    stop = lax.pmax(differ.astype(jnp.int32), (*axes, *others)) > 0

    def report() -> None:
        places = [_first_difference(each, v, axes) for each, v in zip(bits, values, strict=True)]
        found = lax.all_gather(jnp.stack(places), axes)
        # Devices of all groups tell the same.
        both = [lax.all_gather(each, others) if others else each[None] for each in (hashes, found)]
        told = _Told(tuple(each.plain() for each in values), axes, _sizes(axes), others, _sizes(others))
        jax.debug.callback(partial(_report, told), *both)

    lax.cond(stop, report, lambda: None)


def _varying(array: Any, axes: tuple[str, ...]) -> Any:
    """The array as one that may differ along axes, which JAX tracks: what is compared is whether it does."""
    jax = framework(_CALL, "jax")
    lax = jax.lax
    known: Any = getattr(jax.typeof(array), "vma", axes) if hasattr(jax, "typeof") else axes
    missing = tuple(each for each in axes if each not in known)
    if not missing:
        return array
    if hasattr(lax, "pcast"):
        return lax.pcast(array, missing, to="varying")
    return lax.pvary(array, missing) if hasattr(lax, "pvary") else array


def _first_difference(bits: Any, value: Value, axes: tuple[str, ...]) -> Any:
    """Compared with the first device: elements that differ, the first of them, and both bit patterns, as uint32."""
    jax = framework(_CALL, "jax")
    jnp, lax = jax.numpy, jax.lax
    if not bits.size:
        return _varying(jnp.zeros(2 + 2 * _UNITS, jnp.uint32), axes)
    zero = bits[0].astype(jnp.uint32) & 0  # varies along the axes, which the type of a loop's value says
    width = value.units
    size = min(bits.size, BLOCK_BYTES // 4 // width * width)
    is_first = _position(axes) == 0

    def block(i: Any, state: Any) -> Any:
        count, first, own, other = state
        start = jnp.minimum(i * size, bits.size - size)
        mine = lax.dynamic_slice(bits, (start,), (size,)).astype(jnp.uint32)
        theirs = lax.psum(jnp.where(is_first, mine, 0), axes)
        rows = ((mine != theirs).reshape(-1, width)).any(1)
        rows &= start + width * jnp.arange(size // width) >= i * size
        at = jnp.argmax(rows)
        new = (count == 0) & rows.any()
        pick = partial(lax.dynamic_slice, start_indices=(at * width,), slice_sizes=(width,))
        return (
            count + rows.sum(dtype=jnp.uint32),
            jnp.where(new, (start // width + at).astype(jnp.uint32), first),
            jnp.where(new, pick(mine), own),
            jnp.where(new, pick(theirs), other),
        )

    empty = jnp.zeros(width, jnp.uint32) + zero
    count, first, own, other = lax.fori_loop(0, -(-bits.size // size), block, (zero, zero, empty, empty))
    padding = jnp.zeros(_UNITS - width, jnp.uint32) + zero
    return jnp.concatenate([count[None], first[None], own, padding, other, padding])


def _sizes(axes: tuple[str, ...]) -> tuple[int, ...]:
    return tuple(int(framework(_CALL, "jax").lax.psum(1, each)) for each in axes)


def _position(axes: tuple[str, ...]) -> Any:
    """Number of a device along axes, as ``all_gather`` orders them."""
    lax = framework(_CALL, "jax").lax
    position = 0
    for each in axes:
        position = position * int(lax.psum(1, each)) + lax.axis_index(each)
    return position


@dataclass(frozen=True, slots=True)
class _Told:
    """Facts of the trace that the callback reads."""

    values: tuple[Value, ...]
    axes: tuple[str, ...]
    sizes: tuple[int, ...]
    others: tuple[str, ...]
    other_sizes: tuple[int, ...]


_lock = threading.Lock()
_kept: list[Finding] = []
_watched = 0


def _report(told: _Told, hashes: Any, found: Any) -> None:
    """Called on all devices with the same, if devices anywhere differ."""
    finding = _finding(told, np.asarray(hashes), np.asarray(found))
    with _lock:
        _kept.append(finding)
        if _watched:
            return
        _kept.clear()
    raise drift_error(_CALL, finding)


def _finding(told: _Told, hashes: Any, found: Any) -> Finding:
    """The first difference of the first group; both arrays have an index for the group, the device and the value."""
    group = int(np.argwhere((hashes != hashes[:, :1]).any((1, 2, 3)))[0, 0])
    names = [i for i in range(len(told.values)) if (hashes[:, :, i] != hashes[:, :1, i]).any()]
    keys = [[tuple(map(int, row[i])) for row in hashes[group]] for i in range(len(told.values))]
    i = next(i for i, each in enumerate(keys) if len(set(each)) > 1)
    other = next(d for d, each in enumerate(keys[i]) if each != keys[i][0])
    value = told.values[i]
    count, first, *words = (int(each) for each in found[group, other, i])
    element, values = None, ("bytes that changed", "between hash and comparison")
    if count:
        element = tuple(int(each) for each in np.unravel_index(first, value.shape)) if value.shape else ()
        own, theirs = words[: value.units], words[_UNITS : _UNITS + value.units]
        values = value_text(value, theirs), value_text(value, own)
    devices = range(len(keys[i]))
    return Finding(
        None,
        None,
        value.name,
        sets_text([0 for _ in devices], devices),
        sets_text(keys[i], devices),
        (0, other),
        (_place(told, group, 0), _place(told, group, other)),
        element,
        values,
        count,
        int(np.prod(value.shape, dtype=np.int64)),
        tuple(told.values[each].name for each in names),
    )


def _place(told: _Told, group: int, device: int) -> str:
    at = (
        *np.unravel_index(device, told.sizes),
        *(np.unravel_index(group, told.other_sizes) if told.others else ()),
    )
    return ", ".join(f"{name} {int(i)}" for name, i in zip((*told.axes, *told.others), at, strict=True))


@public
def checked(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function around one that calls ``assert_replicated``: it waits for the results, and raises what was found.

    Args:
        function: the function, usually of ``jax.jit``; a call returns what it returns.
    Raises:
        ArgumentTypeError: it is not a function. Calls raise a DriftError for a difference.
    """
    read_call("checked: function", function)

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return _watch(partial(function, *args, **kwargs))

    return call


@public
def _watch(call: Callable[[], Any]) -> Any:
    global _watched
    jax = framework("checked", "jax")
    with _lock:
        _watched += 1
    try:
        result = jax.block_until_ready(call())
        jax.effects_barrier()
    finally:
        with _lock:
            _watched -= 1
            found = _kept[:]
            if not _watched:
                _kept.clear()
    if found:
        raise drift_error(_CALL, found[0])
    return result
