"""One call: arguments are read and checked, memory is laid out; then the core computes, and writes."""

from __future__ import annotations

import math
from typing import Any, NamedTuple, get_args

import numpy as np

from popsr import _core
from popsr._support.host.arguments import read_int, read_number, require_memory
from popsr._support.text.shown import shown
from popsr.errors import ArgumentTypeError, AttributeValueError, DTypeError, ShapeError
from popsr.sr._formats import Format, read_format
from popsr.sr._kinds import NUMPY, Array, Kind, kind_of
from popsr.sr._overlap import check_out_overlap
from popsr.sr._runs import Runs
from popsr.sr._types import Key, Mode, Overflow
from popsr.sr._watch import draws

__all__ = [
    "REQUIRED",
    "Key",
    "Options",
    "Source",
    "broadcast",
    "broadcast_view",
    "check_format",
    "check_numbers",
    "compute",
    "elementwise",
    "lay_out",
    "read_key",
    "read_options",
    "read_rounding",
    "read_source",
    "run",
    "update",
    "writable",
]

_MODES: tuple[Mode, ...] = get_args(Mode)
_OVERFLOWS: tuple[Overflow, ...] = get_args(Overflow)


class _Required:
    """Default of an argument that has none: its absence is an error of popsr."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "<required>"


REQUIRED: Any = _Required()


class Source(NamedTuple):
    """An argument that is an array: what it is, where it lies, in which format."""

    name: str
    value: Any
    kind: Kind
    array: Array
    form: Format
    is_raw: bool

    def mark_written(self) -> None:
        """To be called when the memory was written."""
        if self.kind.written is not None:
            self.kind.written(self.value)

    def plain(self) -> Any:
        """The argument; an array of NumPy in place of an object that it has read."""
        return self.kind.wrap(self.array, self.form) if self.kind is NUMPY else self.value

    def wrap(self, array: Array, form: Format) -> Any:
        """A result, as the kind of array that this argument is."""
        return self.kind.wrap(array.view(form.raw), None) if self.is_raw else self.kind.wrap(array, form)


class Options(NamedTuple):
    """Options of every operation, checked."""

    key: Key
    mode: Mode
    overflow: Overflow
    offset: int | Runs
    num_threads: int

    @property
    def numbers(self) -> Any:
        """The numbers of elements, for the core."""
        return self.offset.table if isinstance(self.offset, Runs) else self.offset


def _key(lo: int, hi: int, text: str) -> Key:
    """A Key of a pickle."""
    return _core.sr._key_from_words(lo, hi, text)


def read_key(op: str, key: Any) -> Key:
    """A key.

    Raises:
        ArgumentTypeError: it is missing, or something else.
    """
    if isinstance(key, Key):
        return key
    got = "none" if key is REQUIRED or key is None else type(key).__name__
    raise ArgumentTypeError(
        f"{op}: key is missing or of the wrong type, got {got}, expected popsr.sr.Key(seed)"
    )


def read_options(op: str, key: Any, mode: Any, overflow: Any, offset: Any, num_threads: Any) -> Options:
    """The common arguments, checked."""
    return Options(
        read_key(op, key),
        *read_rounding(op, mode, overflow, offset),
        0 if num_threads is None else read_int(f"{op}: num_threads", num_threads, 1, 4096),
    )


def read_rounding(op: str, mode: Any, overflow: Any, offset: Any) -> tuple[Mode, Overflow, Any]:
    """Options that say how elements are rounded, checked."""
    number = offset if type(offset) is Runs else read_int(f"{op}: offset", offset, 0, 2**64 - 1)
    return _read_mode(op, mode), _read_overflow(op, overflow), number


def _read_overflow(op: str, overflow: Any) -> Overflow:
    for known in _OVERFLOWS:
        if isinstance(overflow, str) and overflow == known:
            return known
    expected = ", ".join(map(repr, _OVERFLOWS))
    raise AttributeValueError(f"{op}: unknown overflow, got {shown(overflow)}, expected one of {expected}")


def _read_mode(op: str, mode: Any) -> Mode:
    for known in _MODES:
        if isinstance(mode, str) and mode == known:
            return known
    expected = ", ".join(repr(known) for known in _MODES if "=" not in known)
    raise AttributeValueError(
        f"{op}: unknown mode, got {shown(mode)}, expected one of {expected} or 'sr_bits=r' with r from 1 to 32"
    )


# Arrays


def read_source(op: str, name: str, value: Any, dtype: Format | None, *, carriers: bool = False) -> Source:
    """An array. ``dtype`` is the format of unsigned integers; ``carriers`` are refused unless asked for.

    Raises:
        DTypeError: no format of ``popsr.sr``, or integers without (a fitting) ``dtype``.
        ArgumentTypeError: no array.
    """
    kind = kind_of(op, name, value)
    array, form = kind.view(op, name, value)
    if form is not None:
        if form.is_carrier and not carriers:
            raise DTypeError(
                f"{op}: {name} has no arithmetic, got {form.name}, expected popsr.sr.cast(..., 'float32') of it"
            )
        return Source(name, value, kind, array, form, is_raw=False)
    if dtype is None or dtype.raw != array.dtype:
        got = "no dtype=" if dtype is None else f"dtype {dtype.name}"
        raise DTypeError(
            f"{op}: {name} is a buffer of integers, got {array.dtype} and {got}, expected dtype= of a format "
            f"of {8 * array.dtype.itemsize} bits"
        )
    return Source(name, value, kind, array.view(dtype.carrier), dtype, is_raw=True)


def broadcast(op: str, sources: tuple[Source, ...]) -> tuple[int, ...]:
    """The shape of the result.

    Raises:
        ShapeError: there is none.
    """
    shapes = [source.array.shape for source in sources]
    first: tuple[int, ...] = shapes[0]
    if all(shape == first for shape in shapes):
        return first
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        text = " and ".join(str(shape) for shape in shapes)
        raise ShapeError(
            f"{op}: shapes do not broadcast, got {text}, expected extents that are equal or 1"
        ) from None


def read_out(op: str, value: Any, form: Format, dtype: Format | None) -> Source:
    """``out``, of the result's format.

    Raises:
        DTypeError: another format.
    """
    source = read_source(op, "out", value, dtype)
    check_format(op, source, form)
    return source


def check_format(op: str, source: Source, form: Format) -> None:
    """Raise DTypeError unless the array has that format."""
    if source.form is not form:
        raise DTypeError(
            f"{op}: {source.name} has another dtype, got {source.form.name}, expected {form.name}"
        )


def writable(op: str, source: Source, shape: tuple[int, ...]) -> None:
    """Raise unless a result of that shape can be written to ``source``.

    Raises:
        ArgumentTypeError: immutable or read-only.
        ShapeError: another shape.
    """
    if not source.kind.mutable:
        raise ArgumentTypeError(
            f"{op}: {source.name} is immutable, got {type(source.value).__name__}, expected a writable array"
        )
    if not source.array.flags.writeable:
        raise ArgumentTypeError(f"{op}: {source.name} is read-only, expected a writable array")
    if source.array.shape != shape:
        raise ShapeError(f"{op}: shapes differ, got {source.name} of {source.array.shape}, expected {shape}")


def broadcast_view(array: Array, shape: tuple[int, ...]) -> Array:
    """The array, broadcast."""
    return array if array.shape == shape else np.broadcast_to(array, shape)


class Layout(NamedTuple):
    """A checked call: where its operands lie, and where its result goes."""

    op: str
    sources: tuple[Source, ...]
    first: Source  # decides the kind of a new result
    form: Format
    array: Array
    given: Source | None  # memory of the caller

    def result(self) -> Any:
        """Result for the caller, once ``array`` is written."""
        if self.given is None:
            return self.first.wrap(self.array, self.form)
        self.given.mark_written()
        return self.given.value


def lay_out(
    op: str,
    operands: tuple[tuple[str, Any], ...],
    *,
    dtype: Any = None,
    to: Format | None = None,
    out: Any = None,
    target: int | None = None,
    all_named: bool = False,
) -> Layout:
    """Read and check arrays.

    Args:
        op: name of the public function.
        operands: arrays by the name of their argument.
        dtype: format of integer buffers; else the first operand's, or None.
        to: format of the result. Default: the first operand's.
        out: memory for the result.
        target: the operand that is written in place, which is "first" then.
        all_named: do all operands have to be of ``dtype``?
    """
    named = None if dtype is None else read_format(op, dtype)
    sources = tuple(read_source(op, name, value, named) for name, value in operands)
    first = sources[target or 0]
    if named is not None:
        named_too = sources if all_named else () if any(s.is_raw for s in sources) else (first,)
        for source in named_too:
            check_format(op, source, named)
    shape = broadcast(op, sources)
    form = to or first.form
    if target is None and out is None:
        require_memory(op, math.prod(shape) * form.itemsize)
        return Layout(op, sources, first, form, np.empty(shape, form.carrier), None)
    given = first if target is not None else read_out(op, out, form, named or to)
    writable(op, given, shape)
    check_out_overlap(op, given.name, given.array, {s.name: broadcast_view(s.array, shape) for s in sources})
    return Layout(op, sources, first, form, given.array, given)


def compute(
    op: str,
    operands: tuple[tuple[str, Any], ...],
    factors: tuple[tuple[str, Any], ...] = (),
    /,
    *,
    key: Key = REQUIRED,
    dtype: Any = None,
    out: Any = None,
    mode: Mode = "sr",
    overflow: Overflow = "ieee",
    offset: int = 0,
    num_threads: int | None = None,
) -> Any:
    """Run an elementwise operation that makes an array.

    Args:
        op: name of the public function.
        operands: arrays by the name of their argument.
        factors: numbers by the name of their argument.
        key: this and all that follows is as in ``popsr.sr.add``.
        dtype: format of integer buffers.
        out: memory for the result.
        mode: how to round.
        overflow: what becomes of results that are too large.
        offset: number of the first element.
        num_threads: default: ``popsr.num_threads()``.
    Returns:
        ``out``, or a new array of the first operand's kind.
    """
    options = read_options(op, key, mode, overflow, offset, num_threads)
    return elementwise(op, operands, _numbers(op, factors), options, dtype=dtype, out=out)


def update(
    op: str,
    operands: tuple[tuple[str, Any], ...],
    factors: tuple[tuple[str, Any], ...] = (),
    target: int = 0,
    kernel: str | None = None,
    /,
    *,
    key: Key = REQUIRED,
    dtype: Any = None,
    mode: Mode = "sr",
    overflow: Overflow = "ieee",
    offset: int = 0,
    num_threads: int | None = None,
) -> Any:
    """Run an elementwise operation in place of its operand number ``target``, which is returned; see ``compute``."""
    options = read_options(op, key, mode, overflow, offset, num_threads)
    numbers = _numbers(op, factors)
    return elementwise(op, operands, numbers, options, kernel=kernel, dtype=dtype, target=target)


def check_numbers(op: str, offset: int | Runs, shape: tuple[int, ...]) -> None:
    """Raise unless the numbers of all elements of that shape have 64 bits; the core checks runs.

    Raises:
        AttributeValueError: the largest has more.
    """
    if not isinstance(offset, Runs) and offset + math.prod(shape) > 2**64:
        raise AttributeValueError(
            f"{op}: offset is too large, got {offset} with shape {shape}, expected offset + size <= 2**64"
        )


def _numbers(op: str, factors: tuple[tuple[str, Any], ...]) -> tuple[float, ...]:
    return tuple([read_number(f"{op}: {name}", value) for name, value in factors])


def elementwise(
    op: str,
    operands: tuple[tuple[str, Any], ...],
    scalars: tuple[float, ...],
    options: Options,
    *,
    kernel: str | None = None,
    **arrays: Any,
) -> Any:
    """Run one elementwise operation.

    Args:
        op: name of the public function.
        operands: arrays by the name of their argument.
        scalars: factors.
        options: the common arguments.
        kernel: what the core calls the operation. Default: ``op`` without its underscore.
        arrays: see ``lay_out``.
    Returns:
        ``out``, the operand written in place, or a new array of the first operand's kind.
    """
    layout = lay_out(op, operands, **arrays)
    check_numbers(op, options.offset, layout.array.shape)
    draws(op, options.key, options.mode, options.offset, layout.array.shape)
    run(kernel or op.rstrip("_"), layout.array, layout.form, layout.sources, scalars, options)
    return layout.result()


def run(
    op: str,
    out: Array,
    form: Format,
    sources: tuple[Source, ...],
    scalars: tuple[float, ...],
    options: Options,
) -> None:
    """Let the core compute."""
    _core.sr.apply(
        op,
        out,
        form.index,
        tuple(broadcast_view(source.array, out.shape) for source in sources),
        tuple(source.form.index for source in sources),
        scalars,
        options.key,
        options.mode,
        options.overflow == "saturate",
        options.numbers,
        options.num_threads,
    )
