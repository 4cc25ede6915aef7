"""Attention beside its parts and PyTorch's, and element-wise ops of the size of its scores.

``test_attention`` times ``ops.attention``, the same of ``matmul`` and ``softmax``, and PyTorch's
``scaled_dot_product_attention``, forward and with the gradients, by turns. Results are compared before.

The element-wise ops are timed per element against the same op on contiguous operands.

Operands that broadcast are read less than contiguous ones, so a ratio of 1 and less is what memory allows; dropout
stands against relu, which reads and writes as much. Both sides run by turns in one process. The table is also written
to bench/results/attention.md.
"""

from collections.abc import Callable
from dataclasses import dataclass

import ml_dtypes
import numpy as np
import pytest

import popsr
from bench.record import at_least, at_most, mebibytes, ratios
from bench.record import times as cells_of
from bench.sides.compare import by_turns
from popsr import ops, transforms

ROUNDS, CALLS = 11, 8
SCORES, MATRIX = (4, 8, 128, 128), (1024, 1024)
SEED = np.array([1, 2], np.uint32)
PARTS = "Parts of attention, against the same op of contiguous operands: less is faster"
ATTENTION = "`ops.attention`, its parts and PyTorch, 4 x 8 heads, a sequence of 1,024, size 64"

Call = Callable[..., object]


@dataclass(frozen=True)
class Case:
    """An op with ``operand`` besides the scores, against ``base``, which has contiguous operands."""

    name: str
    shape: tuple[int, ...]
    operand: tuple[int, ...] | np.ndarray
    op: Call
    base: Call
    most: float  # times as long as the base


def _masked(x: popsr.Tensor, mask: popsr.Tensor) -> object:
    return ops.where(mask, x, popsr.constant(-1e4, x.dtype))


def _dropout(x: popsr.Tensor, seed: popsr.Tensor) -> object:
    return ops.dropout(x, seed, 0.1)


def _shaped_dropout(x: popsr.Tensor, seed: popsr.Tensor) -> object:
    return ops.shaped_dropout(x, seed, (1, *x.shape[1:]), 0.1)


def _relu(x: popsr.Tensor, _: popsr.Tensor) -> object:
    return ops.relu(x)


CASES = [
    Case("add a mask [1,1,s,s]", SCORES, (1, 1, 128, 128), ops.add, ops.add, 1.3),
    Case("add a mask [b,1,1,s]", SCORES, (4, 1, 1, 128), ops.add, ops.add, 1.3),
    Case("add a row [s]", SCORES, (128,), ops.add, ops.add, 1.3),
    Case("subtract the maximum [b,h,s,1]", SCORES, (4, 8, 128, 1), ops.sub, ops.sub, 1.6),
    Case("divide by the sum [b,h,s,1]", SCORES, (4, 8, 128, 1), ops.div, ops.div, 1.6),
    Case("where, mask [1,1,s,s]", SCORES, np.tril(np.ones((1, 1, 128, 128), bool)), _masked, ops.add, 1.5),
    Case("add a row", MATRIX, (1024,), ops.add, ops.add, 1.3),
    Case("subtract a column", MATRIX, (1024, 1), ops.sub, ops.sub, 2.0),
    Case("dropout", SCORES, SEED, _dropout, _relu, 3.0),
    Case("dropout", MATRIX, SEED, _dropout, _relu, 3.0),
    Case("shaped_dropout [1,h,s,s]", SCORES, SEED, _shaped_dropout, _relu, 3.0),
]


def _session(call: Call, x: np.ndarray, operand: np.ndarray, threads: int) -> popsr.Session:
    ir = popsr.Ir()
    with ir.main_graph:
        call(popsr.variable(x), popsr.variable(operand))
    return popsr.Session(ir, num_threads=threads)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.name}-{len(case.shape)}d")
def test_op(benchmark, record, case, dtype, threads):
    rng = np.random.default_rng(20261122)
    kind = np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    x = rng.uniform(0.1, 1, case.shape).astype(kind)
    given = case.operand
    operand = given if isinstance(given, np.ndarray) else rng.uniform(0.1, 1, given).astype(kind)
    with _session(case.op, x, operand, threads) as own, _session(case.base, x, x.copy(), threads) as base:
        times = by_turns(benchmark, {"op": own.run, "base": base.run}, ROUNDS, calls=CALLS)
    each = times["op"].best / x.size * 1e9
    what = f"{case.name} of {'x'.join(map(str, case.shape))}, {dtype}"
    cells = {"ns an element": f"{each:.3f}"} | ratios(times["op"], times["base"])
    goal = at_most(case.most, times["op"].best / times["base"].best)
    record(PARTS, what, f"{threads} thread{'s' if threads > 1 else ''}", **cells, **goal)
    assert each <= 1.5


# Attention itself

HEADS = (4, 8, 1024, 64)  # batch, heads, sequence, size


def _attention(causal: bool) -> Call:
    def function(q: popsr.Tensor, k: popsr.Tensor, v: popsr.Tensor) -> popsr.Tensor:
        return ops.attention(q, k, v, is_causal=causal)

    return function


def _parts(causal: bool) -> Call:
    seen = np.tri(HEADS[2], dtype=bool)

    def function(q: popsr.Tensor, k: popsr.Tensor, v: popsr.Tensor) -> popsr.Tensor:
        scores = ops.matmul(q, ops.transpose(k, (0, 1, 3, 2))) * q.shape[-1] ** -0.5
        if causal:
            scores = ops.where(popsr.constant(seen), scores, popsr.constant(-np.inf, scores.dtype))
        return ops.matmul(ops.softmax(scores, -1), v)

    return function


def _step(
    function: Call, arrays: list[np.ndarray], backward: bool
) -> tuple[popsr.Session, popsr.DeviceToHostStream]:
    """A session of the result, and of the gradients, and the stream of the result."""
    ir = popsr.Ir()
    with ir.main_graph, popsr.in_sequence():
        q, k, v, dy = map(popsr.variable, arrays)
        graph = ir.create_graph(function, q, k, v)
        call = ops.call_with_info(graph, q, k, v)
        if backward:
            info = transforms.autodiff(graph, grads_required=graph.inputs)
            ops.call(info.graph, dy, inputs_dict=info.inputs_dict(call))
        y = popsr.d2h_stream(HEADS, call.outputs[0].dtype)
        ops.host_store(y, call.outputs[0])
    return popsr.Session(ir, num_threads=2), y


def _torch_step(arrays: list[np.ndarray], dtype: str, causal: bool, backward: bool) -> Call:
    torch = pytest.importorskip("torch")
    torch.set_num_threads(2)
    kind = getattr(torch, dtype)
    q, k, v, dy = (torch.from_numpy(each.astype(np.float32)).to(kind) for each in arrays)
    for each in (q, k, v):
        each.requires_grad_(backward)

    def step() -> object:
        y = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
        if backward:
            torch.autograd.grad(y, (q, k, v), dy)
        return y

    return step


@pytest.mark.parametrize("causal", [False, True], ids=["all", "causal"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("backward", [False, True], ids=["forward", "backward"])
def test_attention(benchmark, record, backward, dtype, causal):
    rng = np.random.default_rng(20261127)
    kind = np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    arrays = [rng.standard_normal(HEADS).astype(kind) for _ in range(4)]
    theirs = _torch_step(arrays, dtype, causal, backward)
    op, y = _step(_attention(causal), arrays, backward)
    parts, _ = _step(_parts(causal), arrays, backward)
    with op, parts:
        got = np.asarray(op.run()[y], np.float32)
        np.testing.assert_allclose(
            got, theirs().detach().float().numpy(), atol=2e-5 if dtype == "float32" else 3e-2
        )
        memory = [side.memory()["activations"] for side in (op, parts)]
        times = by_turns(benchmark, {"op": op.run, "parts": parts.run, "torch": theirs}, 9)
    what = f"{'forward and backward' if backward else 'forward'}, {dtype}{', causal' if causal else ''}"
    record(ATTENTION, what, "popsr's op", **cells_of(times["op"]), memory=mebibytes(memory[0]))
    over = ratios(times["parts"], times["op"])
    record(ATTENTION, what, "popsr's parts", **cells_of(times["parts"]), **over, memory=mebibytes(memory[1]))
    goal = at_least(1.0, times["torch"].best / times["op"].best)
    record(
        ATTENTION, what, "PyTorch", **cells_of(times["torch"]), **ratios(times["torch"], times["op"]), **goal
    )
