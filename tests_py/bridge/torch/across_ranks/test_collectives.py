"""Every rule of a functional collective, and the calls of torch.distributed, against torch running all ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import popsr.bridge.torch as bridge
from popsr.bridge.torch._rules import COLLECTIVES

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402

from tests_py.bridge.torch import models  # noqa: E402
from tests_py.bridge.torch.ranks import run_ranks  # noqa: E402

OPS = torch.ops._c10d_functional
WAIT = OPS.wait_tensor


def _pairs() -> Any:
    """The pair of this rank: 0 and 2, or 1 and 3."""
    return [dist.new_group([0, 2]), dist.new_group([1, 3])][dist.get_rank() % 2]


def _all_reduce(op: str) -> Callable[[Any, str, int], Any]:
    return lambda x, group, size: WAIT(OPS.all_reduce(x, op, group))


CALLS: dict[str, Callable[[Any, str, int], Any]] = {
    **{f"all_reduce {op}": _all_reduce(op) for op in ("sum", "avg", "min", "max", "product")},
    "all_gather_into_tensor": lambda x, group, size: WAIT(OPS.all_gather_into_tensor(x, size, group)),
    "reduce_scatter_tensor": lambda x, group, size: WAIT(OPS.reduce_scatter_tensor(x, "sum", size, group)),
    "all_to_all_single": lambda x, group, size: WAIT(
        OPS.all_to_all_single(x, [x.shape[0] // size] * size, [x.shape[0] // size] * size, group)
    ),
    "broadcast": lambda x, group, size: WAIT(OPS.broadcast(x, 1, group)),
}


def _in_place(x: Any, group: Any, call: Callable[[Any], Any]) -> Any:
    x = x.clone()
    call(x)
    return x


def _gathered(x: Any, group: Any) -> Any:
    parts = [torch.empty_like(x) for _ in range(group.size())]
    dist.all_gather(parts, x, group=group)
    return torch.stack(parts)


def _into(x: Any, group: Any, call: Callable[[Any, Any], Any], rows: Callable[[int, int], int]) -> Any:
    out = torch.empty(rows(x.shape[0], group.size()), *x.shape[1:])
    call(out, x)
    return out


WRITING: dict[str, Callable[[Any, Any], Any]] = {
    "all_reduce": lambda x, g: _in_place(x, g, lambda t: dist.all_reduce(t, group=g)),
    "all_reduce max": lambda x, g: _in_place(x, g, lambda t: dist.all_reduce(t, dist.ReduceOp.MAX, group=g)),
    "all_reduce async": lambda x, g: _in_place(
        x, g, lambda t: dist.all_reduce(t, group=g, async_op=True).wait()
    ),
    "broadcast": lambda x, g: _in_place(
        x, g, lambda t: dist.broadcast(t, dist.get_process_group_ranks(g)[1], group=g)
    ),
    "all_gather": _gathered,
    "all_gather_into_tensor": lambda x, g: _into(
        x, g, lambda out, t: dist.all_gather_into_tensor(out, t, group=g), lambda n, size: n * size
    ),
    "reduce_scatter_tensor": lambda x, g: _into(
        x, g, lambda out, t: dist.reduce_scatter_tensor(out, t, group=g), lambda n, size: n // size
    ),
    "all_to_all_single": lambda x, g: _into(
        x, g, lambda out, t: dist.all_to_all_single(out, t, group=g), lambda n, size: n
    ),
}
# As all_reduce and others above: of several tensors, or written in place.
SEVERAL = {
    "all_reduce_.default",
    "broadcast_.default",
    "all_reduce_coalesced.default",
    "all_reduce_coalesced_.default",
    "all_gather_into_tensor_coalesced.default",
    "reduce_scatter_tensor_coalesced.default",
    "wait_tensor.default",
    "shard_dim_alltoall.default",
    "message_moved.default",  # of pipelines
}


def test_each_rule_has_a_call() -> None:
    assert {f"{name.split()[0]}.default" for name in CALLS} | SEVERAL == set(COLLECTIVES)


def _rows(rank: int) -> Any:
    return torch.randn(4, 3, generator=torch.Generator().manual_seed(rank))


def _compare(function: Callable[[Any, Any], Any]) -> None:
    class Empty(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.groups = [dist.group.WORLD, _pairs()]

    def step(model: Any, x: Any) -> Any:
        return [function(x, group) for group in model.groups]

    made = bridge.trace_step(step, Empty, None, lambda rank: (_rows(rank),), replicas=4).run()
    expected = run_ranks(4, lambda rank: step(Empty(), _rows(rank)))
    for i in (0, 1):
        got, wanted = made[f"result[{i}]"], np.stack([each[i].numpy() for each in expected])
        np.testing.assert_allclose(got, wanted, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", CALLS)
def test_functional(name: str) -> None:
    _compare(lambda x, group: CALLS[name](x, group.group_name, group.size()))


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("name", WRITING)
def test_calls_that_write(name: str) -> None:
    _compare(WRITING[name])


def test_reduce_to_one_rank() -> None:
    def step(model: Any, x: Any) -> Any:
        x = x.clone()
        dist.reduce(x, dist.get_process_group_ranks(model.pair)[1], dist.ReduceOp.MAX, group=model.pair)
        return x

    class Paired(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.pair = _pairs()

    got = bridge.trace_step(step, Paired, None, lambda rank: (_rows(rank),), replicas=4).run()["result"]
    for root in (2, 3):
        expected = torch.maximum(_rows(root - 2), _rows(root)).numpy()
        np.testing.assert_array_equal(got[root], expected)
        assert (got[root - 2] != expected).all()  # backends leave parts of the result, or what was there


def test_several_at_once() -> None:
    def step(_model: Any, x: Any) -> Any:
        name = models.world().group_name
        reduced = OPS.all_reduce_coalesced([x, 2 * x], "sum", name)
        gathered = OPS.all_gather_into_tensor_coalesced([x, 2 * x], 4, name)
        scattered = OPS.reduce_scatter_tensor_coalesced([x, 2 * x], "avg", 4, name)
        moved = torch.ops._dtensor.shard_dim_alltoall(x, 1, 0, name)
        return [WAIT(t) for t in (*reduced, *gathered, *scattered)] + [moved]

    got = bridge.trace_step(step, nn.Module(), None, lambda rank: (_rows(rank),), replicas=4).run()
    rows = np.stack([_rows(rank).numpy() for rank in range(4)])
    total = rows.sum(0)
    for i, factor in enumerate((1, 2)):
        np.testing.assert_allclose(got[f"result[{i}]"][3], factor * total, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(got[f"result[{2 + i}]"][1], factor * rows.reshape(16, 3), rtol=1e-6)
        np.testing.assert_allclose(got[f"result[{4 + i}]"][:, 0], factor * total / 4, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(got["result[6]"][2], np.concatenate(list(rows[:, 2:3]), 1))
