"""Tracing a step twice, the second time from what the first left behind: a step that changes is refused."""

from __future__ import annotations

import contextlib
import enum
import functools
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from popsr._support.text.shown import shown
from popsr.bridge.jax._framework import the_jax
from popsr.bridge.jax._importer import stored
from popsr.bridge.jax._locations import user_line
from popsr.bridge.jax._watched import Watched
from popsr.errors import UnsupportedError

__all__ = ["anew", "same_parameter", "traced_once", "traced_twice"]

_NUMBERS = itertools.count(1)


def traced_twice(f: Any, axes: Sequence[tuple[str, int]], args: Sequence[Any]) -> tuple[Any, Any, str]:
    """The jaxpr of a function, which must be the same when it is traced again.

    Functions that JAX has traced and kept are traced anew the second time.

    Args:
        f: the function.
        axes: names and sizes of axes that it may use.
        args: its arguments.
    Returns:
        The closed jaxpr, shapes and dtypes of the results, and where the step lists all devices, if it does.
    Raises:
        UnsupportedError: it is another jaxpr the second time, or reads what each process has of its own.
    """
    jax = the_jax()
    watched = Watched()
    with watched.active():
        first, outputs = jax.make_jaxpr(f, axis_env=list(axes), return_shape=True)(*args)
        watched.elsewhere = True
        try:
            with anew():
                second, again = jax.make_jaxpr(f, axis_env=list(axes), return_shape=True)(*args)
        except UnsupportedError:
            raise
        except Exception as error:
            raise UnsupportedError(
                "from_jax: the step cannot be traced a second time, from what the first left behind, got "
                f"{type(error).__name__}: {shown(str(error).partition(chr(10))[0])}, expected a step that keeps no "
                "traced values and changes nothing outside of it"
            ) from error
    if jax.tree.structure(outputs) != jax.tree.structure(again):
        raise _changed("results", str(jax.tree.structure(outputs)), str(jax.tree.structure(again)))
    _compare(first, second)
    return first, outputs, watched.devices


def traced_once(f: Any, axes: Sequence[tuple[str, int]], args: Sequence[Any]) -> tuple[Any, Any, str]:
    """The jaxpr of a function that was found to be the same when it is traced again; see ``traced_twice``."""
    watched = Watched()
    with watched.active(), anew():
        traced, outputs = the_jax().make_jaxpr(f, axis_env=list(axes), return_shape=True)(*args)
    return traced, outputs, watched.devices


@contextlib.contextmanager
def anew() -> Iterator[None]:
    """Inside, JAX finds no trace in its caches, and after it none that was made inside.

    They are kept by a number that is new; where JAX is too old for one, they are emptied.
    """
    made = _number_of_traces()
    if made is not None:
        with made(next(_NUMBERS)):
            yield
        return
    the_jax().clear_caches()
    try:
        yield
    finally:
        the_jax().clear_caches()


@functools.cache
def _number_of_traces() -> Any:
    """A setting of JAX that is a part of the key of all its caches of traces; None where JAX is too old for one."""
    make = getattr(the_jax(), "make_user_context", None)
    return None if make is None else make()


def _changed(what: str, first: str, second: str) -> UnsupportedError:
    return UnsupportedError(
        f"from_jax: the step is another one when it is traced again, got {what} {second} the second time and {first} "
        "the first, expected a step that reads nothing that changes between calls: give it as an argument"
    )


def _compare(first: Any, second: Any) -> None:
    """Compare two jaxprs, open or closed.

    Raises:
        UnsupportedError: they differ in an equation, a constant or a type.
    """
    a, b = getattr(first, "jaxpr", first), getattr(second, "jaxpr", second)
    names: dict[Any, Any] = {}
    _compare_variables("arguments", a.invars, b.invars, names)
    _compare_variables("constants", a.constvars, b.constvars, names)
    for number, (one, other) in enumerate(
        zip(getattr(first, "consts", ()), getattr(second, "consts", ()), strict=True)
    ):
        if not same_parameter(one, other):
            raise _changed(f"constant {number}", _value(one), _value(other))
    for one, other in zip(a.eqns, b.eqns, strict=False):
        _compare_equations(one, other, names)
    if len(a.eqns) != len(b.eqns):
        more, less = (a, b) if len(a.eqns) > len(b.eqns) else (b, a)
        extra = _equation(more.eqns[len(less.eqns)])
        raise _changed("equations", *((extra, "none") if more is a else ("none", extra)))
    for one, other in zip(a.outvars, b.outvars, strict=True):
        if not _same_atom(one, other, names):
            raise _changed("result", _atom(one), _atom(other))


def _compare_equations(one: Any, other: Any, names: dict[Any, Any]) -> None:
    same = one.primitive.name == other.primitive.name and len(one.invars) == len(other.invars)
    same = same and len(one.outvars) == len(other.outvars) and set(one.params) == set(other.params)
    same = same and all(_same_atom(a, b, names) for a, b in zip(one.invars, other.invars, strict=True))
    if not same or not all(same_parameter(one.params[key], other.params[key]) for key in one.params):
        raise _changed("equation", _equation(one), _equation(other))
    if any(_type(a) != _type(b) for a, b in zip(one.outvars, other.outvars, strict=True)):
        raise _changed("equation", _equation(one), _equation(other))
    names.update(zip(one.outvars, other.outvars, strict=True))


def _compare_variables(what: str, one: Sequence[Any], other: Sequence[Any], names: dict[Any, Any]) -> None:
    first, second = [_type(var) for var in one], [_type(var) for var in other]
    if first != second:
        raise _changed(what, ", ".join(first) or "none", ", ".join(second) or "none")
    names.update(zip(one, other, strict=True))


def _same_atom(one: Any, other: Any, names: Mapping[Any, Any]) -> bool:
    if hasattr(one, "val") or hasattr(other, "val"):
        both = hasattr(one, "val") and hasattr(other, "val")
        return both and _type(one) == _type(other) and same_parameter(one.val, other.val)
    return names.get(one) is other


def _type(var: Any) -> str:
    """Shape, dtype, weak type and varying axes."""
    weak = " of a Python number" if getattr(var.aval, "weak_type", False) else ""
    return str(getattr(var.aval, "str_short", lambda: var.aval)()) + weak


_PLAIN = (bool, int, str, bytes, type(None), enum.Enum, type)


def same_parameter(one: Any, other: Any) -> bool:
    """True for parameters of the same type and value, numbers by their bits.

    Functions are compared by their code: what they compute is in the jaxpr where it is computed at all.
    """
    if isinstance(one, the_jax().core.Tracer) or isinstance(other, the_jax().core.Tracer):
        return False  # of another trace: it has no value that could be compared
    if one is other:
        return True
    if hasattr(one, "eqns") or hasattr(getattr(one, "jaxpr", None), "eqns"):
        if type(one) is not type(other):
            return False
        _compare(one, other)
        return True
    if _is_number(one) or _is_number(other):
        return _bits(one) == _bits(other)
    if type(one) is not type(other):
        return False
    if isinstance(one, _PLAIN):
        return bool(one == other)
    if isinstance(one, Mapping):
        return [*one] == [*other] and all(same_parameter(one[key], other[key]) for key in one)
    if isinstance(one, (tuple, list)):
        return len(one) == len(other) and all(map(same_parameter, one, other))
    if callable(one):
        return getattr(one, "__code__", None) is getattr(other, "__code__", None)
    return _text(one) == _text(other)


def _is_number(value: Any) -> bool:
    return isinstance(value, (float, complex)) or (
        hasattr(value, "dtype") and hasattr(value, "shape") and hasattr(value, "__array__")
    )


def _bits(value: Any) -> tuple[object, ...]:
    if not _is_number(value):
        return (type(value),)
    array = stored(value)
    return type(value).__name__, array.dtype, array.shape, array.tobytes()


def _text(value: Any) -> str:
    """An object of JAX as text, without addresses."""
    return re.sub(r"0x[0-9a-f]+", "", repr(value))


def _equation(equation: Any) -> str:
    """The primitive with its operands that are known, and its line."""
    line = user_line(equation)
    place = "" if line is None else f" at {line[0]}:{line[1]}"
    known = ", ".join(_atom(atom) for atom in equation.invars if hasattr(atom, "val"))
    return f"{equation.primitive.name}({known}){place}"


def _atom(atom: Any) -> str:
    return _value(atom.val) if hasattr(atom, "val") else _type(atom)


def _value(value: Any) -> str:
    if isinstance(value, the_jax().core.Tracer):
        return "a traced value"
    array = np.asarray(value) if not hasattr(value, "_impl") else value
    return shown(array.tolist() if hasattr(array, "tolist") else array)
