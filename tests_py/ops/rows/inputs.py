"""The table of ops, its parts: functions that draw the operands of a dtype, cases and rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from tests_py.ops.rows.refusals.refusal import Refusal
from tests_py.support.helpers import (
    ALL_DTYPES,
    CARRIERS,
    FLOAT8,
    FLOATS,
    INTS,
    SCHEMAS,
    Array,
    dtype,
    np_dtype,
)
from tests_py.support.oracles import ops as oracles

Draw = Callable[[np.random.Generator, str], list[Array]]


def normal(*shapes: tuple[int, ...], scale: float = 1.0) -> Draw:
    """Normal numbers; integers of the whole range for integer types, all bits for float8."""

    def draw(rng: np.random.Generator, name: str) -> list[Array]:
        if name == "bool":
            return [rng.integers(0, 2, shape).astype(bool) for shape in shapes]
        if name in INTS:
            info = np.iinfo(name)
            return [rng.integers(info.min, info.max, shape, name, endpoint=True) for shape in shapes]
        if name in FLOAT8:
            return [rng.integers(0, 256, shape, np.uint8).view(np_dtype(name)) for shape in shapes]
        return [(scale * rng.standard_normal(shape)).astype(np_dtype(name)) for shape in shapes]

    return draw


def positive(*shapes: tuple[int, ...]) -> Draw:
    """Floats between 0.1 and 4."""
    return lambda rng, name: [rng.uniform(0.1, 4.0, shape).astype(np_dtype(name)) for shape in shapes]


def small(*shapes: tuple[int, ...]) -> Draw:
    """Small non-negative integers of any type: sums and products of a few are exact."""
    return lambda rng, name: [rng.integers(0, 4, shape).astype(np_dtype(name)) for shape in shapes]


def specials(name: str) -> Array:
    """Zeros, infinities, NaN, subnormals, extremes."""
    if name == "bool":
        return np.array([False, True])
    if name in INTS:
        info = np.iinfo(name)
        return np.array([info.min, info.max, info.min + 1, info.max - 1, 0, 1, 2, 3, 7], name)
    if name in (*FLOAT8, *CARRIERS):
        codes = 16 if name.startswith("float4") else 256
        return np.arange(codes, dtype=np.uint8).view(np_dtype(name))
    precision, place = oracles.PRECISION[name], oracles.LEAST_PLACE[name]
    least, normal_least = np.ldexp(1.0, place), np.ldexp(1.0, place + precision - 1)
    largest = float((2 - 2.0 ** (1 - precision)) * float(oracles._top_power(name)))
    finite = [0.0, 1.0, 0.5, 2.5, 3.0, 88.0, 1e4, least, 3 * least, normal_least, largest]
    values = [*finite, *(-value for value in finite), np.inf, -np.inf, np.nan]
    with np.errstate(all="ignore"):
        return np.array(values, np.float64).astype(np_dtype(name))


def special(count: int) -> Draw:
    """All combinations of special values in ``count`` operands."""

    def draw(_: np.random.Generator, name: str) -> list[Array]:
        grids = np.meshgrid(*[np.arange(len(specials(name)))] * count, indexing="ij")
        return [specials(name)[grid.reshape(-1)] for grid in grids]

    return draw


def integers_below(end: int) -> Draw:
    """One number from 0 to end - 1."""
    return lambda rng, name: [rng.integers(0, end, ()).astype(np_dtype(name))]


def losses(*rows: int, labels: str = "int32", classes: int = 5, third: tuple[int, ...] | None = None) -> Draw:
    """Probabilities, labels and perhaps a gradient of the loss."""

    def draw(rng: np.random.Generator, name: str) -> list[Array]:
        p = rng.uniform(0.01, 1.0, (*rows, classes))
        arrays = [
            (p / p.sum(-1, keepdims=True)).astype(np_dtype(name)),
            rng.integers(0, classes, rows).astype(labels),
        ]
        return arrays if third is None else [*arrays, rng.uniform(0.5, 2.0, third).astype(np_dtype(name))]

    return draw


def together(*draws: Draw | tuple[Draw, str]) -> Draw:
    """Inputs drawn one after another; a pair has a dtype of its own."""

    def draw(rng: np.random.Generator, name: str) -> list[Array]:
        pairs = [each if isinstance(each, tuple) else (each, name) for each in draws]
        return [array for one, own in pairs for array in one(rng, own)]

    return draw


def with_labels(draw: Draw, labels: list[int]) -> Draw:
    """As ``losses``, with these labels."""
    return lambda rng, name: [draw(rng, name)[0], np.array(labels, np.int32)]


@dataclass(frozen=True)
class Case:
    """Inputs and what must come out.

    ``oracle`` takes arrays of the compute type and the attributes. Without ``ulps`` and ``bound`` its result, rounded
    once, is the exact answer. With one of them it takes and gives long doubles: ``ulps`` is a distance in units of
    the last place of the compute type, ``bound`` gives the absolute error for a unit roundoff.
    """

    draw: Draw
    oracle: Callable[..., Any]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    label: str = ""
    dtypes: tuple[str, ...] = FLOATS
    ulps: Mapping[str, float] | None = None
    bound: Callable[..., Any] | None = None
    group: tuple[int, int] | None = None  # stride and size over 4 replicas: inputs have a row a replica
    call: Callable[..., Any] | None = None  # called with the op's function, tensors and attributes
    smooth: bool = False  # differentiated at these inputs
    written: tuple[int, ...] | None = None  # inputs that are modified, where they are not the schema's


@dataclass(frozen=True)
class Facts:
    """Partitions of the outputs for these of the inputs, over 4 replicas (test_replicas.py)."""

    inputs: tuple[str, ...]
    outputs: str | tuple[str, ...]
    group: tuple[int, int] | None = None  # stride and size
    case: Case | None = None  # a special one; otherwise the row's first one with so many inputs
    label: str = ""


def facts_by_group(table: Mapping[tuple[int, int], Mapping[str, str]]) -> tuple[Facts, ...]:
    """Facts of an op with one input: for each grouping the output's partition by the input's."""
    return tuple(
        Facts((t,), output, group, label=f"{t}-of-groups-{group}")
        for group, by_input in table.items()
        for t, output in by_input.items()
    )


@dataclass(frozen=True)
class Row:
    """One op.

    ``grad``: finite differences agree; it is zero everywhere; this replica's part of the gradient (test_autodiff.py);
    what the docstring states (test_collective_gradients.py); gradients stop; asking throws; so it does, because the
    result is bool; the op modifies; there is nothing to ask for. ``grad_of``: floating inputs that have that gradient.
    ``replicas``: facts of the outputs; but for special cases they are the meet of the inputs' where none are given.
    """

    cases: tuple[Case, ...]
    grad: Literal["finite", "zeros", "own part", "stated", "stops", "throws", "bool", "modifies", "nothing"]
    inplace_of: str | None = None
    grad_of: Literal["every", "first", "all but the first"] = "every"
    python_only: tuple[str, ...] = ()
    renamed: Mapping[str, str] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)  # of inputs that Python makes from numbers
    parameters: tuple[str, ...] = ()  # the order of Python's parameters, where it is not the schema's
    listed: bool = False  # Python takes the variadic input as a list
    gives: tuple[str, ...] = ALL_DTYPES  # dtypes that an op without inputs can give
    required: tuple[str, ...] = ()  # factors without a default: a number or a tensor must be given
    replicas: tuple[Facts, ...] = ()
    errors: tuple[Refusal, ...] = ()  # calls that are refused (test_errors.py)


def written_inputs(op: str, case: Case) -> tuple[int, ...]:
    """Positions among a case's inputs of those that the op modifies."""
    return tuple(i for i, _ in SCHEMAS[op]["effects"]) if case.written is None else case.written


def call_arguments(case: Case) -> dict[str, Any]:
    """Attributes as Python takes them: dtypes by name become dtypes."""
    return {k: dtype(v) if k in ("data_type", "dtype") else v for k, v in case.attrs.items()}
