"""The two sides of one op: a program of popsr on variables, and PyTorch's function on the same arrays.

`bench_ops.py` and `bench_op_sizes.py` time them by turns.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import popsr
from bench.record import Recorder, at_least, duration, ratios
from bench.sides.compare import Times
from popsr import ops

torch = pytest.importorskip("torch")
SEED = 20261121


@dataclass(frozen=True)
class Op:
    """One op on both sides; ``goal`` is the least speed against PyTorch's.

    Operands are arrays of ``dtype``, then one of indices, then one of booleans, where there are. A result is a tensor
    or several. PyTorch's function also takes ``out``, which is None the first time, unless ``out`` is false here; it
    takes what ``prepared`` makes of the operands, once, if that is given.
    """

    name: str
    goal: float
    shapes: tuple[tuple[int, ...], ...]
    ours: Callable[..., Any]
    theirs: Callable[..., Any]
    dtype: str = "float32"
    out: bool = True
    indices: tuple[tuple[int, ...], int] | None = None  # shape, and the end of their range
    mask: tuple[int, ...] | None = None
    near: float = 1e-3  # the greatest difference, as a share of the greatest magnitude
    least: float = 0.1  # of operands, which are at most 1
    optimise: bool = True  # may popsr's plan be rewritten?
    prepared: Callable[..., tuple[Any, ...]] | None = None


def arrays_of(op: Op) -> list[np.ndarray]:
    """The operands."""
    rng = np.random.default_rng(SEED)
    kind = ml_dtypes.bfloat16 if op.dtype == "bfloat16" else np.dtype(op.dtype)
    span = np.float32(1.0 - op.least)
    arrays = [
        (rng.random(shape, np.float32) * span + np.float32(op.least)).astype(kind) for shape in op.shapes
    ]
    if op.indices is not None:
        arrays.append(rng.integers(0, op.indices[1], op.indices[0], np.int32))
    if op.mask is not None:
        arrays.append(rng.integers(0, 2, op.mask).astype(np.bool_))
    return arrays


def tensor_of(array: np.ndarray) -> Any:
    """PyTorch's tensor of the same memory."""
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def _as_tuple(results: Any) -> tuple[Any, ...]:
    return tuple(results) if isinstance(results, (tuple, list)) else (results,)


def stored_program(op: Op, arrays: list[np.ndarray]) -> tuple[popsr.Session, list[popsr.DeviceToHostStream]]:
    """The op once, and a stream of each result."""
    ir = popsr.Ir()
    streams = []
    with ir.main_graph:
        for result in _as_tuple(op.ours(*(popsr.variable(array, array.dtype) for array in arrays))):
            streams.append(popsr.d2h_stream(result.shape, result.dtype))
            ops.host_store(streams[-1], result)
    return popsr.Session(ir, optimise=op.optimise), streams


def repeated_program(op: Op, arrays: list[np.ndarray], threads: int, count: int = 1) -> popsr.Session:
    """The op in a loop of ``count`` iterations, on the same operands; nothing reads its result.

    Plans keep instructions whose results nobody reads, but for the copies of views, for which ops have ``optimise``
    false. An iteration costs about 10 ns beside the op, and all of them write to one buffer.
    """
    ir = popsr.Ir()
    with ir.main_graph:
        variables = [popsr.variable(array, array.dtype) for array in arrays]

        def body(*operands: popsr.Tensor) -> None:
            op.ours(*operands)

        if count == 1:
            body(*variables)
        else:
            ops.repeat(ir.create_graph(body, *variables), count, *variables)
    return popsr.Session(ir, num_threads=threads, optimise=op.optimise)


def theirs_of(op: Op, arrays: list[np.ndarray]) -> tuple[Callable[[], object], Any]:
    """A call of PyTorch's function, into buffers that are there already where it has an ``out``, and its result."""
    tensors = [tensor_of(array) for array in arrays]
    call = partial(op.theirs, *(tensors if op.prepared is None else op.prepared(*tensors)))
    if op.out:
        first = call(out=None)
        out = tuple(map(torch.clone, first)) if isinstance(first, tuple) else torch.clone(first)
        call = partial(call, out=out)
    return call, call()


def assert_near(op: Op, arrays: list[np.ndarray], theirs: Any) -> dict[str, int]:
    """Compare the results, of which PyTorch may have more; indices may differ where elements are equal.

    Returns:
        Calls of kernels by the op.
    """
    session, streams = stored_program(op, arrays)
    with session:
        results = session.run()
        calls = session.stats["kernel_calls"]
    for stream, expected in zip(streams, _as_tuple(theirs), strict=False):
        got = tensor_of(results[stream])
        assert got.shape == expected.shape
        if not expected.dtype.is_floating_point:
            assert (got != expected).double().mean() < 1e-3
            continue
        wide = torch.float64 if expected.dtype == torch.float64 else torch.float32
        expected = expected.to(wide)
        assert (got.to(wide) - expected).abs().max() < op.near * expected.abs().max()
    return {name: count for name, count in calls.items() if name != "host_store"}


def record_op(
    record: Recorder, table: str, op: Op, threads: int, own: Times, other: Times, **cells: str
) -> None:
    """Row of an op: popsr's time, and PyTorch's over it."""
    over = ratios(other, own)
    case, side = f"{op.name}, {op.dtype}", f"{threads} thread{'s' if threads > 1 else ''}"
    goal = at_least(op.goal, other.best / own.best)
    record(table, case, side, **cells, time=duration(own.best), **over, **goal)


@contextmanager
def threads_kept() -> Iterator[None]:
    """Threads are as before when all is done."""
    before = popsr.num_threads(), torch.get_num_threads()
    yield
    popsr.set_num_threads(before[0])
    torch.set_num_threads(before[1])
