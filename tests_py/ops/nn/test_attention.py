"""attention beside its parts and PyTorch's, its bits however it runs, and its memory."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import popsr
from popsr import dtypes, ops, transforms
from tests_py.ops.nn.test_norms import gradients
from tests_py.session.test_determinism import cpu_has
from tests_py.support.helpers import Array, assert_same_bits, evaluate, np_dtype, run_python
from tests_py.support.oracles import ops as oracles

SHAPES = {
    "one tile": ((2, 3, 20, 8), 20, 8),
    "tiles": ((1, 2, 150, 24), 150, 40),
    "more keys": ((2, 2, 70, 16), 200, 16),
    "fewer keys": ((2, 2, 100, 16), 30, 48),
}
MASKS = ("none", "causal", "numbers", "bools", "causal and bools")


def draw(shape: tuple[int, ...], keys: int, width: int, name: str) -> list[Array]:
    """Queries, keys, values and the gradient of the result."""
    rng = np.random.default_rng(7)
    *batch, queries, size = shape
    shapes = shape, (*batch, keys, size), (*batch, keys, width), (*batch, queries, width)
    return [rng.standard_normal(each).astype(np_dtype(name)) for each in shapes]


def mask_of(kind: str, queries: int, keys: int, name: str) -> Array | None:
    """Query 1 sees no key."""
    rng = np.random.default_rng(8)
    seen = rng.random((queries, keys)) < 0.7
    seen[1] = False
    if "bools" in kind:
        return seen
    numbers = np.where(seen, rng.standard_normal(seen.shape), -np.inf)
    return numbers.astype(np_dtype(name)) if kind == "numbers" else None


def attend(kind: str, mask: Array | None, scale: float | None = None) -> Callable[..., popsr.Tensor]:
    """The op as a function of queries, keys and values."""

    def function(q: popsr.Tensor, k: popsr.Tensor, v: popsr.Tensor) -> popsr.Tensor:
        given = None if mask is None else popsr.constant(mask, dtypes.bool if mask.dtype == bool else q.dtype)
        return ops.attention(q, k, v, given, is_causal="causal" in kind, scale=scale)

    return function


def parts(kind: str, mask: Array | None) -> Callable[..., popsr.Tensor]:
    """The same of matmul and softmax, in the dtype of the operands; a row without keys is zeros."""

    def function(q: popsr.Tensor, k: popsr.Tensor, v: popsr.Tensor) -> popsr.Tensor:
        scores = ops.matmul(q, ops.transpose(k, (0, 1, 3, 2))) * q.shape[-1] ** -0.5
        seen = np.ones(scores.shape[-2:], bool)
        if "causal" in kind:
            seen = np.tril(seen)
        if mask is not None:
            seen &= mask if mask.dtype == bool else mask > -np.inf
            if mask.dtype != bool:
                scores = scores + popsr.constant(np.where(seen, mask, 0), scores.dtype)
        some = seen.any(-1, keepdims=True)
        hidden = popsr.constant(-np.inf, scores.dtype)
        weights = ops.softmax(ops.where(popsr.constant(seen | ~some), scores, hidden), -1)
        return ops.matmul(ops.where(popsr.constant(some), weights, popsr.constant(0, scores.dtype)), v)

    return function


def close(got: Array, expected: Array, name: str, times: float) -> None:
    """Off by at most so many unit roundoffs of the greatest element."""
    u = 2.0 ** -oracles.PRECISION[name]
    got, expected = got.astype(np.float64), expected.astype(np.float64)
    assert got.shape == expected.shape
    assert np.abs(got - expected).max(initial=0) <= times * u * max(1.0, np.abs(expected).max(initial=0))


@pytest.mark.parametrize("kind", MASKS)
@pytest.mark.parametrize("shape", SHAPES)
def test_results_and_gradients_are_those_of_its_parts(shape: str, kind: str) -> None:
    for name in ("float64", "float32"):
        *arrays, dy = draw(*SHAPES[shape], name)
        mask = mask_of(kind, arrays[0].shape[-2], arrays[1].shape[-2], name)
        op, others = attend(kind, mask), parts(kind, mask)
        got = evaluate(op, arrays) + gradients(op, arrays, dy)
        expected = evaluate(others, arrays) + gradients(others, arrays, dy)
        for one, other in zip(got, expected, strict=True):
            close(one, other, name, 200)


@pytest.mark.parametrize("kind", MASKS)
@pytest.mark.parametrize("name", ["float32", "float16", "bfloat16"])
def test_results_and_gradients_are_those_of_torch(name: str, kind: str) -> None:
    """In float64, of the operands as they were rounded: narrow floats are rounded once."""
    torch = pytest.importorskip("torch")
    if kind == "causal and bools":
        pytest.skip("PyTorch takes a mask or is_causal")
    for shape in SHAPES.values():
        *arrays, dy = draw(*shape, name)
        mask = mask_of(kind, arrays[0].shape[-2], arrays[1].shape[-2], name)
        given = [torch.tensor(each.astype(np.float64), requires_grad=True) for each in arrays]
        wide = mask if mask is None or mask.dtype == bool else mask.astype(np.float64)
        result = torch.nn.functional.scaled_dot_product_attention(
            *given, attn_mask=None if wide is None else torch.tensor(wide), is_causal=kind == "causal"
        )
        result.backward(torch.tensor(dy.astype(np.float64)))
        op = attend(kind, mask)
        got = evaluate(op, arrays) + gradients(op, arrays, dy)
        for one, other in zip(got, [result.detach(), *(each.grad for each in given)], strict=True):
            close(one, other.numpy(), name, 100 if name == "float32" else 1.01)


def bits(name: str, kind: str, **options: Any) -> list[Array]:
    *arrays, dy = draw((2, 3, 150, 24), 150, 40, name)
    op = attend(kind, mask_of(kind, 150, 150, name))
    return evaluate(op, arrays, **options) + gradients(op, arrays, dy, **options)


@pytest.mark.parametrize("name", ["float64", "float32", "bfloat16"])
@pytest.mark.parametrize(
    "options", [{"num_threads": 2}, {"optimise": False}, {"dedup": False}, {"check": True}], ids=str
)
def test_same_bits_however_run(options: dict[str, Any], name: str) -> None:
    for kind in ("none", "causal and bools"):
        expected = bits(name, kind, num_threads=1)
        for one, other in zip(bits(name, kind, **options), expected, strict=True):
            assert_same_bits(one, other)


def digest() -> str:
    """Of results and gradients."""
    arrays = [array for name in ("float32", "bfloat16") for kind in MASKS for array in bits(name, kind)]
    return hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest()


@pytest.mark.skipif(os.environ.get("POPSR_ISA") == "v2", reason="level v2 has bits of its own")
@pytest.mark.parametrize("level", ["v3", "v4"])
def test_same_bits_at_every_level_with_fma(level: str) -> None:
    if not cpu_has(level):
        pytest.skip(f"this CPU has no {level}")
    got = run_python(
        "from tests_py.ops.nn import test_attention; print(test_attention.digest())", POPSR_ISA=level
    )
    assert got.strip() == digest()


def test_a_result_does_not_depend_on_the_queries_beside_it() -> None:
    q, k, v, _ = draw((2, 150, 24), 90, 40, "float32")
    whole = evaluate(ops.attention, [q, k, v])[0]
    for some in (slice(0, 1), slice(3, 70), slice(64, 150)):
        assert_same_bits(evaluate(ops.attention, [np.ascontiguousarray(q[:, some]), k, v])[0], whole[:, some])


def test_no_matrix_of_scores_is_stored() -> None:
    """Neither for results nor for gradients."""
    sequence, heads, size = 512, 4, 16

    def activations(function: Callable[..., popsr.Tensor]) -> int:
        ir = popsr.Ir()
        with ir.main_graph, popsr.in_sequence():
            shape = (1, heads, sequence, size)
            tensors = [popsr.h2d_stream(shape, dtypes.float32) for _ in range(4)]
            q, k, v, dy = (ops.host_load(stream) for stream in tensors)
            graph = ir.create_graph(function, q, k, v)
            info = transforms.autodiff(graph, grads_required=graph.inputs)
            call = ops.call_with_info(graph, q, k, v)
            for gradient in ops.call(info.graph, dy, inputs_dict=info.inputs_dict(call)):
                ops.host_store(popsr.d2h_stream(shape, dtypes.float32), gradient)
        return int(popsr.Session(ir).memory()["activations"])

    scores = heads * sequence * sequence * 4
    assert activations(attend("causal", None)) < scores / 2
    assert activations(parts("causal", None)) >= scores
