"""Steps with optimisers, schedulers, scalers and averages against processes of gloo: values, and claims by bits."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import popsr
import popsr.bridge.torch as bridge
from popsr.errors import UnsupportedError

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402

from tests_py.bridge.torch import gloo  # noqa: E402
from tests_py.bridge.torch.optimisers.cases import (  # noqa: E402
    CASES,
    DRIFTING,
    OPTIMISERS,
    WORLD,
    Net,
    average,
    batch_of,
    run_rank,
    trained,
)

_FLOATS = {
    "torch.float32": np.float32,
    "torch.float64": np.float64,
    "torch.int64": np.int64,
    "torch.int32": np.int32,
}


def array(bits: gloo.Bits) -> Any:
    kind, shape, data = bits
    return np.frombuffer(data, _FLOATS[kind]).reshape(shape)


def check(name: str) -> None:
    times = 8 if "RAdam" in name else 4  # it begins another rule with its sixth step
    case = OPTIMISERS[name] if name in OPTIMISERS else CASES[name]()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = bridge.trace_step(
            case.step,
            case.model,
            case.optimizer,
            lambda rank: (batch_of(rank, 0, overflows=False),),
            replicas=WORLD,
        )
        proof = made.prove()
        assert proof.ok is (name not in DRIFTING)
        real = gloo.run(WORLD, run_rank, name, times)
        numbers = [
            each.path for each in made.arguments if each.path.startswith("optimizer.param_groups[0].lr")
        ]
        rough = 0.02 if "autocast" in name else None  # sums of bf16 are not in torch's order
        for time in range(times):
            rows = np.stack([batch_of(rank, time, overflows=case.overflows).numpy() for rank in range(WORLD)])
            got = made.run({"x": rows})
            for path, bits in real[0][time].items():
                label = proof.value(path).proved.labels
                if label[0] == label[1]:
                    assert bits == real[1][time][path], (path, time)
                if not numbers:  # a run has the numbers of schedulers as they were
                    wanted = np.stack([array(of_rank[time][path]) for of_rank in real])
                    np.testing.assert_allclose(
                        got[path], wanted, rtol=rough or 2e-5, atol=rough or 1e-6, err_msg=f"{path} {time}"
                    )
    if name in DRIFTING:
        assert any(own[path] != other[path] for own, other in zip(*real, strict=True) for path in own)


def _cases() -> list[Any]:
    """Each second case is tried in each run, and those that drift; the nightly set tries all."""
    slow = pytest.mark.slow
    return [
        pytest.param(name, marks=() if number % 2 == 0 or name in DRIFTING else slow)
        for number, name in enumerate(CASES)
    ]


@pytest.mark.share(6)
@pytest.mark.parametrize("name", _cases())
def test_as_real_ranks(name: str) -> None:
    check(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", OPTIMISERS)
def test_optimisers_as_real_ranks(name: str) -> None:
    check(name)


LOG: list[float] = []
STATE = {"step": 0}


def reads_count(m: Any, o: Any, x: Any) -> None:
    trained(m, o, x)
    o.scheduler.step()
    if o.scheduler.last_epoch % 10 == 0:
        dist.all_reduce(m.out.bias.data)


def reads_log(m: Any, o: Any, x: Any) -> None:
    trained(m, o, x)
    LOG.append(m.out.bias.sum().item())
    if len(LOG) % 100 == 0:
        m.out.bias.data.add_(x.sum())


def counts_in_dictionary(m: Any, o: Any, x: Any) -> None:
    trained(m, o, x)
    STATE["step"] += 1


def sets_rate(m: Any, o: Any, x: Any) -> None:
    trained(m, o, x)
    o.scheduler.step()
    o.param_groups[0]["lr"] = 0.1 if dist.get_rank() else 0.2  # 0.1 is what it was


def schedules_alone(m: Any, o: Any, x: Any) -> None:
    trained(m, o, x)
    if x.sum() > 1:
        o.scheduler.step()


def plateau(m: Any, o: Any, x: Any) -> None:
    trained(m, o, x)
    o.plateau.step(m(x).sum())


def as_float(m: Any, o: Any, x: Any) -> None:
    trained(m, o, x)
    print(float(m.out.bias.sum()))


def leaves_alone(m: Any, o: Any, x: Any) -> None:
    o.zero_grad()
    loss = m(x).square().mean()
    if not torch.isfinite(loss):
        return
    trained(m, o, x)


def asks_each(m: Any, o: Any, x: Any) -> None:
    for _ in range(5):
        x = x + 1
        if x.sum() > 3:
            m.out.bias.data.add_(1)


def sets(*rates: Callable[[float], float] | None) -> Callable[..., None]:
    """A step that sets the rate before and after its scheduler does."""

    def step(m: Any, o: Any, x: Any) -> None:
        trained(m, o, x)
        for number, rate in enumerate(rates):
            for group in o.param_groups:
                group["lr"] = group["lr"] if rate is None else rate(group["lr"])
            if number == 0:
                o.scheduler.step()

    return step


def own(_rate: float) -> float:
    return 0.1 * (1 + dist.get_rank())


def changes_scheduler(m: Any, o: Any, x: Any) -> None:
    trained(m, o, x)
    o.scheduler.step()
    o.scheduler.lr_lambdas = [lambda e: 0.5 ** (e * dist.get_rank())]


def changes_list_of_scheduler(m: Any, o: Any, x: Any) -> None:
    trained(m, o, x)
    o.scheduler.step()
    o.scheduler.lr_lambdas[0] = lambda e: 0.5 ** (e * dist.get_rank())


def writes_rate(m: Any, o: Any, x: Any) -> None:
    trained(m, o, x)
    o.param_groups[0]["lr"].mul_(1 + dist.get_rank())
    o.scheduler.step()


def drops_parameter(m: Any, o: Any, x: Any) -> None:
    trained(m, o, x)
    if dist.get_rank() == 1:
        o.param_groups[0]["params"].pop()


def drops_where_data_says(m: Any, o: Any, x: Any) -> None:
    trained(m, o, x)
    if x.sum() > 0:
        o.param_groups[0]["params"] = o.param_groups[0]["params"][:1]


def loads_groups(m: Any, o: Any, x: Any) -> None:
    trained(m, o, x)
    o.load_state_dict(o.state_dict())


def forgets_state(m: Any, o: Any, x: Any) -> None:
    trained(m, o, x)
    o.state.clear()


BESIDE = r"sets an option of the optimizer that its scheduler sets, too, got 'optimizer.param_groups\[0\].lr"
PARAMETERS = r"changes which parameters the optimizer has, got groups of \[4\] and then of "
REFUSED = {
    "parameter dropped": (drops_parameter, rf"{PARAMETERS}\[3\]"),
    "parameters dropped by data": (drops_where_data_says, rf"{PARAMETERS}\[1\]"),
    "groups loaded": (loads_groups, rf"{PARAMETERS}\[4\]"),
    "state removed": (
        forgets_state,
        "removes state of the optimizer, got optimizer.hidden.weight.momentum_buffer",
    ),
    "rate before a scheduler": (sets(own), BESIDE),
    "rate after a scheduler": (sets(None, own), BESIDE),
    "rate times that of a scheduler": (sets(lambda rate: rate * own(rate)), BESIDE),
    "scheduler changed": (
        changes_scheduler,
        "a scheduler is made or changed in the step at .* got 'lr_lambdas'",
    ),
    "list of a scheduler": (
        changes_list_of_scheduler,
        "a scheduler is made or asked in the step at .* got 'lr_lambdas'",
    ),
    "count of a scheduler": (
        reads_count,
        "a scheduler is made or asked in the step at .* got 'last_epoch' of LambdaLR",
    ),
    "length of a log": (reads_log, r"the step changes 'len\(LOG\)' each time"),
    "count in a dictionary": (counts_in_dictionary, "the step changes .* each time, got 1 and then 2"),
    "rate set after the scheduler": (
        sets_rate,
        r"an option of the optimizer that its scheduler sets, too, got 'optimizer.param_groups\[0\].lr'",
    ),
    "scheduler on one way": (
        schedules_alone,
        "a branch at .* steps of schedulers, got a truth value that may differ between ranks",
    ),
    "ReduceLROnPlateau": (
        plateau,
        "a scheduler is given a value at .* got ReduceLROnPlateau.step of an argument",
    ),
    "float": (as_float, r"Python needs a value of the data at .* got float\(...\)"),
    "collectives on one way": (
        leaves_alone,
        "a branch at .* has other collectives on one way than on the other",
    ),
    "too many branches": (asks_each, "got more than 16 ways through one step"),
}


def with_schedulers(m: Any) -> Any:
    made = torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9)
    made.scheduler = torch.optim.lr_scheduler.LambdaLR(made, lambda e: 0.5**e)
    made.plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(made)
    return made


@pytest.mark.share(2)
@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    step, text = REFUSED[name]
    model = CASES["groups"]().model
    with pytest.raises(UnsupportedError, match=text):
        bridge.trace_step(step, model, with_schedulers, torch.ones(3, 4), replicas=WORLD)
    assert not LOG
    assert STATE == {"step": 0}


def test_tensor_beside_scheduler() -> None:
    model = CASES["groups"]().model

    def optimizer(m: Any) -> Any:
        made = torch.optim.SGD(m.parameters(), lr=torch.tensor(0.1))
        made.scheduler = torch.optim.lr_scheduler.ExponentialLR(made, 0.5)
        return made

    with pytest.raises(UnsupportedError, match=BESIDE):
        bridge.trace_step(writes_rate, model, optimizer, torch.ones(3, 4), replicas=WORLD)


class Paired(Net):
    """A model with the process groups of two pairs of ranks."""

    def __init__(self) -> None:
        super().__init__()
        self.pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]


def test_ways_of_ranks_in_groups() -> None:
    """Ranks of different pairs take the same ways, each with a collective of the rank's own pair."""

    def step(m: Any, o: Any, x: Any) -> None:
        o.zero_grad()
        m(x).square().mean().backward()
        average(m)
        if torch.isfinite(m.out.bias.grad).all():
            o.step()
        seen = x.sum()
        dist.all_reduce(seen, group=m.pairs[dist.get_rank() // 2])
        with torch.no_grad():
            m.hidden.bias.add_(seen)

    proof = bridge.trace_step(step, Paired, CASES["groups"]().optimizer, torch.ones(3, 4), replicas=4).prove()
    assert str(proof.value("hidden.bias").proved) == "{0,1}{2,3}"
    assert str(proof.value("hidden.weight").proved) == "{0,1,2,3}"


def test_truth_of_nan() -> None:
    """A number that is not itself is none that is known: torch takes it for known."""

    def step(m: Any, x: Any) -> None:
        value = m(x).sum().item()
        if value != value:
            with torch.no_grad():
                m.weight.add_(1)

    proof = bridge.trace_step(step, nn.Linear(4, 2), None, torch.ones(3, 4), replicas=WORLD).prove()
    assert [each.path for each in proof.drifting] == ["weight"]


def test_ways_that_raise_are_left_out() -> None:
    def step(m: Any, o: Any, x: Any) -> None:
        trained(m, o, x)
        assert torch.isfinite(m.out.bias).all(), "weights are not finite"

    case = CASES["groups"]()
    made = bridge.trace_step(step, case.model, case.optimizer, torch.ones(3, 4), replicas=WORLD)
    assert isinstance(made, popsr.bridge.BridgedStep)
    assert made.prove().ok
