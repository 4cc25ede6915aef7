"""Ops that nodes of ONNX become, beside the programs of other ops that have their meaning, and PyTorch. See README.md.

All run by turns on one thread: popsr as programs on variables, PyTorch eagerly. Results are compared before.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import popsr
from bench.record import ratios
from bench.record import times as cells_of
from bench.sides.compare import by_turns
from popsr import ops

torch = pytest.importorskip("torch")
ROUNDS = 15
function = torch.nn.functional


@dataclass(frozen=True)
class Op:
    """One op; ``composed`` and ``theirs`` compute the same."""

    name: str
    arrays: Callable[[np.random.Generator], list[np.ndarray]]
    ours: Callable[..., Any]
    composed: Callable[..., Any]
    theirs: Callable[..., Any]


def _image(rng: np.random.Generator) -> list[np.ndarray]:
    return [rng.normal(size=(4, 16, 64, 64)).astype(np.float32)]


# Resize


def _weights(have: int, count: int, reach: float) -> np.ndarray:
    """Of PyTorch's antialiased linear kernel; without it a reach of 1."""
    places = (np.arange(count) + 0.5) * have / count - 0.5
    weights = np.maximum(1 - np.abs(np.arange(have)[:, None] - np.clip(places, 0, have - 1)) / reach, 0)
    return (weights / weights.sum(0)).astype(np.float32)


def _by_matrices(size: int, reach: float) -> Callable[..., Any]:
    def build(t: popsr.Tensor) -> popsr.Tensor:
        matrix = popsr.constant(_weights(64, size, reach))
        for _ in range(2):
            t = ops.matmul(ops.transpose(t, (0, 1, 3, 2)), matrix)
        return t

    return build


def _by_gathers(t: popsr.Tensor) -> popsr.Tensor:
    rows = popsr.constant(np.arange(128) // 2, popsr.int64)
    return ops.gather(ops.gather(t, rows, 2), rows, 3)


# Elements at indices


def _indices(rng: np.random.Generator) -> list[np.ndarray]:
    return [rng.normal(size=(1024, 512)).astype(np.float32), rng.integers(0, 512, (1024, 512))]


def _corners(indices: popsr.Tensor) -> popsr.Tensor:
    lines = np.broadcast_to(np.arange(1024)[:, None, None], (1024, 512, 1))
    counted = ops.where(
        ops.less(indices, popsr.constant(0, popsr.int64)),
        ops.add(indices, popsr.constant(512, popsr.int64)),
        indices,
    )
    return ops.concat([popsr.constant(lines, popsr.int64), ops.reshape(counted, (1024, 512, 1))], 2)


_ELEMENTS: dict[str, Any] = {"offset_dims": (), "index_map": (0, 1), "collapsed_dims": (0, 1)}


def _gathered(t: popsr.Tensor, indices: popsr.Tensor) -> Any:
    return ops.gather_general(t, _corners(indices), slice_sizes=(1, 1), **_ELEMENTS)


def _scattered(t: popsr.Tensor, indices: popsr.Tensor) -> Any:
    return ops.scatter_general(t, _corners(indices), t, reduction="sum", mode="check", **_ELEMENTS)


# Quantised numbers


def _quantities(rng: np.random.Generator) -> list[np.ndarray]:
    scale, zero = rng.uniform(0.01, 0.1, 256), rng.integers(-8, 8, 256)
    return [rng.normal(size=(64, 256, 64)).astype(np.float32), scale.astype(np.float32), zero.astype(np.int8)]


def _codes(rng: np.random.Generator) -> list[np.ndarray]:
    _, scale, zero = _quantities(rng)
    return [rng.integers(-128, 128, (64, 256, 64)).astype(np.int8), scale, zero]


def _channel(t: popsr.Tensor) -> popsr.Tensor:
    return ops.reshape(ops.cast(t, popsr.float32), (256, 1))


def _quantized(t: popsr.Tensor, scale: popsr.Tensor, zero: popsr.Tensor) -> popsr.Tensor:
    return ops.cast(ops.add(ops.round(ops.div(t, _channel(scale))), _channel(zero)), popsr.int8)


def _dequantized(t: popsr.Tensor, scale: popsr.Tensor, zero: popsr.Tensor) -> popsr.Tensor:
    return ops.mul(ops.sub(ops.cast(t, popsr.float32), _channel(zero)), _channel(scale))


def _their_quantized(t: Any, scale: Any, zero: Any) -> Any:
    whole = torch.round(t / scale[:, None]) + zero.float()[:, None]
    return whole.clamp_(-128, 127).to(torch.int8)


def _their_dequantized(t: Any, scale: Any, zero: Any) -> Any:
    return (t.float() - zero.float()[:, None]) * scale[:, None]


# Samples at computed places


def _places(rng: np.random.Generator) -> list[np.ndarray]:
    return [*_image(rng), rng.uniform(-1.1, 1.1, (4, 64, 64, 2)).astype(np.float32)]


def _corner(t: popsr.Tensor, y: popsr.Tensor, x: popsr.Tensor) -> popsr.Tensor:
    """``[samples, places, channels]``."""
    last, zero = popsr.constant(63.0), popsr.constant(0.0)
    parts = []
    for place in (y, x):
        inside = ops.cast(ops.minimum(ops.maximum(place, zero), last), popsr.int64)
        parts.append(ops.reshape(inside, (4, 4096, 1)))
    found = ops.gather_general(
        t,
        ops.concat(parts, 2),
        slice_sizes=(1, 16, 1, 1),
        offset_dims=(2,),
        index_map=(2, 3),
        collapsed_dims=(2, 3),
        operand_batching_dims=(0,),
        indices_batching_dims=(0,),
    )
    near = ops.logical_and(
        ops.logical_and(ops.greater_equal(y, zero), ops.less_equal(y, last)),
        ops.logical_and(ops.greater_equal(x, zero), ops.less_equal(x, last)),
    )
    return ops.where(ops.reshape(near, (4, 4096, 1)), found, popsr.constant(0.0))


def _sampled(t: popsr.Tensor, grid: popsr.Tensor) -> popsr.Tensor:
    rows = ops.reshape(grid, (4, 4096, 2))
    x, y = (ops.reshape(part, (4, 4096)) for part in ops.split(rows, 2, 2))
    x, y = ((each + 1.0) * 32.0 - 0.5 for each in (x, y))
    low = [ops.floor(y), ops.floor(x)]
    rest = [y - low[0], x - low[1]]
    total = None
    for dy in (0, 1):
        for dx in (0, 1):
            weight = (rest[0] if dy else 1.0 - rest[0]) * (rest[1] if dx else 1.0 - rest[1])
            value = _corner(t, low[0] + float(dy), low[1] + float(dx)) * ops.reshape(weight, (4, 4096, 1))
            total = value if total is None else total + value
    return ops.reshape(ops.transpose(total, (0, 2, 1)), (4, 16, 64, 64))


# Fourier transforms


def _signals(length: int) -> Callable[[np.random.Generator], list[np.ndarray]]:
    return lambda rng: [rng.normal(size=(64, length, 2)).astype(np.float32)]


def _by_products(t: popsr.Tensor) -> popsr.Tensor:
    length = t.shape[1]
    angles = -2 * np.pi * (np.outer(np.arange(length), np.arange(length)) % length) / length
    cosines, sines = (popsr.constant(each.astype(np.float32)) for each in (np.cos(angles), np.sin(angles)))
    re, im = (ops.reshape(part, t.shape[:2]) for part in ops.split(t, 2, 2))
    parts = ops.matmul(re, cosines) - ops.matmul(im, sines), ops.matmul(re, sines) + ops.matmul(im, cosines)
    return ops.concat([ops.reshape(part, (*t.shape[:2], 1)) for part in parts], 2)


def _their_fft(t: Any) -> Any:
    return torch.view_as_real(torch.fft.fft(torch.view_as_complex(t)))


def _resized(size: int, **attrs: Any) -> Callable[..., Any]:
    return lambda t: ops.resize(t, sizes=(size, size), axes=(2, 3), **attrs)


OPS = [
    Op(
        "resize, nearest, 64 to 128",
        _image,
        _resized(128),
        _by_gathers,
        lambda t: function.interpolate(t, size=128),
    ),
    Op(
        "resize, linear, 64 to 128",
        _image,
        _resized(128, mode="linear"),
        _by_matrices(128, 1),
        lambda t: function.interpolate(t, size=128, mode="bilinear"),
    ),
    Op(
        "resize, linear with antialias, 64 to 24",
        _image,
        _resized(24, mode="linear", antialias=True, exclude_outside=True),
        _by_matrices(24, 64 / 24),
        lambda t: function.interpolate(t, size=24, mode="bilinear", antialias=True),
    ),
    Op(
        "gather_elements, axis 1 of 1024x512",
        _indices,
        lambda t, i: ops.gather_elements(t, i, 1),
        _gathered,
        lambda t, i: torch.gather(t, 1, i),
    ),
    Op(
        "scatter_elements, sum, axis 1 of 1024x512",
        _indices,
        lambda t, i: ops.scatter_elements(t, i, t, 1, "sum"),
        _scattered,
        lambda t, i: torch.scatter_add(t, 1, i, t),
    ),
    Op(
        "quantize_linear, 256 channels, 2^20 numbers",
        _quantities,
        lambda t, s, z: ops.quantize_linear(t, s, z, popsr.int8),
        _quantized,
        _their_quantized,
    ),
    Op(
        "dequantize_linear, 256 channels, 2^20 numbers",
        _codes,
        ops.dequantize_linear,
        _dequantized,
        _their_dequantized,
    ),
    Op(
        "grid_sample, linear, 64x64",
        _places,
        ops.grid_sample,
        _sampled,
        lambda t, g: function.grid_sample(t, g, align_corners=False),
    ),
    *(
        Op(f"fft, 64 signals of {length}", _signals(length), ops.fft, _by_products, _their_fft)
        for length in (256, 1000, 1021)
    ),
]


def _program(build: Callable[..., Any], arrays: list[np.ndarray], stored: bool) -> tuple[popsr.Session, Any]:
    ir = popsr.Ir()
    with ir.main_graph:
        result = build(*(popsr.variable(array, array.dtype) for array in arrays))
        stream = popsr.d2h_stream(result.shape, result.dtype) if stored else None
        if stream is not None:
            ops.host_store(stream, result)
    return popsr.Session(ir, num_threads=1), stream


def _result(build: Callable[..., Any], arrays: list[np.ndarray]) -> np.ndarray:
    session, stream = _program(build, arrays, stored=True)
    with session:
        return session.run()[stream].astype(np.float64)


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_op(benchmark, record, op):
    arrays = op.arrays(np.random.default_rng(20261127))
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    with torch.inference_mode():
        tensors = [torch.from_numpy(array) for array in arrays]
        expected = op.theirs(*tensors).double().numpy()
        for build in (op.ours, op.composed):
            # A quotient near a tie may be rounded otherwise.
            assert np.mean(np.abs(_result(build, arrays) - expected) > 1e-3 * (1 + np.abs(expected))) < 1e-5
        session, composed = (_program(build, arrays, stored=False)[0] for build in (op.ours, op.composed))
        with session, composed:
            sides = {"popsr": session.run, "composed": composed.run, "PyTorch": lambda: op.theirs(*tensors)}
            times = by_turns(benchmark, sides, ROUNDS, calls=4)
    torch.set_num_threads(before)
    own = times["popsr"]
    for name, t in times.items():
        over = {} if t is own else ratios(t, own)
        record("Ops that nodes become, on one thread", op.name, name, **cells_of(t), **over)
