"""Random ops: popsr's numbers, with torch's distributions, from a seed that is a state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import popsr.bridge.torch as bridge
from popsr.bridge.torch._rules import RULES
from popsr.errors import ReplicaError, UnsupportedError

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

X = torch.full((4000,), 0.25)
ATEN = torch.ops.aten
DRAWN: dict[str, tuple[Callable[[Any], Any], float, float]] = {
    "rand.default": (lambda x: torch.rand(4000), 0.5, 1 / 12**0.5),
    "rand_like.default": (torch.rand_like, 0.5, 1 / 12**0.5),
    "uniform.default": (lambda x: x.clone().uniform_(1, 3), 2.0, 2 / 12**0.5),
    "randn.default": (lambda x: torch.randn(4000), 0.0, 1.0),
    "randn_like.default": (torch.randn_like, 0.0, 1.0),
    "normal_functional.default": (lambda x: x.clone().normal_(1, 2), 1.0, 2.0),
    "bernoulli.p": (lambda x: x.clone().bernoulli_(0.3), 0.3, 0.21**0.5),
    "bernoulli.default": (torch.bernoulli, 0.25, 0.1875**0.5),
    "native_dropout.default": (lambda x: ATEN.native_dropout(x, 0.5, True)[0], 0.25, 0.25),
    "randperm.default": (lambda x: torch.randperm(4000).float(), 1999.5, 4000 / 12**0.5),
    "randint.low": (lambda x: torch.randint(2, 6, (4000,)).float(), 3.5, 1.25**0.5),
    "randint.default": (lambda x: torch.randint(4, (4000,)).float(), 1.5, 1.25**0.5),
    "randint_like.default": (lambda x: torch.randint_like(x.long(), 4).float(), 1.5, 1.25**0.5),
    "random.to": (lambda x: x.clone().random_(4), 1.5, 1.25**0.5),
    "bernoulli.Tensor": (lambda x: x.clone().bernoulli_(x), 0.25, 0.1875**0.5),
    "normal.float_float": (lambda x: torch.normal(1.0, 2.0, (4000,)), 1.0, 2.0),
    "normal.Tensor_float": (lambda x: torch.normal(x, 2.0), 0.25, 2.0),
    "normal.float_Tensor": (lambda x: torch.normal(1.0, x), 1.0, 0.25),
    "normal.Tensor_Tensor": (lambda x: torch.normal(x, x), 0.25, 0.25),
    "exponential.default": (lambda x: x.clone().exponential_(2.0), 0.5, 0.5),
    "geometric.default": (lambda x: x.clone().geometric_(0.5), 2.0, 2**0.5),
    "log_normal.default": (lambda x: x.clone().log_normal_(0.0, 0.5).log(), 0.0, 0.5),
    "cauchy.default": (lambda x: x.clone().cauchy_(1.0, 2.0).sub(1).div(2).atan(), 0.0, np.pi / 12**0.5),
    "randint_like.low_dtype": (lambda x: torch.randint_like(x.long(), 2, 6).float(), 3.5, 1.25**0.5),
}


def test_each_rule_is_drawn() -> None:
    assert set(DRAWN) == {name for name, rule in RULES.items() if rule.__module__.endswith("._rules.random")}


@pytest.mark.parametrize("name", DRAWN)
def test_distribution(name: str) -> None:
    function, mean, deviation = DRAWN[name]
    made = bridge.trace_step(lambda _model, x: function(x), nn.Module(), None, X, replicas=2, ranks="first")
    first, second = made.run()["result"], made.run()["result"]
    assert abs(first.mean() - mean) < 5 * deviation / 8000**0.5
    assert abs(first.std() - deviation) < 0.1 * deviation
    assert not np.array_equal(first, second)  # the next run draws others
    assert not np.array_equal(first[0], first[1])  # and so does the other replica


def test_dropout_of_equal_seeds_keeps_replicas_equal() -> None:
    def step(model: Any, optimizer: Any, x: Any) -> Any:
        optimizer.zero_grad()
        loss = nn.functional.dropout(model(x), 0.5).sum()
        loss.backward()
        optimizer.step()
        return loss

    def trace(*equal: str) -> Any:
        torch.manual_seed(0)
        model = nn.Linear(3, 4)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        return bridge.trace_step(step, model, optimizer, torch.ones(2, 3), replicas=2, equal=equal).prove()

    assert {each.path for each in trace("x").drifting} == {"weight", "bias"}
    assert trace("x", "random seed").ok


class Masked(nn.Module):
    """Dropout, computed once more in the backward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.ones(400))

    def masked(self, x: Any) -> Any:
        first = nn.functional.dropout(x * self.w, 0.5)
        return first * nn.functional.dropout(first, 0.5)

    def forward(self, x: Any) -> Any:
        return checkpoint(self.masked, x, use_reentrant=False)


def masks(model: Any, x: Any) -> Any:
    made = model(x)
    (grad,) = torch.autograd.grad(made.sum(), (model.w,))
    return made, grad


def test_checkpoints_draw_the_same_numbers_again() -> None:
    rows = bridge.trace_step(masks, Masked(), None, torch.ones(400), replicas=2).run()
    made, grad = rows["result[0]"], rows["result[1]"]
    assert ((made != 0) == (grad != 0)).all()
    assert 50 < (made[0] != 0).sum() < 150  # two masks of their own


@pytest.mark.parametrize(
    ("options", "partition"),
    [
        ({}, "{0}{1}{2}{3}"),
        ({"equal": ["random seed"]}, "{0,1,2,3}"),
        ({"groups": {"random seed": [[0, 2], [1, 3]]}}, "{0,2}{1,3}"),
    ],
)
def test_ranks_of_one_seed_draw_the_same_numbers(options: dict[str, Any], partition: str) -> None:
    shared = {**options, "equal": [*options.get("equal", []), "x"]}
    made = bridge.trace_step(masks, Masked(), None, torch.ones(400), replicas=4, **shared)
    assert str(made.prove().facts.partition(made.results[0].tensor)) == partition
    rows = made.run()["result[0]"]
    alike = [[bool((a == b).all()) for b in rows] for a in rows]
    blocks = [set(map(int, block.split(","))) for block in partition.strip("{}").split("}{")]
    assert alike == [[any({a, b} <= block for block in blocks) for b in range(4)] for a in range(4)]


def seeded_by_rank(model: Any, x: Any) -> Any:
    torch.manual_seed(torch.distributed.get_rank())
    return nn.functional.dropout(x)


def test_seeds_that_the_step_sets_apart() -> None:
    made = bridge.trace_step(seeded_by_rank, Masked(), None, torch.ones(400), replicas=2, equal=["x"])
    assert str(made.prove().facts.partition(made.results[0].tensor)) == "{0}{1}"
    with pytest.raises(
        ReplicaError, match=r"ranks that share 'random seed' seed generators apart .*test_random.py:\d+"
    ):
        bridge.trace_step(seeded_by_rank, Masked(), None, X, replicas=2, equal=["x", "random seed"])


def seeded_by_rank_for_the_next(model: Any, x: Any) -> Any:
    made = nn.functional.dropout(x)
    torch.manual_seed(torch.distributed.get_rank())
    return made


def seeded_where_data_says(model: Any, x: Any) -> Any:
    made = nn.functional.dropout(x)
    if x.sum() > 0:
        torch.manual_seed(3)
    return made


@pytest.mark.parametrize(
    ("step", "error", "text"),
    [
        (
            seeded_by_rank_for_the_next,
            ReplicaError,
            r"ranks that share 'random seed' seed generators apart before .*test_random.py:\d+",
        ),
        (seeded_where_data_says, UnsupportedError, "got other draws or seeds on one way than on the other"),
    ],
)
def test_seeds_of_the_next_step(step: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        bridge.trace_step(step, Masked(), None, X, replicas=2, equal=["random seed"])


def test_the_generator_of_torch_stays_as_it_is() -> None:
    before = torch.get_rng_state()
    bridge.trace_step(masks, Masked(), None, torch.ones(400), replicas=2)
    assert torch.equal(torch.get_rng_state(), before)
