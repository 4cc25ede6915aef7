"""Each class of ops beside PyTorch on the same arrays.

Both sides run one op by turns, on one thread and on two: popsr as a program of that op on variables, PyTorch eagerly,
into a buffer that is already there wherever the function has an ``out``. Results are compared before they are timed.
The table is also written to bench/results/ops.md.
"""

from collections.abc import Callable

import pytest

import popsr
from bench.sides.compare import by_turns
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

torch = pytest.importorskip("torch")
ROUNDS = 11
ELEMENTS = 1 << 21


def _elementwise() -> list[Op]:
    def op(name: str, count: int, ours: Callable[..., object], theirs: Callable[..., object]) -> list[Op]:
        shapes = ((ELEMENTS,),) * count
        out = name not in ("relu", "gelu", "swish")
        return [
            Op(name, 1.0, shapes, ours, theirs, dtype, out, near=2e-2 if dtype == "bfloat16" else 1e-3)
            for dtype in ("float32", "bfloat16")
        ]

    function = torch.nn.functional
    return [
        *op("add", 2, ops.add, torch.add),
        *op("mul", 2, ops.mul, torch.mul),
        *op("div", 2, ops.div, torch.div),
        *op("relu", 1, ops.relu, function.relu),
        *op("exp", 1, ops.exp, torch.exp),
        *op("tanh", 1, ops.tanh, torch.tanh),
        *op("sin", 1, ops.sin, torch.sin),
        *op("sqrt", 1, ops.sqrt, torch.sqrt),
        *op("gelu", 1, ops.gelu, lambda x: function.gelu(x, approximate="tanh")),
        *op("swish", 1, ops.swish, function.silu),
        *op("sigmoid", 1, ops.sigmoid, torch.sigmoid),
    ]


def _products() -> list[Op]:
    shapes = {
        "qkv": ((1024, 768), (768, 2304)),
        "projection": ((1024, 768), (768, 768)),
        "feed-forward in": ((1024, 768), (768, 3072)),
        "feed-forward out": ((1024, 3072), (3072, 768)),
        "scores": ((12, 1024, 64), (12, 64, 1024)),
        "values": ((12, 1024, 1024), (12, 1024, 64)),
    }
    return [Op(f"matmul, {name}", 0.5, both, ops.matmul, torch.matmul) for name, both in shapes.items()]


def _convolutions() -> list[Op]:
    def op(channels: int, extent: int, stride: int) -> Op:
        x, w = (8, channels // stride, extent * stride, extent * stride), (channels, channels // stride, 3, 3)

        def ours(t: popsr.Tensor, weight: popsr.Tensor) -> object:
            return ops.conv(t, weight, stride=(stride, stride), padding=(1, 1, 1, 1))

        def theirs(t: object, weight: object) -> object:
            return torch.nn.functional.conv2d(t, weight, stride=stride, padding=1)

        name = f"conv 3x3, {channels} channels, {extent}x{extent}" + (", stride 2" if stride == 2 else "")
        return Op(name, 0.5, (x, w), ours, theirs, out=False)

    return [op(64, 56, 1), op(128, 28, 2), op(128, 28, 1), op(256, 14, 2), op(256, 14, 1)]


def _rows() -> list[Op]:
    def norm(t: popsr.Tensor, weight: popsr.Tensor, bias: popsr.Tensor) -> object:
        return ops.layer_norm(t, weight, bias, 1e-5)

    def their_norm(t: object, weight: object, bias: object) -> object:
        return torch.nn.functional.layer_norm(t, (768,), weight, bias, 1e-5)

    def take(t: popsr.Tensor, indices: popsr.Tensor) -> object:
        return ops.gather(t, indices, axis=0)

    found = []
    for dtype, near in (("float32", 1e-3), ("bfloat16", 5e-2)):
        found += [
            Op(
                "softmax, 12x1024x1024",
                0.7,
                ((12, 1024, 1024),),
                lambda t: ops.softmax(t, -1),
                lambda t, out: torch.softmax(t, -1, out=out),
                dtype,
                near=near,
            ),
            Op(
                "layer_norm, 2048x768",
                0.7,
                ((2048, 768), (768,), (768,)),
                norm,
                their_norm,
                dtype,
                False,
                near=near,
            ),
            Op(
                "gather, 8192 rows of 32768x768",
                0.7,
                ((32768, 768),),
                take,
                lambda t, i, out: torch.index_select(t, 0, i, out=out),
                dtype,
                indices=((8192,), 32768),
            ),
        ]
    return found


def _reductions() -> list[Op]:
    shape = (128, 128, 256)

    def op(name: str, axis: int, dtype: str) -> Op:
        ours, theirs = getattr(ops, name), torch.amax if name == "max" else getattr(torch, name)
        return Op(
            f"{name}, axis {axis} of 128x128x256",
            0.7,
            (shape,),
            lambda t: ours(t, axis),
            lambda t, out: theirs(t, axis, out=out),
            dtype,
            near=5e-2 if dtype == "bfloat16" else 1e-3,
        )

    return [
        op(name, axis, dtype)
        for name, dtype in (("sum", "float32"), ("max", "float32"), ("sum", "bfloat16"))
        for axis in range(3)
    ]


def _attention() -> list[Op]:
    """Of the size of scores, with what broadcasts to them."""
    scores, function = (4, 8, 128, 128), torch.nn.functional

    def op(
        name: str, goal: float, shapes: tuple[tuple[int, ...], ...], ours, theirs, out: bool = True
    ) -> list[Op]:
        return [
            Op(f"{name}, {'x'.join(map(str, shapes[0]))}", goal, shapes, ours, theirs, dtype, out, near=near)
            for dtype, near in (("float32", 1e-3), ("bfloat16", 5e-2))
        ]

    return [
        *op("add a mask [1,1,s,s]", 1.0, (scores, (1, 1, 128, 128)), ops.add, torch.add),
        *op("add a mask [b,1,1,s]", 1.0, (scores, (4, 1, 1, 128)), ops.add, torch.add),
        *op("divide by [b,h,s,1]", 0.7, (scores, (4, 8, 128, 1)), ops.div, torch.div),
        *op("scale", 1.0, (scores,), lambda t: t * 0.125, lambda t, out: torch.mul(t, 0.125, out=out)),
        *op(
            "softmax",
            0.7,
            (scores,),
            lambda t: ops.softmax(t, -1),
            lambda t, out: torch.softmax(t, -1, out=out),
        ),
        *op("gelu", 1.0, ((1024, 1024),), ops.gelu, lambda t: function.gelu(t, approximate="tanh"), False),
        *op("exp", 1.0, ((1024, 1024),), ops.exp, torch.exp),
    ]


OPS = [*_elementwise(), *_attention(), *_products(), *_convolutions(), *_rows(), *_reductions()]


@pytest.fixture(autouse=True, scope="module")
def results():
    with threads_kept():
        yield


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("op", OPS, ids=lambda op: f"{op.name}-{op.dtype}")
def test_op(benchmark, record, op, threads):
    arrays = arrays_of(op)
    torch.set_num_threads(threads)
    with torch.inference_mode():
        run, expected = theirs_of(op, arrays)
        assert_near(op, arrays, expected)
        with repeated_program(op, arrays, threads) as session:
            times = by_turns(benchmark, {"popsr": session.run, "PyTorch": run}, ROUNDS, calls=8, rest=0.02)
    record_op(record, "Ops", op, threads, times["popsr"], times["PyTorch"])
