"""Bitwise comparison, running small programs, the registry: helpers of several test files."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import popsr
from popsr import _core, ops
from popsr._program.streams import StreamMode
from popsr.ops import collectives, var_updates
from tests_py import ROOT

Array = NDArray[Any]

FLOATS = ("float64", "float32", "float16", "bfloat16")
INTS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
NUMBERS = FLOATS + INTS
NUMBERS_AND_BOOL = (*NUMBERS, "bool")  # of what ops read values; others are only moved
FLOAT8 = tuple(
    name
    for name in popsr.dtypes.__all__
    if name.startswith("float8") and not popsr.dtype.from_name(name)._is_carrier
)
CARRIERS = tuple(name for name, each in popsr.dtype._all.items() if each._is_carrier)
ALL_DTYPES = (*NUMBERS_AND_BOOL, *FLOAT8, *CARRIERS)


def dtype(name: str) -> Any:
    """popsr's dtype of that name."""
    return popsr.dtypes.dtype.from_name(name)


def np_dtype(name: str) -> np.dtype[Any]:
    """NumPy's dtype of that name with arithmetic (bfloat16, float8: of ml_dtypes)."""
    return np.dtype(dtype(name).as_ml_dtypes())


def plain(array: Array) -> Array:
    """The same bits as array with arithmetic: what sessions return as float8 is structured."""
    return array if array.dtype.names is None else array.view(np_dtype(array.dtype.names[0]))


def codes(array: Array) -> Array:
    """The bits of float8 data, of any of its forms."""
    return np.ascontiguousarray(array).view(np.uint8).reshape(array.shape)


# Comparison


def bits(array: Array) -> Array:
    """The bits as unsigned integers; all NaNs are one value, -0 and +0 are two."""
    array = np.ascontiguousarray(plain(array))
    if array.dtype.kind == "b":
        return array.astype(np.uint8)
    as_ints: Array = array.view(f"u{array.dtype.itemsize}").copy()
    if array.dtype.kind == "f" or array.dtype.name == "bfloat16":
        as_ints[array != array] = np.iinfo(as_ints.dtype).max
    return as_ints


def same_bits(a: Array, b: Array) -> bool:
    """Equal shape, dtype and bits."""
    a, b = plain(a), plain(b)
    return a.dtype == b.dtype and a.shape == b.shape and bool(np.array_equal(bits(a), bits(b)))


def assert_same_bits(got: Array, expect: Array, what: str = "") -> None:
    """As ``same_bits``, with the first difference in the message."""
    got, expect = plain(got), plain(expect)
    assert got.dtype == expect.dtype, f"{what}: dtype {got.dtype}, expected {expect.dtype}"
    assert got.shape == expect.shape, f"{what}: shape {got.shape}, expected {expect.shape}"
    differs = np.argwhere(bits(got) != bits(expect))
    if len(differs):
        at = tuple(int(i) for i in differs[0])
        raise AssertionError(
            f"{what}: {len(differs)} of {got.size} elements differ, first at {at}: got {got[at]!r}, "
            f"expected {expect[at]!r}"
        )


# The registry

SCHEMAS: dict[str, Any] = {schema["name"]: schema for schema in _core.op_schemas()}
PUBLIC: tuple[str, ...] = tuple(sorted(name for name, schema in SCHEMAS.items() if not schema["internal"]))


def elementwise(operands: int, schemas: Iterable[Any] = SCHEMAS.values()) -> tuple[str, ...]:
    """Public ops that are one element-wise kernel of so many tensors, and need nothing else."""
    return tuple(
        schema["name"]
        for schema in schemas
        if not (schema["internal"] or schema["effects"] or any(attr["required"] for attr in schema["attrs"]))
        and (schema["elementwise"] or {}).get("operands") == operands
    )


def over_axes(schemas: Iterable[Any] = SCHEMAS.values()) -> tuple[str, ...]:
    """Reductions over any axes."""
    return tuple(
        schema["name"] for schema in schemas if any(attr["name"] == "keepdims" for attr in schema["attrs"])
    )


def python_op(name: str) -> Callable[..., Any]:
    """The public Python function of an op."""
    for module in (ops, collectives, var_updates):
        if name in module.__all__:
            found = getattr(module, name)
            assert inspect.isfunction(found)
            return found
    raise AssertionError(
        f"op {name!r} has no Python function in popsr.ops, ops.collectives or ops.var_updates"
    )


# Programs


def as_list(value: Any) -> list[Any]:
    """Outputs of an op function as a list."""
    if value is None:
        return []
    return list(value) if isinstance(value, (list, tuple)) else [value]


class Streams:
    """Streams of a program under test, in the order in which tensors were fed and fetched."""

    def __init__(self) -> None:
        self.inputs: dict[Any, Array] = {}
        self.outputs: list[Any] = []

    def feed(self, data: Array, *, replicated: bool = False, transfers: bool = False) -> popsr.Tensor:
        """Load ``data``; ``replicated`` and ``transfers`` say which leading dimensions it has."""
        shape = data.shape[int(replicated and popsr.gir().replication_factor > 1) + int(transfers) :]
        mode: StreamMode = "replicate" if replicated or popsr.gir().replication_factor == 1 else "broadcast"
        stream = popsr.h2d_stream(shape, dtype(data.dtype.name), "in", replicated_stream_mode=mode)
        self.inputs[stream] = data
        return ops.host_load(stream)

    def fetch(self, tensor: popsr.Tensor) -> None:
        """Store the tensor."""
        stream = popsr.d2h_stream(tensor.shape, tensor.dtype, "out")
        ops.host_store(stream, tensor)
        self.outputs.append(stream)

    def run(self, session: popsr.Session) -> list[Array]:
        """One run; outputs in the order of ``fetch``."""
        results = session.run(self.inputs, downcast_inputs=False)
        return [plain(results[stream]) for stream in self.outputs]


def evaluate(
    fn: Callable[..., Any],
    arrays: Sequence[Array],
    *,
    replication: int = 1,
    replicated: bool = False,
    **options: Any,
) -> list[Array]:
    """Outputs of ``fn`` of tensors with the given data; with ``replicated``, data has a row a replica."""
    ir = popsr.Ir(replication=replication)
    io = Streams()
    with ir.main_graph, popsr.in_sequence():
        tensors = [io.feed(array, replicated=replicated) for array in arrays]
        for result in as_list(fn(*tensors)):
            io.fetch(result)
    with popsr.Session(ir, **options) as session:
        return io.run(session)


def make_variable(data: Array, name: str = "v", **options: Any) -> popsr.Variable:
    """A variable that keeps the dtype of its data."""
    return popsr.variable(data, dtype(data.dtype.name), name, **options)


def rows(array: Array, replication: int) -> Array:
    """Output of a stream as one row a replica."""
    return array if replication > 1 else array[None]


def groupings(ir: popsr.Ir) -> Iterator[popsr.ReplicaGrouping]:
    """All constant-stride groupings of the replicas."""
    n = ir.replication_factor
    for stride in range(1, n + 1):
        for size in range(1, n + 1):
            if n % (stride * size) == 0 and (size > 1 or stride == 1):
                yield ir.replica_grouping(stride, size)


def random_array(rng: np.random.Generator, shape: tuple[int, ...], name: str) -> Array:
    """Normal numbers; small integers for integer types."""
    if name == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if name in INTS:
        return rng.integers(0, 9, shape).astype(np_dtype(name))
    return rng.standard_normal(shape).astype(np_dtype(name))


def run_python(code: str, **env: str) -> str:
    """Standard output of a Python process that runs ``code``; its standard error when it fails."""
    # The packages are found as in this process, however they are installed.
    paths = os.pathsep.join([str(ROOT), *(path for path in sys.path if path)])
    result = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": paths, **env},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def assert_refused(build: Callable[[], Any], error: type[Exception], match: str) -> None:
    """``build`` raises a typed error of one line, which ``match`` is found in, and appends nothing to its graph."""
    with popsr.Ir().create_empty_graph() as graph:
        with pytest.raises(error, match=match) as caught:
            build()
        assert isinstance(caught.value, popsr.Error)
        assert "\n" not in str(caught.value)
        assert not str(caught.value).endswith(".")
        assert not graph.ops, "nothing was appended"
