"""``popsr.sr`` inside ``jax.jit``, ``grad``, ``vmap`` and ``scan``, on the CPU, with the bits of the eager calls.

A call is one ``jax.pure_callback``. XLA's own interface for foreign functions changes with jaxlib, and popsr would have
to be compiled against one version of it. Keys may be traced: ``Key(0).at(step)`` with a step of the loop.

Gradients are straight-through: those of the operation before rounding, in fp32 (fp64 if an operand is).

Under ``vmap`` the axis that is mapped is the first one of the array that is rounded, and element i of that array draws
number i, in C order, so that rows are rounded independently. Where the key is mapped too, each key counts the elements
of its own row.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple, Unpack

try:
    import jax
    import jax.numpy as jnp
except ImportError as error:
    from popsr._support.host.frameworks import not_installed

    raise not_installed("popsr.sr.jax", "jax") from error
import numpy as np

from popsr._support.host.arguments import integer_of, read_flag, read_int, read_number
from popsr._support.lazy import names_only
from popsr._support.text.entry_points import public
from popsr._support.text.shown import shown, type_name
from popsr.errors import ArgumentTypeError, DTypeError, ShapeError, UnsupportedError
from popsr.sr import _sum
from popsr.sr._by_name import call as call_by_name
from popsr.sr._call import REQUIRED, _key, read_rounding
from popsr.sr._call import Key as EagerKey
from popsr.sr._formats import FORMATS, format_of, read_format
from popsr.sr._keywords import takes_keywords_of
from popsr.sr._portable import of_jax
from popsr.sr._portable.of_jax_shards import shard_offset
from popsr.sr._types import Mode, Overflow, TracedOptions

__all__ = [
    "Key",
    "add",
    "addcdiv",
    "addcmul",
    "axpy",
    "cast",
    "fma",
    "lerp",
    "mul",
    "shard_offset",
    "sub",
    "sum",
]

_WORD = 2**32 - 1
# Axes of the leaf that a link of a key's chain has: two words of a number, a traced integer, or none for a text.
_CORE = {"words": 1, "seed": 1, "pair": 1, "traced": 0}


@public
@jax.tree_util.register_pytree_node_class
class Key:
    """A key whose parts may be traced, or mapped by ``vmap``; a pytree of integers.

    Args:
        root: a ``popsr.sr.Key``, an integer from 0 to 2**64 - 1 as for that, or a key of ``jax.random``, whose two
            words are the seed, the first one high.
    Raises:
        TypeError: something else.
    """

    __slots__ = ("_chain", "_leaves")

    def __init__(self, root: Any) -> None:
        """Start a chain."""
        self._chain: tuple[tuple[str, str, str | None], ...]
        self._leaves: tuple[Any, ...]
        if isinstance(root, Key):
            self._chain, self._leaves = root._chain, root._leaves
            return
        if isinstance(root, jax.Array):
            self._chain, self._leaves = (("root", "seed", None),), (_words_of_jax(root),)
            return
        known = root if isinstance(root, EagerKey) else EagerKey(root)
        words = np.array([w >> s & _WORD for w in known.words for s in (0, 32)], np.uint32)
        self._chain, self._leaves = (("root", "words", None),), (words,)

    def at(self, step: Any) -> Key:
        """``Key.at`` of a step, which may be traced.

        Args:
            step: an integer, or an array of jax with one. A traced one that is negative is refused when it is known,
                inside of jax's own error.
        """
        return self._then("at", step)

    def fold_in(self, data: Any) -> Key:
        """``Key.fold_in`` of a text or of an integer, which may be traced.

        Args:
            data: a text, an integer, or an array of jax with one.
        """
        return self._then("fold_in", data)

    def _then(self, call: str, data: Any) -> Key:
        text, leaves = None, self._leaves
        if isinstance(data, str) and call == "fold_in":
            kind, text = "text", data
        elif _is_integer(data) and isinstance(data, jax.core.Tracer):
            kind, leaves = "traced", (*leaves, data)
        elif _is_integer(data) or integer_of(data) is not None:
            number = read_int(f"Key.{call}", int(data) if _is_integer(data) else data, 0, 2**64 - 1)
            kind, leaves = "pair", (*leaves, np.array([number & _WORD, number >> 32], np.uint32))
        else:
            raise ArgumentTypeError(f"Key.{call}: not an integer, got {shown(data)}, expected 0 to 2**64 - 1")
        return Key.tree_unflatten((*self._chain, (call, kind, text)), leaves)

    def tree_flatten(self) -> tuple[tuple[Any, ...], Any]:
        """Leaves and structure, for jax."""
        return self._leaves, self._chain

    @classmethod
    def tree_unflatten(cls, chain: Any, leaves: Any) -> Key:
        """A key of its leaves and structure, for jax."""
        made = object.__new__(cls)
        made._chain, made._leaves = chain, tuple(leaves)
        return made

    def __repr__(self) -> str:
        calls = "".join(
            f".{call}({'...' if text is None else repr(text)})" for call, _, text in self._chain[1:]
        )
        return f"Key(...){calls}"


def _is_integer(data: Any) -> bool:
    """True for an array of jax with one integer."""
    return isinstance(data, jax.Array) and data.shape == () and jnp.issubdtype(data.dtype, jnp.integer)


def _words_of_jax(root: jax.Array) -> Any:
    data = jax.random.key_data(root) if jnp.issubdtype(root.dtype, jax.dtypes.prng_key) else root
    if data.shape != (2,) or data.dtype != jnp.uint32:
        raise ArgumentTypeError(
            f"Key: not a key, got {data.dtype} of {data.shape}, expected one of jax.random.key(seed)"
        )
    return data


def _cores(key: Key) -> list[int]:
    return [_CORE[kind] for _, kind, _ in key._chain if kind != "text"]


def _eager_key(chain: Any, leaves: Sequence[np.ndarray[Any, Any]]) -> EagerKey:
    """The key of ``popsr.sr`` that a chain makes."""
    values = iter(leaves)
    (_, kind, _), *rest = chain
    words = [int(word) for word in next(values).reshape(-1)]
    if kind == "seed":
        key = EagerKey(words[0] << 32 | words[1])
    else:
        key = _key(words[0] | words[1] << 32, words[2] | words[3] << 32, "popsr.sr.jax.Key(...)")
    for call, kind, text in rest:
        data: Any = text
        if kind != "text":
            found = [int(word) for word in next(values).reshape(-1)]
            data = found[0] if kind == "traced" else found[0] | found[1] << 32
        key = getattr(key, call)(data)
    return key


def _shortened(key: Key) -> Key:
    """A key whose links before the first one that is traced are made, for the key that is given."""
    links, leaves = list(key._chain), list(key._leaves)
    known: list[Any] = []
    while links and not (links[0][1] != "text" and isinstance(leaves[0], jax.core.Tracer)):
        known.append(links.pop(0))
        if known[-1][1] != "text":
            leaves.pop(0)
    if not known:
        return key
    values = [np.asarray(leaf) for leaf in key._leaves[: len(key._leaves) - len(leaves)]]
    start = Key(_eager_key(known, values))
    return Key.tree_unflatten((*start._chain, *links), (*start._leaves, *leaves))


class _Call(NamedTuple):
    """All of a call that is known when it is traced. Constants stand in the place of arrays where they are not None."""

    op: str
    constants: tuple[float | None, ...]
    alpha: tuple[float, ...]
    axes: tuple[int, ...]
    shape: tuple[int, ...]
    rank: int  # of operands
    dtype: np.dtype[Any]
    options: tuple[tuple[str, Any], ...]
    portable: bool

    def fill(self, arrays: Sequence[Any]) -> list[Any]:
        """The operands: arrays and constants."""
        rest = iter(arrays)
        return [next(rest) if value is None else value for value in self.constants]

    def eager(self, arrays: Sequence[Any], key: EagerKey, batched: int) -> Any:
        """The call of ``popsr.sr``, with axes of ``vmap`` in front."""
        axes = tuple(axis + batched for axis in self.axes)
        return call_by_name(
            self.op, self.fill(arrays), self.alpha, self.dtype, axes, key=key, **dict(self.options)
        )


def _run(call: _Call, key: Key, *arrays: Any) -> np.ndarray[Any, Any]:
    """The callback. Each argument has as many axes of ``vmap`` in front, of extent 1 where it is not mapped."""
    values = [np.asarray(x) for x in arrays]
    leaves, cores = [np.asarray(x) for x in key._leaves], _cores(key)
    batched = values[0].ndim - call.rank
    of_keys = [leaf.shape[: leaf.ndim - core] for leaf, core in zip(leaves, cores, strict=True)]
    mapped = np.broadcast_shapes(*of_keys)
    if all(extent == 1 for extent in mapped):
        return np.asarray(call.eager(values, _eager_key(key._chain, leaves), batched))
    batch = np.broadcast_shapes(mapped, *(x.shape[:batched] for x in values))
    out = np.empty(batch + call.shape, call.dtype)
    for index in np.ndindex(mapped):
        part = _eager_key(key._chain, [_part(leaf, index, mapped) for leaf in leaves])
        result = call.eager([_part(x, index, mapped) for x in values], part, batched)
        _part(out, index, mapped)[...] = result
    return out


def _part(x: np.ndarray[Any, Any], index: tuple[int, ...], mapped: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """The part that one key is for; no axis is lost."""
    chosen = tuple(
        slice(i, i + 1) if of_keys > 1 and extent > 1 else slice(None)
        for i, of_keys, extent in zip(index, mapped, x.shape, strict=False)
    )
    return x[chosen]


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _rounded(call: _Call, key: Key, offset: tuple[Any, ...], *arrays: Any) -> Any:
    """The result; the offset is given apart if it is an array."""
    if call.portable:
        return _run_portable(call, key, offset, arrays)
    if not any(isinstance(x, jax.core.Tracer) for x in (*key._leaves, *arrays)):
        return jnp.asarray(_run(call, key, *arrays))
    make: Any = jax.ShapeDtypeStruct
    result = make(call.shape, call.dtype)
    return jax.pure_callback(functools.partial(_run, call), result, key, *arrays, vmap_method="expand_dims")


def _run_portable(call: _Call, key: Key, offset: tuple[Any, ...], arrays: Sequence[Any]) -> Any:
    key = _shortened(key)
    options, number = dict(call.options), (*call.constants, None)[1]
    form = format_of(call.dtype)
    known = of_jax.Call(call.op, number, form.name if form else "", key._chain, **options)
    return of_jax.compute(known, key._leaves, offset, arrays)


@_rounded.defjvp  # type: ignore[untyped-decorator, unused-ignore]  # Any where the framework is missing
def _rounded_jvp(call: _Call, primals: Any, tangents: Any) -> Any:
    unrounded = functools.partial(_unrounded, call)
    _, tangent = jax.jvp(unrounded, primals[2:], tangents[2:])
    return _rounded(call, *primals), tangent


def _unrounded(call: _Call, *arrays: Any) -> Any:
    """The operation without its rounding, whose derivative is taken."""
    wide = jnp.float64 if any(x.dtype == jnp.float64 for x in arrays) else jnp.float32
    given = call.fill([x.astype(wide) for x in arrays])
    return _FORMULAS[call.op](call, *given).astype(call.dtype)


_FORMULAS: dict[str, Any] = {
    "add": lambda _, x, y: x + y,
    "sub": lambda _, x, y: x - y,
    "mul": lambda _, x, y: x * y,
    "fma": lambda _, x, y, z: x * y + z,
    "axpy": lambda call, x, y: call.alpha[0] * x + y,
    "lerp": lambda _, x, y, t: x + t * (y - x),
    "addcmul": lambda call, x, t1, t2: x + call.alpha[0] * t1 * t2,
    "addcdiv": lambda call, x, t1, t2: x + call.alpha[0] * t1 / t2,
    "cast": lambda _, x: x,
    "sum": lambda call, x: x.sum(call.axes),
}


def _read_key(op: str, key: Any) -> Key:
    if isinstance(key, (Key, EagerKey)):
        return Key(key)
    got = "none" if key is REQUIRED or key is None else type_name(key)
    raise ArgumentTypeError(
        f"{op}: key is missing or of the wrong type, got {got}, expected popsr.sr.jax.Key(seed)"
    )


def _array(op: str, value: Any) -> jax.Array:
    try:
        array = jnp.asarray(value)
    except (TypeError, ValueError):
        raise ArgumentTypeError(f"{op}: an operand is not an array, got {type_name(value)}") from None
    if format_of(np.dtype(array.dtype)) is None:
        raise DTypeError(
            f"{op}: an operand has no supported dtype, got {array.dtype}, expected one of {', '.join(FORMATS)}"
        )
    return array


def _apply(
    op: str,
    operands: Sequence[Any],
    alpha: tuple[float, ...] = (),
    dtype: Any = None,
    axis: Any = REQUIRED,
    /,
    *,
    key: Any = REQUIRED,
    mode: Mode = "sr",
    overflow: Overflow = "ieee",
    offset: Any = 0,
) -> jax.Array:
    options: dict[str, Any] = {"key": key, "mode": mode, "overflow": overflow, "offset": offset}
    return _call(op, operands, alpha, dtype, axis, portable=False, **options)


def _is_portable(op: str, portable: bool) -> bool:
    """True where no callback can be or shall be."""
    return read_flag(f"{op}: portable", portable) or jax.default_backend() != "cpu"


def _read_offset(op: str, offset: Any, portable: bool) -> tuple[int | None, tuple[Any, ...]]:
    """The number of the first element, or none and an array of it: one integer, or two words."""
    if not isinstance(offset, jax.Array):
        return int(read_rounding(op, "sr", "ieee", offset)[2]), ()
    is_words = offset.dtype == jnp.uint32 and offset.shape == (2,)
    if not is_words and not _is_integer(offset):
        got = f"{offset.dtype} of {offset.shape}"
        raise ArgumentTypeError(
            f"{op}: offset is not an integer, got {got}, expected one, or shard_offset(...)"
        )
    if not portable:
        raise UnsupportedError(f"{op}: offset is an array of jax, expected portable=True")
    return None, (offset,)


def _call(
    op: str,
    operands: Sequence[Any],
    alpha: tuple[float, ...] = (),
    dtype: Any = None,
    axis: Any = REQUIRED,
    /,
    *,
    portable: bool,
    key: Any = REQUIRED,
    mode: Mode = "sr",
    overflow: Overflow = "ieee",
    offset: Any = 0,
) -> jax.Array:
    known = _read_key(op, key)
    read_rounding(op, mode, overflow, 0)
    first, traced = _read_offset(op, offset, portable)
    if type(operands[0]) in (int, float):
        raise ArgumentTypeError(
            f"{op}: the first operand is a number, got {shown(operands[0])}, expected an array"
        )
    constants = tuple(float(x) if type(x) in (int, float) else None for x in operands)
    arrays = [_array(op, x) for x, number in zip(operands, constants, strict=True) if number is None]
    try:
        shape = np.broadcast_shapes(*(x.shape for x in arrays))
    except ValueError:
        text = " and ".join(str(x.shape) for x in arrays)
        raise ShapeError(
            f"{op}: shapes do not broadcast, got {text}, expected extents that are equal or 1"
        ) from None
    rank = len(shape)
    axes: tuple[int, ...] = ()
    aligned = [x.reshape((1,) * (rank - x.ndim) + x.shape) for x in arrays]
    if axis is not REQUIRED:
        axes = _sum._read_axes(axis, rank)
        shape = tuple(extent for k, extent in enumerate(shape) if k not in axes)
    form = np.dtype(arrays[0].dtype) if dtype is None else read_format(op, dtype).numpy
    options = (("mode", mode), ("overflow", overflow), ("offset", first))
    call = _Call(op, constants, alpha, axes, shape, rank, form, options, portable)
    result: jax.Array = _rounded(call, known, traced, *aligned)
    return result


@public
@takes_keywords_of(_apply)
def add(x: Any, y: Any, *, portable: bool = False, **options: Unpack[TracedOptions]) -> jax.Array:
    """``popsr.sr.add``, on any device.

    Args:
        x: array of jax; the result has its format.
        y: array, or a number, which is a double.
        key: :class:`Key`, or a ``popsr.sr.Key``.
        mode: this and all that follows is as in ``popsr.sr.add``, and is not traced.
        overflow: what becomes of results that are too large.
        offset: number of the first element; in the portable form it may be traced: an integer that is not negative, or
            :func:`shard_offset`.
        portable: by jax's own operations on integers, without a callback, so that XLA fuses it with what is before and
            after; always where JAX's default backend is not the CPU. The bits are the same. A traced step of the key
            that is negative counts as its 64 bits.
    Raises:
        TypeError, ValueError: as ``popsr.sr.add``, when the call is traced.
    """
    return _call("add", (x, y), portable=_is_portable("add", portable), **options)


@public
@takes_keywords_of(_apply)
def sub(x: Any, y: Any, *, portable: bool = False, **options: Unpack[TracedOptions]) -> jax.Array:
    """``popsr.sr.sub``; arguments as in :func:`add`."""
    return _call("sub", (x, y), portable=_is_portable("sub", portable), **options)


@public
@takes_keywords_of(_apply)
def mul(x: Any, y: Any, **options: Unpack[TracedOptions]) -> jax.Array:
    """``popsr.sr.mul``; arguments as in :func:`add`."""
    return _apply("mul", (x, y), **options)


@public
@takes_keywords_of(_apply)
def fma(x: Any, y: Any, z: Any, **options: Unpack[TracedOptions]) -> jax.Array:
    """``popsr.sr.fma``: x * y + z, rounded once; arguments as in :func:`add`."""
    return _apply("fma", (x, y, z), **options)


@public
@takes_keywords_of(_apply)
def axpy(alpha: Any, x: Any, y: Any, **options: Unpack[TracedOptions]) -> jax.Array:
    """``popsr.sr.axpy``: alpha * x + y, rounded once; arguments as in :func:`add`.

    ``alpha`` is a number, or an array that may be traced, as of a schedule.
    """
    if isinstance(alpha, jax.Array):
        return _apply("fma", (x, alpha, y), **options)
    scale = read_number("axpy: alpha", alpha)
    return _apply("axpy", (x, y), (scale,), **options)


@public
@takes_keywords_of(_apply)
def lerp(x: Any, y: Any, t: Any, **options: Unpack[TracedOptions]) -> jax.Array:
    """``popsr.sr.lerp``: x + t * (y - x), rounded once; arguments as in :func:`add`."""
    return _apply("lerp", (x, y, t), **options)


@public
@takes_keywords_of(_apply)
def addcmul(x: Any, t1: Any, t2: Any, alpha: float = 1.0, **options: Unpack[TracedOptions]) -> jax.Array:
    """``popsr.sr.addcmul``: x + alpha * t1 * t2, rounded once; arguments as in :func:`add`, alpha is not traced."""
    scale = read_number("addcmul: alpha", alpha)
    return _apply("addcmul", (x, t1, t2), (scale,), **options)


@public
@takes_keywords_of(_apply)
def addcdiv(x: Any, t1: Any, t2: Any, alpha: float = 1.0, **options: Unpack[TracedOptions]) -> jax.Array:
    """``popsr.sr.addcdiv``: x + alpha * t1 / t2, rounded once; arguments as in :func:`add`, alpha is not traced."""
    scale = read_number("addcdiv: alpha", alpha)
    return _apply("addcdiv", (x, t1, t2), (scale,), **options)


@public
@takes_keywords_of(_apply)
def cast(x: Any, dtype: Any, *, portable: bool = False, **options: Unpack[TracedOptions]) -> jax.Array:
    """``popsr.sr.cast``: x in another format, on any device.

    Args:
        x: array of floats.
        dtype: a dtype, or a name.
        portable: as in :func:`add`.
        **options: likewise.
    Raises:
        TypeError, ValueError: as ``popsr.sr.cast``.
    """
    return _call("cast", (x,), (), dtype, portable=_is_portable("cast", portable), **options)


@public
@takes_keywords_of(_apply)
def sum(
    x: Any, dtype: Any = None, *, axis: int | tuple[int, ...] | None = None, **options: Unpack[TracedOptions]
) -> jax.Array:
    """``popsr.sr.sum``: a running sum, rounded after each element; arguments as there and in :func:`add`."""
    return _apply("sum", (x,), (), dtype, axis, **options)


__dir__ = names_only(__all__)
