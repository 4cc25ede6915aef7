"""Each class of ops at three sizes beside PyTorch.

Operands have about 10^4, 10^6 and 10^8 bytes together. Both sides run one op by turns, on one thread and on
two. A turn of popsr is one `session.run` of a program that has the op in a loop, one of PyTorch as many calls, so
that both pay once an op for what surrounds it: popsr an instruction of its plan, PyTorch a call from Python.
Their number is chosen so that PyTorch's turn takes some milliseconds, and is 1 for slow ops.

Plans keep ops whose results nobody reads and compute equal ones again, and write all results of a loop into one
buffer, as PyTorch does with `out`: the loop costs about 10 ns an op and nothing else. Copies of views (transpose,
slice) that nobody reads are dropped, so those sessions are made with `optimise=False`. Each test asserts that a
run executed as many kernels as the op has, times the iterations. Results are compared once for each op and size.

The table is also written to bench/results/op_sizes.md, with the rows that are slower than PyTorch at its end.
"""

import itertools
import math
import time
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import numpy as np
import pytest

import popsr
from bench.sides.compare import Times, by_turns
from bench.sides.op_sides import (
    Op,
    arrays_of,
    assert_near,
    record_op,
    repeated_program,
    theirs_of,
    threads_kept,
)
from popsr import ops
from popsr.transforms import autodiff
from popsr.transforms.autodiff import ExpectedConnectionType

torch = pytest.importorskip("torch")
function, aten = torch.nn.functional, torch.ops.aten
ROUNDS, GOAL = 7, 1.0
SIZES = (10**4, 10**6, 10**8)
TURN = 8e-3  # seconds of PyTorch's calls in a turn, unless one takes longer
SECONDS = 2.0  # of all turns of PyTorch, unless two take longer
NEAR = {"float32": 1e-3, "float64": 1e-10, "bfloat16": 2e-2}
BYTES = {"float32": 4, "float64": 8, "bfloat16": 2}


def _op(
    name: str,
    shapes: tuple[tuple[int, ...], ...],
    ours: Callable[..., Any],
    theirs: Callable[..., Any],
    **rest: Any,
) -> Op:
    """``name`` is followed by the shape of the first operand."""
    rest.setdefault("near", NEAR[rest.get("dtype", "float32")])
    return Op(f"{name}, {'x'.join(map(str, shapes[0]))}", GOAL, shapes, ours, theirs, **rest)


def _vector(size: int, dtype: str, operands: int = 1) -> tuple[int]:
    return (size // BYTES[dtype] // operands,)


def _matrix(size: int, dtype: str = "float32", operands: int = 1) -> tuple[int, int]:
    columns = {10**4: 64, 10**6: 512, 10**8: 1024}[size]
    return (size // BYTES[dtype] // operands // columns, columns)


def _image(size: int, operands: int = 1) -> tuple[int, int, int, int]:
    channels, extent = {10**4: (8, 16), 10**6: (64, 32), 10**8: (64, 112)}[size]
    return (max(1, round(size / 4 / operands / channels / extent**2)), channels, extent, extent)


def _copied(view: Callable[[Any], Any]) -> Callable[..., Any]:
    """PyTorch's copy of a view."""
    return lambda t, out: view(t).contiguous() if out is None else out.copy_(view(t))


def _elementwise(size: int) -> list[Op]:
    def op(
        name: str,
        dtypes: str,
        ours: Callable[..., Any],
        theirs: Callable[..., Any],
        count: int = 1,
        least: float = -1.0,
    ) -> list[Op]:
        return [
            _op(name, (_vector(size, dtype, count),) * count, ours, theirs, dtype=dtype, least=least)
            for dtype in dtypes.split()
        ]

    # PyTorch's relu is clamp_min without a parameter `out`.
    return [
        *op("add", "float32 float64 bfloat16", ops.add, torch.add, 2),
        *op("mul", "float32 bfloat16", ops.mul, torch.mul, 2),
        *op("relu", "float32 bfloat16", ops.relu, lambda t, out: torch.clamp_min(t, 0.0, out=out)),
        *op("exp", "float32 float64 bfloat16", ops.exp, torch.exp),
        *op("log", "float64", ops.log, torch.log, least=0.1),
        *op("sin", "float64", ops.sin, torch.sin),
        *op("tanh", "float32 float64 bfloat16", ops.tanh, torch.tanh),
        *op("gelu", "float32 bfloat16", ops.gelu, partial(function.gelu, approximate="tanh")),
        *op("sigmoid", "float32 bfloat16", ops.sigmoid, torch.sigmoid),
        *op("less", "float32", ops.less, torch.lt, 2),
    ]


def _with_others(size: int) -> list[Op]:
    """Element-wise ops on operands that differ in shape or dtype."""
    found = []
    for dtype in ("float32", "bfloat16"):
        lines, columns = _matrix(size, dtype)
        for name, shape in (("row", (columns,)), ("column", (lines, 1))):
            found.append(_op(f"add a {name}", ((lines, columns), shape), ops.add, torch.add, dtype=dtype))
    both = _vector(size, "float32", 2)
    return [
        *found,
        _op(
            "where",
            (both, both),
            lambda a, b, mask: ops.where(mask, a, b),
            lambda a, b, mask, out: torch.where(mask, a, b, out=out),
            mask=both,
        ),
        _op(
            "cast to bfloat16",
            (_vector(size, "float32"),),
            lambda t: ops.cast(t, popsr.bfloat16),
            lambda t, out: t.bfloat16() if out is None else out.copy_(t),
            near=1e-2,
        ),
        _op(
            "cast to float32",
            (_vector(size, "bfloat16"),),
            lambda t: ops.cast(t, popsr.float32),
            lambda t, out: t.float() if out is None else out.copy_(t),
            dtype="bfloat16",
        ),
    ]


def _reductions(size: int) -> list[Op]:
    found = []
    names = {"float32": ("sum", "max", "mean"), "float64": ("sum",), "bfloat16": ("sum", "max")}
    for dtype, of_dtype in names.items():
        for name, axis in itertools.product(of_dtype, (1, 0)):
            ours, theirs = getattr(ops, name), torch.amax if name == "max" else getattr(torch, name)
            found.append(
                _op(
                    f"{name}, axis {axis}",
                    (_matrix(size, dtype),),
                    partial(ours, axis=axis),
                    partial(theirs, dim=axis),
                    dtype=dtype,
                )
            )
    return [
        *found,
        *(
            _op(f"{name}, axis {axis}", (_matrix(size),), partial(ours, dim=axis), partial(theirs, dim=axis))
            for name, ours, theirs in (
                ("argmax", ops.argmax, torch.argmax),
                ("cumsum", ops.cumsum, torch.cumsum),
            )
            for axis in (1, 0)
        ),
    ]


def _order(size: int) -> list[Op]:
    shape = _matrix(size)

    def sort(t: popsr.Tensor) -> Any:
        places = popsr.constant(np.broadcast_to(np.arange(shape[1]), shape), popsr.int32)
        return ops.sort(t, places)

    # PyTorch's median and sort always give indices, too.
    return [
        _op(
            "topk, k = 8",
            (shape,),
            partial(ops.topk, k=8, axis=-1, largest=True, sorted=True),
            partial(torch.topk, k=8),
        ),
        _op("median", (shape,), partial(ops.median, axis=-1), partial(torch.median, dim=-1)),
        _op("sort, with indices", (shape,), sort, partial(torch.sort, dim=-1)),
    ]


def _rows(size: int) -> list[Op]:
    found = []
    for dtype in ("float32", "bfloat16"):
        lines, columns = _matrix(size, dtype)
        found += [
            _op(
                "softmax",
                ((lines, columns),),
                partial(ops.softmax, axis=-1),
                partial(torch.softmax, dim=-1),
                dtype=dtype,
            ),
            _op(
                "log_softmax",
                ((lines, columns),),
                partial(ops.log_softmax, axis=-1),
                partial(torch.log_softmax, dim=-1),
                dtype=dtype,
            ),
            _op(
                "layer_norm",
                ((lines, columns), (columns,), (columns,)),
                ops.layer_norm,
                lambda t, weight, bias, columns=columns: function.layer_norm(t, (columns,), weight, bias),
                dtype=dtype,
                out=False,
            ),
        ]
    return found


def _gradient(
    forward: Callable[..., Any], required: int, unread: tuple[popsr.TensorSpec, ...] = ()
) -> Callable[..., Any]:
    """The gradients of the first operands; they are given after the gradient of the result, without those unread."""

    def ours(dy: popsr.Tensor, *operands: popsr.Tensor) -> Any:
        graph = popsr.gir().create_graph(forward, *unread, *operands)
        grads = autodiff(graph, grads_required=graph.inputs[:required])
        given = dict(zip(graph.inputs[len(unread) :], operands, strict=True))
        values = {
            theirs: given[each.fwd_tensor]
            for theirs, each in zip(grads.graph.inputs, grads.expected_inputs, strict=True)
            if each.connection_type is ExpectedConnectionType.Fwd
        }
        return ops.call(grads.graph, dy, inputs_dict=values)

    return ours


def _gradients(size: int) -> list[Op]:
    """PyTorch is given the statistics that its forward pass keeps; popsr computes them again."""
    lines, columns = _matrix(size, operands=2)
    batch, channels, *extents = image = _image(size, operands=2)
    groups, area = channels // 2, math.prod(extents)
    embedded = _matrix(size)
    vocabulary = embedded[0] // 4

    def layer_statistics(dy: Any, t: Any, weight: Any, bias: Any) -> tuple[Any, ...]:
        _, mean, rstd = torch.native_layer_norm(t, (columns,), weight, bias, 1e-5)
        return dy, t, (columns,), mean, rstd, weight, bias, (True, True, True)

    def group_statistics(dy: Any, t: Any, weight: Any, bias: Any) -> tuple[Any, ...]:
        _, mean, rstd = torch.native_group_norm(t, weight, bias, batch, channels, area, groups, 1e-5)
        return dy, t, mean, rstd, weight, batch, channels, area, groups, (True, True, True)

    return [
        _op(
            "layer_norm, gradients",
            ((lines, columns), (lines, columns), (columns,), (columns,)),
            _gradient(ops.layer_norm, 3),
            aten.native_layer_norm_backward.default,
            prepared=layer_statistics,
            out=False,
        ),
        _op(
            f"group_norm of {groups} groups, gradients",
            (image, image, (channels,), (channels,)),
            _gradient(lambda t, weight, bias: ops.group_norm(t, weight, bias, groups), 3),
            aten.native_group_norm_backward.default,
            prepared=group_statistics,
            out=False,
        ),
        _op(
            f"gather of {vocabulary} rows, gradient",
            (embedded,),
            _gradient(ops.gather, 1, (popsr.TensorSpec((vocabulary, embedded[1]), popsr.float32),)),
            lambda dy, indices: aten.embedding_dense_backward(dy, indices, vocabulary, -1, False),
            indices=((embedded[0],), vocabulary),
            out=False,
        ),
    ]


def _moves(size: int) -> list[Op]:
    lines, columns = shape = _matrix(size)
    half = _matrix(size, operands=2)
    heads = {10**4: (1, 10, 4, 64), 10**6: (4, 128, 8, 64), 10**8: (24, 2048, 8, 64)}[size]

    def transposed(name: str, shape: tuple[int, ...], axes: tuple[int, ...], dtype: str = "float32") -> Op:
        ours, theirs = partial(ops.transpose, permutation=axes), _copied(lambda t: t.permute(axes))
        return _op(name, (shape,), ours, theirs, dtype=dtype, optimise=False)

    return [
        transposed("transpose", shape, (1, 0)),
        transposed("transpose", _matrix(size, "bfloat16"), (1, 0), "bfloat16"),
        transposed("transpose 0, 2, 1, 3", heads, (0, 2, 1, 3)),
        _op(
            "slice, half of the columns",
            (shape,),
            lambda t: ops.slice(t, columns // 4, 3 * columns // 4, axis=1),
            _copied(lambda t: t[:, columns // 4 : 3 * columns // 4]),
            optimise=False,
        ),
        *(
            _op(
                f"concat, axis {axis}",
                (half, half),
                lambda a, b, axis=axis: ops.concat((a, b), axis),
                lambda a, b, out, axis=axis: torch.cat((a, b), axis, out=out),
            )
            for axis in (1, 0)
        ),
        _op(
            "gather of as many rows",
            (shape,),
            ops.gather,
            lambda t, indices, out: torch.index_select(t, 0, indices, out=out),
            indices=((lines,), lines),
        ),
        _op(
            "scatter-add of as many rows",
            (half, half),
            lambda t, data, indices: ops.scatter_reduce(data, indices, "sum", t),
            lambda t, data, indices, out: torch.index_add(t, 0, indices, data, out=out),
            indices=((half[0],), half[0]),
        ),
    ]


def _products(size: int) -> list[Op]:
    found = []
    for dtype in ("float32", "float64", "bfloat16"):
        extent = round(math.sqrt(size / 2 / BYTES[dtype]) / 16) * 16
        found.append(_op("matmul", ((extent, extent),) * 2, ops.matmul, torch.matmul, dtype=dtype))
    return found


def _windows(size: int) -> list[Op]:
    channels = _image(size)[1]

    def conv(name: str, groups: int) -> Op:
        return _op(
            name,
            (_image(size), (channels, channels // groups, 3, 3)),
            partial(ops.conv, padding=(1, 1, 1, 1), groups=groups),
            partial(function.conv2d, padding=1, groups=groups),
            out=False,
        )

    return [
        conv("conv 3x3", 1),
        conv("depthwise conv 3x3", channels),
        _op(
            "max_pool 3x3, stride 2",
            (_image(size),),
            partial(ops.max_pool, kernel_size=(3, 3), stride=(2, 2), padding=(1, 1, 1, 1)),
            partial(function.max_pool2d, kernel_size=3, stride=2, padding=1),
            out=False,
        ),
        _op(
            "average_pool 2x2, stride 2",
            (_image(size),),
            partial(ops.average_pool, kernel_size=(2, 2), stride=(2, 2)),
            partial(function.avg_pool2d, kernel_size=2, stride=2),
        ),
    ]


CLASSES = (_elementwise, _with_others, _reductions, _order, _rows, _gradients, _moves, _products, _windows)
OPS = [op for of in CLASSES for sizes in zip(*map(of, SIZES), strict=True) for op in sizes]


@pytest.fixture(autouse=True, scope="module")
def results():
    with threads_kept():
        yield
        _sides.cache_clear()


@lru_cache(maxsize=1)
def _sides(op: Op) -> tuple[list[np.ndarray], Callable[[], object], dict[str, int]]:
    """The operands, PyTorch's call, and the kernels that popsr calls for the op, all compared."""
    arrays = arrays_of(op)
    call, expected = theirs_of(op, arrays)
    return arrays, call, assert_near(op, arrays, expected)


def _count(call: Callable[[], object]) -> tuple[int, float]:
    """Calls of a turn, and the seconds that one takes."""
    taken: list[float] = []
    while len(taken) < 50 and sum(taken) < TURN:
        start = time.perf_counter()
        call()
        taken.append(time.perf_counter() - start)
    return max(1, round(TURN / min(taken))), min(taken)


def _repeated(call: Callable[[], object], count: int) -> Callable[[], None]:
    def turn() -> None:
        for _ in itertools.repeat(None, count):
            call()

    return turn


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("op", OPS, ids=lambda op: f"{op.name}-{op.dtype}")
def test_op(benchmark, record, op, threads):
    torch.set_num_threads(threads)
    with torch.inference_mode():
        arrays, call, kernels = _sides(op)
        count, taken = _count(call)
        with repeated_program(op, arrays, threads, count) as session:
            sides = {"popsr": session.run, "PyTorch": _repeated(call, count)}
            rounds = min(max(round(SECONDS / taken), 2), ROUNDS)
            times = by_turns(benchmark, sides, rounds, rest=0.02 if taken < 0.05 else 0.0)
            iterations = count * session.stats["runs"]
            assert session.stats["kernel_calls"] == {
                name: each * iterations for name, each in kernels.items()
            }
    own, other = (Times(t.best / count, t.median / count) for t in (times["popsr"], times["PyTorch"]))
    size = sum(array.nbytes for array in arrays)
    record_op(record, "Ops at three sizes", op, threads, own, other, bytes=f"{size:,}")
