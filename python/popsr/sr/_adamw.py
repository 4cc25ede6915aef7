"""``adamw_``: a step of AdamW in one pass over memory."""

from __future__ import annotations

import math
from typing import Any, Required, TypedDict, Unpack, overload

from popsr import _core
from popsr._support.host.arguments import read_int, read_number
from popsr._support.host.float_environment import in_default_environment
from popsr._support.text.entry_points import public
from popsr._support.text.shown import shown
from popsr.errors import ArgumentTypeError, AttributeValueError, ShapeError
from popsr.sr._call import REQUIRED, Key, Source, check_numbers, read_options, read_source, writable
from popsr.sr._overlap import check_out_overlap
from popsr.sr._types import M, Memory, Operand, W
from popsr.sr._watch import draws

__all__ = ["adamw_", "read_scalars"]


class AdamWOptions(TypedDict, total=False):
    """The options of ``adamw_``."""

    key: Required[Key]
    step: Required[int]
    lr: float
    betas: tuple[float, float]
    eps: float
    weight_decay: float
    offset: int
    num_threads: int | None


@overload
def adamw_(w: W, g: Operand, m: Memory, v: Memory, **options: Unpack[AdamWOptions]) -> W: ...
@overload
def adamw_(w: M, g: Operand, m: Memory, v: Memory, **options: Unpack[AdamWOptions]) -> M: ...
@public
@in_default_environment
def adamw_(
    w: Any,
    g: Any,
    m: Any,
    v: Any,
    *,
    key: Key = REQUIRED,
    step: int,
    lr: float = 1e-3,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 1e-2,
    offset: int = 0,
    num_threads: int | None = None,
) -> Any:
    """One step of AdamW: ``m``, ``v`` and then ``w`` in place, one pass over memory, no temporary arrays.

    ``m <- b1 m + (1 - b1) g``, ``v <- b2 v + (1 - b2) g**2``, and ``w <- SR(w + u)`` with
    ``u = -lr (weight_decay w + m / (1 - b1**step) / (sqrt(v / (1 - b2**step)) + eps))``.

    Args:
        w: weights, writable array ``[...]``, of any format of :func:`add`.
        g: gradient of the same shape, any format.
        m: first moment, writable array of the same shape, any format; zeros before the first step.
        v: second moment, likewise.
        key: ``key.at(step)`` is what is drawn from, so one key for each array of weights is enough.
        step: counts from 1; its bias corrections are those above.
        lr: learning rate.
        betas: decay of the moments.
        eps: added to the root.
        weight_decay: decoupled decay.
        offset: number of the first element.
        num_threads: default: ``popsr.num_threads()``. No result depends on it.
    Returns:
        ``w``.
    Raises:
        TypeError: as ``add``; ``w``, ``m`` and ``v`` must be writable.
        ValueError: shapes differ, arrays overlap, ``step`` is below 1, or another number is out of range.
    The update u and the moments are computed in fp32 (in fp64 if one of the arrays is), each operation to nearest; the
    sum w + u is rounded once, with its exact chance, and so is each narrow moment, under keys of its own.
    Source:
        Loshchilov and Hutter, Decoupled Weight Decay Regularization, 2017, arXiv:1711.05101.
    Example:
        >>> w, m, v = (np.array(x, np.float16) for x in ([1.0, 1.0], [0.0, 0.0], [0.0, 0.0]))
        >>> sr.adamw_(w, np.array([0.1, -0.1], np.float16), m, v, key=sr.Key(0), step=1)
        array([0.999, 1.001], dtype=float16)
    """
    op = "adamw_"
    options = read_options(op, key, "sr", "ieee", offset, num_threads)
    step = read_int(f"{op}: step", step, 1, 2**53)
    scalars = read_scalars(op, lr, betas, eps, weight_decay)
    named = (("w", w), ("g", g), ("m", m), ("v", v))
    sources = tuple(read_source(op, name, value, None) for name, value in named)
    shape = sources[0].array.shape
    if any(source.array.shape != shape for source in sources):
        got = ", ".join(f"{source.name} of {source.array.shape}" for source in sources)
        raise ShapeError(f"{op}: shapes differ, got {got}, expected equal ones")
    check_numbers(op, options.offset, shape)
    _check_memory(op, sources)
    (aw, fw), (ag, fg), (am, fm), (av, fv) = ((source.array, source.form.index) for source in sources)
    key = options.key.at(step)
    draws(op, key, options.mode, options.offset, shape)
    _core.sr.adamw(aw, fw, ag, fg, am, fm, av, fv, key, step, scalars, options.numbers, options.num_threads)
    for source in (sources[0], *sources[2:]):
        source.mark_written()
    return w


def read_scalars(
    op: str, lr: Any, betas: Any, eps: Any, weight_decay: Any
) -> tuple[float, float, float, float, float]:
    try:
        beta1, beta2 = betas
    except (TypeError, ValueError):
        raise ArgumentTypeError(f"{op}: betas is not a pair of numbers, got {shown(betas)}") from None
    scalars = (
        read_number(f"{op}: lr", lr),
        read_number(f"{op}: betas[0]", beta1),
        read_number(f"{op}: betas[1]", beta2),
        read_number(f"{op}: eps", eps),
        read_number(f"{op}: weight_decay", weight_decay),
    )
    for name, value, limit in zip(
        ("lr", "betas[0]", "betas[1]", "eps", "weight_decay"),
        scalars,
        (math.inf, 1, 1, math.inf, math.inf),
        strict=True,
    ):
        if not 0 <= value < limit:
            raise AttributeValueError(
                f"{op}: {name} is out of range, got {value}, expected 0 <= {name} < {limit}"
            )
    return scalars


def _check_memory(op: str, sources: tuple[Source, ...]) -> None:
    """Raise unless w, m and v are writable, and no two arrays share memory."""
    for written in (sources[0], *sources[2:]):
        writable(op, written, written.array.shape)
        others = {s.name: s.array for s in sources if s is not written}
        check_out_overlap(op, written.name, written.array, others, same=False)
