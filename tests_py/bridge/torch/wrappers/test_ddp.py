"""``DistributedDataParallel`` has the rule of torch: what is proved equal is so on ranks of gloo, and nothing else."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest

import popsr.bridge.torch as bridge
from popsr.errors import Error, ReplicaError, UnsupportedError

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
from torch.distributed.algorithms.join import Join  # noqa: E402
from torch.nn.parallel import DistributedDataParallel as DDP  # noqa: E402, N817

from tests_py.bridge.torch.wrappers import wrapped  # noqa: E402
from tests_py.bridge.torch.wrappers.wrapped import ROWS, Made, batch_of, loss, plain, sgd, updated  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")  # of torch, about broadcast_buffers=

REFUSED = {
    "forward pass last": "gradients are expected",
    "buffer, evaluated last": "does other things in the next step",
}
"""Rows that torch runs and popsr refuses: their first step is not like the others."""


@functools.cache
def real() -> dict[str, set[str] | str]:
    return wrapped.real_outcomes()


@pytest.mark.share(4)
@pytest.mark.parametrize("name", ROWS)
def test_equal_where_ranks_are(name: str) -> None:
    found, expected = wrapped.proved_outcome(ROWS[name]), real()[name]
    if isinstance(expected, str):
        assert "Expected to have finished reduction in the prior iteration" in expected
        assert isinstance(found, str)
        assert (
            "UnsupportedError: trace_step: DistributedDataParallel raises in its next forward pass" in found
        )
    elif name in REFUSED:
        assert isinstance(found, str)
        assert REFUSED[name] in found
    else:
        assert found == expected


def other_wrapper() -> Made:
    module = wrapped.Two()
    wrapper = DDP(module)
    return module, sgd(module), updated(lambda m, x, y: plain(wrapper, x, y))


def with_options(change: Callable[[Any], Any] = lambda m: None, **options: Any) -> Callable[[], Made]:
    def made() -> Made:
        model = DDP(wrapped.Two(), **options)
        change(model)
        return model, sgd(model), updated(plain)

    return made


def join(m: Any, x: Any, y: Any) -> None:
    with Join([m]):
        plain(m, x, y)


def joining() -> Made:
    model = DDP(wrapped.Two())
    return model, sgd(model), updated(join)


def delayed() -> Made:
    module = wrapped.Two()
    named = [("a.weight", module.a.weight)]
    model = DDP(module, delay_all_reduce_named_params=named, param_to_hook_all_reduce=module.a.bias)
    return model, sgd(model), updated(plain)


def replaced(m: Any) -> None:
    m.module.a.weight = torch.nn.Parameter(torch.zeros(2, 4))


UNFOLLOWED = {
    "batched_grad_copy=True": with_options(batched_grad_copy=True),
    "delay_all_reduce_named_params=": delayed,
    "outside of the model": other_wrapper,
    "parameters were replaced": with_options(replaced),
    "join()": joining,
}


@pytest.mark.parametrize("told", UNFOLLOWED)
def test_unfollowed_are_refused_by_name(told: str) -> None:
    if told == "batched_grad_copy=True" and "batched_grad_copy" not in wrapped.OPTIONS:
        pytest.skip("this torch has no batched_grad_copy of DistributedDataParallel")
    found = wrapped.proved_outcome(UNFOLLOWED[told])
    assert isinstance(found, str)
    assert found.startswith("UnsupportedError: trace_step: ")
    assert told in found


def test_step_leaves_the_wrapper_as_it_was() -> None:
    made: list[Any] = []

    def model() -> Any:
        made[:] = [DDP(wrapped.Two())]
        return made[0]

    bridge.trace_step(updated(plain), model, sgd, batch_of, replicas=2)
    assert isinstance(made[0].reducer, dist.Reducer)
    assert "_default_broadcast_coalesced" not in made[0].__dict__
    assert {type(p) for p in made[0].parameters()} == {torch.nn.Parameter}


# While the model is made


def gathers() -> Any:
    outs = [torch.zeros(1) for _ in range(2)]
    dist.all_gather(outs, torch.ones(1))
    return wrapped.Two()


def sends_alone() -> Any:
    if dist.get_rank() == 1:
        dist.broadcast(torch.zeros(1), 0)
    return wrapped.Two()


def sends_other_shapes() -> Any:
    dist.broadcast(torch.zeros(1 + dist.get_rank()), 0)
    return wrapped.Two()


@pytest.mark.parametrize(
    ("model", "kind", "told"),
    [
        (gathers, UnsupportedError, r"a collective while the model is made at .*test_ddp.*'allgather_'"),
        (sends_alone, ReplicaError, r"ranks 0 and 1 do not make the same model at .*got nothing from rank 0"),
        (sends_other_shapes, ReplicaError, r"got torch.float32 of shape \(1,\) from rank 0"),
    ],
)
def test_collectives_while_the_model_is_made(model: Any, kind: type[Error], told: str) -> None:
    with pytest.raises(kind, match=told):
        bridge.trace_step(updated(plain), model, sgd, batch_of, replicas=2)


def test_broadcasts_of_other_groups_arrive() -> None:
    """Ranks of pairs start from the values of their pair's first rank."""

    def model() -> Any:
        torch.manual_seed(dist.get_rank())
        pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]
        made = wrapped.Two()
        for p in made.parameters():
            dist.broadcast(p.data, 2 * (dist.get_rank() // 2), group=pairs[dist.get_rank() // 2])
        return made

    proof = bridge.trace_step(updated(plain), model, sgd, batch_of, replicas=4).prove()
    assert {str(each.declared) for each in proof.states} == {"{0,1}{2,3}"}
    assert len(proof.undeclared) == 4


# States that start apart


def test_undeclared_states_are_a_cause() -> None:
    def made(**options: Any) -> Any:
        last: list[Made] = []

        def model() -> Any:
            last[:] = [wrapped.seeded_apart_without()]
            return last[0][0]

        step = updated(wrapped.averaged)
        return bridge.trace_step(step, model, lambda _: last[0][1], batch_of, replicas=2, **options).prove()

    proof = made()
    assert not proof.ok
    assert str(proof).startswith("not ok: 4 states on 2 replicas, none drifts, 4 undeclared states")
    assert (
        "'a.weight', 'a.bias', 'b.weight', 'b.bias': initial values differ between ranks" in proof.problems[0]
    )
    assert "groups=" in proof.problems[0]
    # Members of an ensemble whose gradients are averaged: equal where it is declared, and hardly meant.
    assert made(groups={"*": [0, 1]}).verdict == "suspicious"
    some = made(groups={"a.*": range(2)})
    assert {each.path for each in some.undeclared} == {"b.weight", "b.bias"}


def test_state_of_an_optimizer_that_starts_apart() -> None:
    def optimizer(model: Any) -> Any:
        made = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        for p in model.parameters():
            made.state[p]["momentum_buffer"] = torch.full_like(p, float(dist.get_rank()))
        return made

    def model() -> Any:
        torch.manual_seed(0)
        return torch.nn.Linear(4, 2)

    proof = bridge.trace_step(updated(wrapped.averaged), model, optimizer, batch_of, replicas=2).prove()
    assert {each.path for each in proof.undeclared} == {
        "optimizer.weight.momentum_buffer",
        "optimizer.bias.momentum_buffer",
    }
    assert {each.path for each in proof.drifting} == {"weight", "bias"}


def test_page_shows_undeclared_states(tmp_path: Any) -> None:
    def model() -> Any:
        torch.manual_seed(dist.get_rank())
        return torch.nn.Linear(4, 2)

    def step(m: Any, x: Any, y: Any) -> Any:
        return loss(m(x))

    proof = bridge.trace_step(step, model, None, batch_of, replicas=2).prove()
    proof.save_html(tmp_path / "proof.html")
    text = (tmp_path / "proof.html").read_text()
    assert "initial values differ between ranks" in text
    assert '<tr class="yes"><td>weight</td>' in text
