"""torch.cond and while_loop: values are torch's, facts are as different as the predicate may be."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import popsr.bridge.torch as bridge
from popsr.errors import UnsupportedError, UnsupportedOpsError

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch._higher_order_ops.while_loop import while_loop  # noqa: E402
from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402

from tests_py.bridge.torch import models  # noqa: E402

ROWS = np.array([[1, 2, 3], [-1, -2, -3], [0.5, 0, 7], [9, 9, 9]], np.float32)


class Branches(nn.Module):
    """A parameter in one branch, a buffer in the other."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.tensor([2.0, 3.0, 4.0]))
        self.register_buffer("shift", torch.tensor([10.0, 20.0, 30.0]))

    def forward(self, x: Any) -> Any:
        def positive(x: Any) -> tuple[Any, Any]:
            return x * self.w, x.sum()

        def negative(x: Any) -> tuple[Any, Any]:
            return x + self.shift, x.prod()

        return torch.cond(x.sum() > 0, positive, negative, (x,))


class Doubling(nn.Module):
    """Three carried values, a parameter that stays."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.tensor([2.0, 3.0, 4.0]))

    def forward(self, x: Any) -> Any:
        def go_on(i: Any, x: Any, y: Any) -> Any:
            return (x.sum().abs() < 50) & (i < 9)

        def body(i: Any, x: Any, y: Any) -> Any:
            return i + 1, x * self.w, y - x

        return while_loop(go_on, body, (torch.zeros((), dtype=torch.int64), x, x * 2))


class Nested(nn.Module):
    """A branch inside a loop inside a branch."""

    def forward(self, x: Any) -> Any:
        def odd(n: Any) -> Any:
            return 3 * n + 1

        def even(n: Any) -> Any:
            return n // 2

        def looped(n: Any) -> Any:
            steps = torch.zeros((), dtype=torch.int64)
            return while_loop(
                lambda n, s: n > 1, lambda n, s: (torch.cond(n % 2 == 1, odd, even, (n,)), s + 1), (n, steps)
            )

        def constant(n: Any) -> Any:
            return n + 1, torch.full((), 7, dtype=torch.int64)

        n = x.sum().abs().floor()
        return torch.cond(n > 2, looped, constant, (n,))


@pytest.fixture(autouse=True)
def without_compiled_branches() -> None:
    """torch compiles what it gives to cond, and later meets that in another mode."""
    torch._dynamo.reset()


MODULES = [Branches, Doubling, Nested]


@pytest.mark.share(2)
@pytest.mark.parametrize("kind", MODULES, ids=lambda kind: kind.__name__)
def test_exported_programs_have_torchs_values(kind: type[nn.Module]) -> None:
    module = kind()
    program = torch.export.export(module, (torch.ones(3),))
    made = bridge.from_export(program, replicas=4)
    got = made.run({"x": ROWS})
    for r, row in enumerate(ROWS):
        for k, expected in enumerate(module(torch.tensor(row))):
            np.testing.assert_array_equal(got[f"result[{k}]"][r], expected.detach().numpy())


@pytest.mark.parametrize("kind", MODULES, ids=lambda kind: kind.__name__)
def test_graphs_of_make_fx_have_torchs_values(kind: type[nn.Module]) -> None:
    module = kind()
    with torch.no_grad():  # a while_loop that torch differentiates stacks the values of all iterations
        graph = make_fx(lambda x: module(x), tracing_mode="fake", _allow_non_fake_inputs=True)(torch.ones(3))
    (name,) = (node.target for node in graph.graph.nodes if node.op == "placeholder")
    got = bridge.from_fx(graph, torch.ones(3), replicas=4).run({name: ROWS})
    for r, row in enumerate(ROWS):
        for k, expected in enumerate(module(torch.tensor(row))):
            np.testing.assert_array_equal(got[f"result[{k}]"][r], expected.detach().numpy())


@pytest.mark.share(2)
@pytest.mark.parametrize("kind", MODULES, ids=lambda kind: kind.__name__)
def test_results_are_equal_where_the_predicate_is(kind: type[nn.Module]) -> None:
    program = torch.export.export(kind(), (torch.ones(3),))
    for options, expected in (
        ({"equal": "x"}, "{0,1,2,3}"),
        ({"groups": {"x": [[0, 1], [2, 3]]}}, "{0,1}{2,3}"),
    ):
        made = bridge.from_export(program, replicas=4, **options)
        facts = made.prove().facts
        assert {str(facts.partition(each.tensor)) for each in made.results} == {expected}


class OnePredicate(nn.Module):
    """The predicate alone differs."""

    def __init__(self, looped: bool) -> None:
        super().__init__()
        self.looped = looped

    def forward(self, x: Any, y: Any) -> Any:
        if self.looped:
            return while_loop(lambda y: y.sum() < x.sum(), lambda y: (y * 2,), (y,))[0]
        return torch.cond(x.sum() > 0, lambda y: y * 2, lambda y: y + 1, (y,))


@pytest.mark.parametrize(("looped", "cause"), [(False, "different branches"), (True, "leave while_loop")])
def test_a_predicate_that_varies_is_the_cause(looped: bool, cause: str) -> None:
    program = torch.export.export(OnePredicate(looped), (torch.ones(3), torch.ones(3)))
    made = bridge.from_export(program, replicas=4, equal="y")
    facts = made.prove().facts
    assert str(facts.partition(made.results[0].tensor)) == "{0}{1}{2}{3}"
    root = facts.explain(made.results[0].tensor, 0, 1).root
    assert root is not None
    assert cause in root.text


class Gated(nn.Module):
    """A layer whose activation depends on the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(3, 4), nn.Linear(4, 2)

    def forward(self, x: Any) -> Any:
        (h,) = torch.cond(
            x.sum() > 0, lambda h: (torch.relu(h),), lambda h: (torch.tanh(h),), (self.first(x),)
        )
        return self.last(h)


def train(model: Any, optimizer: Any, x: Any) -> Any:
    optimizer.zero_grad()
    loss = model(x).pow(2).mean()
    loss.backward()
    for p in model.parameters():
        dist.all_reduce(p.grad, dist.ReduceOp.AVG)
    optimizer.step()
    return loss


def test_a_training_step_through_a_branch() -> None:
    model = models.seeded(Gated())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    made = bridge.trace_step(train, model, optimizer, torch.ones(5, 3), replicas=2)
    assert made.prove().ok
    x = np.stack([np.full((5, 3), 0.7), np.full((5, 3), -0.4)]).astype(np.float32)
    got = made.run({"x": x})
    grads = []
    for rows, activation in zip(x, (torch.relu, torch.tanh), strict=True):
        model.zero_grad()
        loss = model.last(activation(model.first(torch.tensor(rows)))).pow(2).mean()
        loss.backward()
        grads.append({name: p.grad.clone() for name, p in model.named_parameters()})
    for name, p in model.named_parameters():
        expected = p - 0.1 * (grads[0][name] + grads[1][name]) / 2
        np.testing.assert_allclose(got[name][1], expected.detach().numpy(), rtol=1e-5, atol=1e-6)


def of_rank(model: Any, x: Any) -> Any:
    scale = 2.0 if dist.get_rank() == 1 else 3.0
    return torch.cond(x.sum() > 0, lambda x: (x * scale,), lambda x: (x + scale,), (x,))[0]


def test_branches_that_differ_between_ranks_are_refused() -> None:
    with pytest.raises(UnsupportedError, match=r"ranks 0 and . run different ops"):
        bridge.trace_step(of_rank, models.seeded(Gated()), None, torch.ones(3), replicas=4)


def test_random_numbers_in_a_branch_are_a_gap() -> None:
    def noisy(x: Any) -> Any:
        return torch.cond(x.sum() > 0, lambda x: x + torch.rand_like(x), lambda x: x * 2, (x,))

    graph = make_fx(noisy, tracing_mode="fake")(torch.ones(3))
    with pytest.raises(UnsupportedOpsError, match="random numbers in a branch or loop"):
        bridge.from_fx(graph, torch.ones(3), replicas=2)
    made = bridge.from_fx(graph, torch.ones(3), replicas=2, equal="*", unsupported="conservative")
    assert str(made.prove().facts.partition(made.results[0].tensor)) == "{0}{1}"
