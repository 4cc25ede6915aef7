"""Operands that differ between ranks: places that are read or written, numbers and constants, told apart by bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
import torch.nn.functional as nn  # noqa: E402
from torch.nn import Module  # noqa: E402

from popsr.bridge.torch import trace_step  # noqa: E402
from popsr.errors import UnsupportedError  # noqa: E402
from tests_py.bridge.torch.claims import fixed  # noqa: E402
from tests_py.bridge.torch.ranks import run_ranks, states_after  # noqa: E402

pytestmark = pytest.mark.filterwarnings(
    "ignore::popsr.errors.ReplicaWarning",  # states that drift
    "ignore:.*is deprecated:FutureWarning",  # names of collectives in newer torch
)

APART = "{0}{1}{2}{3}"
EQUAL = "{0,1,2,3}"
Write = Callable[[Any], Any]


class Tables(Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", torch.arange(12.0).view(4, 3))
        self.register_buffer("v", torch.tensor([1.0, -2.0, 3.0]))
        self.register_buffer("wide", torch.tensor([1.0, -2.0, 0.0, 4.0], dtype=torch.float64))
        self.register_buffer("n", torch.arange(4) + 2**24 + 1)


def rank() -> int:
    return dist.get_rank()


def one(a: Any, b: Any) -> Any:
    """A number on rank 1, another on the others."""
    return a if rank() == 1 else b


def _set(path: str, value: Callable[[Any], Any]) -> Write:
    return lambda m: getattr(m, path).copy_(value(m))


# Name, path of the state, the step, and the groups that are proved.
PLACES: list[tuple[str, str, Write, str]] = [
    ("table[rank] = 1", "table", lambda m: m.table.__setitem__(rank(), 1.0), APART),
    ("row copy_", "table", lambda m: m.table[rank()].copy_(m.v), APART),
    ("column add_", "table", lambda m: m.table[:, rank() % 3].add_(1), APART),
    ("slice fill_", "table", lambda m: m.table[rank() : rank() + 1].fill_(20), APART),
    ("strided slice", "table", lambda m: m.table[rank() % 2 :: 2].add_(1), "{0,2}{1,3}"),
    ("select mul_ add_", "table", lambda m: m.table.select(0, rank()).mul_(0).add_(3), APART),
    ("narrow zero_", "table", lambda m: m.table.narrow(0, rank(), 1).zero_().add_(1), APART),
    ("chunk add_", "table", lambda m: m.table.chunk(4)[rank()].add_(1), APART),
    ("split fill_", "table", lambda m: m.table.split(1)[rank()].fill_(1), APART),
    ("split with sizes", "table", lambda m: m.table.split([1, 1, 2])[rank() % 2].fill_(1), "{0,2}{1,3}"),
    ("unbind add_", "table", lambda m: m.table.unbind()[rank()].add_(1), APART),
    ("flat element", "table", lambda m: m.table.view(-1)[3 * rank()].fill_(1), APART),
    ("transposed", "table", lambda m: m.table.t()[rank() % 3].add_(1), APART),
    ("view of a view", "table", lambda m: m.table[rank()][1:2].add_(1), APART),
    ("written and read whole", "v", lambda m: (m.table[rank()].add_(1), m.v.add_(m.table.sum(0))), APART),
    ("other places of one row", "table", lambda m: (m.table[rank() * 0].add_(1),), EQUAL),
    ("negative index", "table", lambda m: m.table[-1 - rank()].add_(1), APART),
    ("out=", "table", lambda m: torch.add(m.v, m.v, out=m.table[rank()]), APART),
    ("all_reduce of a row", "table", lambda m: dist.all_reduce(m.table[rank()]), APART),
    ("read, not written", "v", lambda m: m.v.copy_(m.table[rank()]), APART),
    ("part of a split in a list", "v", lambda m: m.v.copy_(torch.cat([*m.table.split(1)][rank()].split(1))[0]), APART),
    ("parts of ranks and of all", "v", lambda m: (m.v.copy_(m.table.unbind()[rank()] + m.table.unbind()[1])), APART),
    ("index_fill", "table", _set("table", lambda m: m.table.index_fill(0, torch.tensor([rank()]), 1.0)), APART),
    ("index_put_", "table", lambda m: m.table.index_put_((torch.tensor([rank()]),), torch.tensor(1.0)), APART),
    ("gathered", "table", lambda m: _gathered(m), EQUAL),
]  # fmt: skip


def _gathered(m: Any) -> None:
    m.table[rank()].fill_(rank() + 1.0)
    dist.all_gather_into_tensor(m.table.view(-1), m.table[rank()].clone())


# The reciprocal tells zeros of two signs apart.
NUMBERS: list[tuple[str, str, Write, str]] = [
    ("times -0.0", "v", _set("v", lambda m: m.v * one(-0.0, 0.0)), APART),
    ("tensor of -0.0", "v", _set("v", lambda m: torch.tensor(one(-0.0, 0.0)).expand(3)), APART),
    ("reciprocal", "v", _set("v", lambda m: 1 / torch.tensor([one(-0.0, 0.0)])), APART),
    ("full of -0.0", "v", _set("v", lambda m: torch.full((3,), one(-0.0, 0.0))), APART),
    ("fill_ with -0.0", "v", lambda m: m.v.fill_(one(-0.0, 0.0)), APART),
    ("copysign", "v", _set("v", lambda m: torch.copysign(m.v, torch.tensor(one(-0.0, 0.0)))), APART),
    ("list with -0.0", "v", _set("v", lambda m: torch.tensor([0.0, one(-0.0, 0.0), 1.0])), APART),
    ("masked_fill", "v", _set("v", lambda m: m.v.masked_fill(m.v > 2, one(-0.0, 0.0))), APART),
    ("clamp", "v", _set("v", lambda m: 1 / m.v.clamp(max=one(-0.0, 0.0))), APART),
    ("where", "v", _set("v", lambda m: torch.where(m.v > 2, one(-0.0, 0.0), m.v)), APART),
    ("small difference", "wide", lambda m: m.wide.mul_(1 + 1e-12 * rank()), APART),
    ("small difference added", "wide", _set("wide", lambda m: m.wide.add(1 + 1e-12 * rank())), APART),
    ("alpha", "v", lambda m: m.v.add_(m.v, alpha=1 + rank()), APART),
    ("lerp", "v", lambda m: m.v.lerp_(m.table[0], 0.25 * rank()), APART),
    ("integers", "n", lambda m: m.n.mul_(rank()), APART),
    ("NaNs of one sign", "v", _set("v", lambda m: m.v * one(float("nan"), float("nan"))), EQUAL),
    ("a number for all", "v", lambda m: m.v.mul_(float(dist.get_world_size())), EQUAL),
]


def _error(t: Any, reduction: str) -> Any:
    return nn.mse_loss(t, t * 2, reduction=reduction)


# Ranks that differ in another way than by a place or a number of one kind.
KINDS: list[tuple[str, str, Write, str]] = [
    ("2 and 2.0", "n", lambda m: m.n.copy_(m.n * one(2, 2.0)), APART),
    ("16777217 and 16777217.0", "wide", lambda m: m.wide.copy_(torch.full((4,), one(16777217, 16777217.0))), APART),
    ("True and 1", "n", lambda m: m.n.copy_(m.n + one(True, 1)), APART),
    ("True and False", "n", lambda m: m.n.copy_(m.n.sort(descending=one(True, False))[0]), APART),
    ("another axis", "n", lambda m: m.n.copy_(m.n.view(2, 2).sum(one(0, 1)).repeat(2)), APART),
    ("another reduction", "wide", lambda m: m.wide.fill_(_error(m.wide, one("sum", "mean"))), APART),
    ("parts of other sizes", "v", lambda m: m.v.copy_(m.table.split([1, 3])[one(0, 1)].sum(0)), APART),
    ("another type", "wide", lambda m: m.wide.copy_(m.wide.to(one(torch.float32, torch.float64))), APART),
    ("another rounding", "wide", _set("wide", lambda m: m.wide.div(3, rounding_mode=one("floor", "trunc"))), APART),
]  # fmt: skip


def _step(write: Write) -> Callable[[Any, Any], None]:
    def step(model: Any, x: Any) -> None:
        with torch.no_grad():
            write(model)

    return step


@pytest.mark.share(3)
@pytest.mark.parametrize(("path", "write", "groups"), [row[1:] for row in [*PLACES, *NUMBERS, *KINDS]],
                         ids=[row[0] for row in [*PLACES, *NUMBERS, *KINDS]])  # fmt: skip
def test_claims_and_runs(path: str, write: Write, groups: str) -> None:
    step = _step(write)

    def work(_rank: int) -> bytes:
        model = Tables()
        step(model, None)
        return bytes(getattr(model, path).numpy().tobytes())

    real = run_ranks(4, work)
    made = trace_step(step, Tables(), None, torch.ones(1), replicas=4)
    proved = made.prove().value(path).proved
    assert str(proved) == groups
    for block in proved.blocks:
        assert len({real[member] for member in block}) == 1
    ours = np.asarray(made.run()[path])
    kind = Tables().get_buffer(path).numpy().dtype
    rows = [np.frombuffer(each, kind).reshape(Tables().get_buffer(path).shape) for each in real]
    np.testing.assert_array_equal(ours, np.stack(rows) if ours.ndim > rows[0].ndim else rows[0])
    assert (np.signbit(ours.astype(np.float64)) == np.signbit(np.stack(rows).astype(np.float64))).all()


@pytest.mark.parametrize(
    ("write", "told"),
    [
        (
            lambda m: dist.all_reduce(m.v.clone()) if rank() == 1 else None,
            r"ranks 1 and 0 take part in different collectives, got .*all_reduce.* of rank 1 at "
            r".*test_rank_operands.py:\d+ after the 0 that both run, where rank 0 had ended",
        ),
        (
            lambda m: dist.all_reduce(m.v, one(dist.ReduceOp.MAX, dist.ReduceOp.SUM)),
            r"ranks 0 and 1 run different ops at .*test_rank_operands",
        ),
        (
            lambda m: m.v.copy_(torch.rand(3)) if rank() == 1 else None,
            r"ranks 0 and 1 draw different random numbers, got nothing at no line and .*test_rank_operands",
        ),
    ],
)
def test_refused(write: Write, told: str) -> None:
    with pytest.raises(UnsupportedError, match=told):
        trace_step(_step(write), Tables(), None, torch.ones(1), replicas=4)


class Stage(Module):
    """A layer whose weight has another name or shape on rank 1."""

    def __init__(self, name: str, width: int) -> None:
        super().__init__()
        self.register_parameter(name, torch.nn.Parameter(torch.ones(width)))


@pytest.mark.parametrize(
    ("model", "text"),
    [
        (lambda: Stage(one("b", "a"), 2), r"got 'a' torch.float32 \[2\] and 'b' torch.float32 \[2\]"),
        (lambda: Stage("a", one(3, 2)), r"got 'a' torch.float32 \[2\] and 'a' torch.float32 \[3\]"),
        (
            lambda: torch.nn.Sequential(*[Stage("a", 2)] * one(0, 1)),
            r"got '0.a' torch.float32 \[2\] and 'x'",
        ),
    ],
)
def test_ranks_that_hold_other_tensors(model: Callable[[], Any], text: str) -> None:
    with pytest.raises(UnsupportedError, match=f"ranks 0 and 1 hold different tensors, {text}"):
        trace_step(lambda m, x: x.sum(), model, None, torch.ones(1), replicas=2)


def _rate() -> float:
    return 0.1 + 0.1 * rank()


RATES: dict[str, Callable[[Any], Any]] = {
    "adamw": lambda m: torch.optim.AdamW(m.parameters(), lr=_rate(), foreach=False),
    "adamw foreach": lambda m: torch.optim.AdamW(m.parameters(), lr=_rate(), foreach=True),
    "adamw fused": lambda m: torch.optim.AdamW(m.parameters(), lr=_rate(), fused=True),
    "sgd foreach": lambda m: torch.optim.SGD(m.parameters(), lr=_rate(), momentum=0.9, foreach=True),
}


def _layer() -> Any:
    return fixed(torch.nn.Linear(4, 2))  # ranks in threads share torch's generator


def _train(model: Any, optimizer: Any, x: Any) -> None:
    optimizer.zero_grad()
    model(x).square().sum().backward()
    optimizer.step()


@pytest.mark.parametrize("name", RATES)
def test_rates_of_ranks(name: str) -> None:
    """A rate is a number that optimisers compute with in Python, too."""
    made = trace_step(_train, _layer, RATES[name], torch.ones(2, 4), replicas=2, equal=["x"])
    assert str(made.prove().value("weight").proved) == "{0}{1}"
    got = made.run()
    for path, rows in states_after(_train, _layer, RATES[name], lambda _: (torch.ones(2, 4),), 2, 1).items():
        wanted = np.stack(rows)
        ours = np.broadcast_to(got[path], wanted.shape)
        np.testing.assert_allclose(ours, wanted, rtol=1e-5, atol=1e-6)
