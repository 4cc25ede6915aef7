"""Results of asynchronous collectives differ on every rank until the step has waited for them."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import popsr.bridge.torch as bridge
from popsr.errors import UnsupportedError

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402

from tests_py.bridge.torch.ranks import run_ranks  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")  # of torch, about its names

WORLD = 4
ROWS = torch.arange(16.0).view(4, 4)
ALL, NONE = "{0,1,2,3}", "{0}{1}{2}{3}"


def _reduced(x: Any, wait: bool = True, write: bool = False) -> Any:
    t = x.clone()
    work = dist.all_reduce(t, async_op=True)
    if write:
        t.add_(1)
    if wait:
        work.wait()
    return t


def _read_too_early(call: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def body(x: Any) -> Any:
        t = x.clone()
        work = call(t)
        made = t + 0
        work.wait()
        return made

    return body


def _into(call: Callable[[Any, Any], Any], rows: int, wait: bool = True) -> Callable[[Any], Any]:
    def body(x: Any) -> Any:
        out = torch.empty(rows)
        work = call(out, x)
        if wait:
            work.wait()
        return out[:1].expand(4)

    return body


def _lists(x: Any, wait: bool = True) -> Any:
    outs = [torch.empty(4) for _ in range(WORLD)]
    work = dist.all_gather(outs, x, async_op=True)
    if wait:
        work.wait()
    return outs[2]


def _operand_is_written(x: Any) -> Any:
    out, t = torch.empty(16), x.clone()
    work = dist.all_gather_into_tensor(out, t, async_op=True)
    t.zero_()
    work.wait()
    return out[:4]


def _buckets(x: Any) -> Any:
    flat = torch.empty(8)
    flat[:4] = x
    work = dist.all_reduce(flat[:4], async_op=True)
    flat[4:] = 1
    work.wait()
    return flat[:4] + flat[4:]


def _many(x: Any) -> Any:
    ts = [x.clone() for _ in range(3)]
    works = [dist.all_reduce(t, async_op=True) for t in ts]
    for work in works:
        work.wait()
    return sum(ts)


def _coalesced(x: Any, wait_first: bool = True) -> Any:
    from torch.distributed.distributed_c10d import _coalescing_manager

    a, b = x.clone(), x.clone()
    with _coalescing_manager(async_ops=True) as manager:
        dist.all_reduce(a)
        dist.all_reduce(b)
    if wait_first:
        manager.wait()
    made = a + b
    if not wait_first:
        manager.wait()
    return made


def _gradient(x: Any) -> Any:
    p = nn.Parameter(torch.ones(4))
    works: list[Any] = []
    p.register_post_accumulate_grad_hook(lambda p: works.append(dist.all_reduce(p.grad, async_op=True)))
    (p * x).sum().backward()
    for work in works:
        work.wait()
    return p.grad


def _parameter(x: Any) -> Any:
    p = nn.Parameter(x.clone())
    dist.broadcast(p, 1, async_op=True).wait()
    return p.detach()


def _barrier(x: Any) -> Any:
    dist.barrier(async_op=True).wait()
    return _reduced(x)


def _broadcast(t: Any) -> Any:
    return dist.broadcast(t, 0, async_op=True)


WAITED: dict[str, Callable[[Any], Any]] = {
    "all_reduce": _reduced,
    "broadcast": lambda x: _waited(x, _broadcast),
    "all_gather": _lists,
    "all_gather_into_tensor": _into(
        lambda out, x: dist.all_gather_into_tensor(out, x, async_op=True), 4 * WORLD
    ),
    "many": _many,
    "coalesced": _coalesced,
    "gradient": _gradient,
    "parameter": _parameter,
    "barrier": _barrier,
}
WAITED_APART = {
    "buckets": _buckets,  # of a write in part the tensor keeps the rest, so that it is not proved equal
    "reduce_scatter_tensor": _into(lambda out, x: dist.reduce_scatter_tensor(out, x, async_op=True), 1),
    "all_to_all_single": _into(lambda out, x: dist.all_to_all_single(out, x, async_op=True), 4),
}
NOT_WAITED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "all_reduce, read before": (
        _read_too_early(lambda t: dist.all_reduce(t, async_op=True)),
        "all_reduce",
    ),
    "broadcast, read before": (_read_too_early(_broadcast), "broadcast"),
    "never": (lambda x: _reduced(x, wait=False), "all_reduce"),
    "written before": (lambda x: _reduced(x, write=True), "all_reduce"),
    "operand is written before": (_operand_is_written, "all_gather_into_tensor"),
    "all_gather": (lambda x: _lists(x, wait=False), "all_gather"),
    "reduce_scatter_tensor": (
        _into(lambda out, x: dist.reduce_scatter_tensor(out, x, async_op=True), 1, False),
        "reduce_scatter_tensor",
    ),
    "coalesced, read before": (lambda x: _coalesced(x, False), "all_reduce_coalesced"),
}


def _waited(x: Any, call: Callable[[Any], Any]) -> Any:
    t = x.clone()
    call(t).wait()
    return t


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("out", torch.zeros(4))


def traced(body: Callable[[Any], Any]) -> Any:
    def step(model: Any, x: Any) -> None:
        made = body(x)
        with torch.no_grad():
            model.out.copy_(made)

    return bridge.trace_step(step, Model(), None, lambda rank: (ROWS[rank],), replicas=WORLD)


@pytest.mark.parametrize("name", [*WAITED, *WAITED_APART])
def test_results_are_there_after_the_wait(name: str) -> None:
    body = {**WAITED, **WAITED_APART}[name]
    step = traced(body)
    proof = step.prove()
    assert str(proof.value("out").proved) == (ALL if name in WAITED else NONE)
    expected = run_ranks(WORLD, lambda rank: body(ROWS[rank].clone()).detach().numpy().copy())
    np.testing.assert_array_equal(step.run()["out"], np.stack(expected))
    assert not any("wait()" in problem for problem in proof.problems)


@pytest.mark.parametrize("name", NOT_WAITED)
def test_results_differ_before_the_wait(name: str) -> None:
    body, op = NOT_WAITED[name]
    proof = traced(body).prove()
    assert str(proof.value("out").proved) == NONE
    [problem] = proof.problems
    assert f"nothing was written to 'result of {op} before wait()', at test_async.py:" in problem
    assert problem.endswith("wait for it before it is read")
    gc.collect()


@pytest.mark.parametrize("name", ["is_completed", "is_success", "exception", "result", "get_future_result"])
def test_other_questions_to_the_handle_are_refused(name: str) -> None:
    with pytest.raises(
        UnsupportedError, match=r"handle of all_reduce is asked at .*test_async.py:\d+, expected wait"
    ):
        traced(lambda x: (getattr(dist.all_reduce(x, async_op=True), name)(), x)[1])
    gc.collect()
