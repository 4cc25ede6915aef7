"""Ops that only some ranks run: what is proved equal is so on ranks of gloo, and values are those of each rank."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import popsr
import popsr.bridge.torch as bridge
from popsr.errors import Error

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn.parallel import DistributedDataParallel as DDP  # noqa: E402, N817

from tests_py.bridge.torch import gloo  # noqa: E402
from tests_py.bridge.torch.claims import fixed  # noqa: E402
from tests_py.bridge.torch.wrappers.wrapped import batch_of, loss  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")  # of torch, about broadcast_buffers=

WORLD = 4
Body = Callable[[Any, Any, Any, Any], Any]


class Averaged(nn.Module):
    """Two layers beside an average of the first one's weight, and numbers for a log."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 2)
        fixed(self)
        for name, start in (("ema", torch.zeros(4, 4)), ("seen", torch.zeros(())), ("other", torch.ones(4))):
            self.register_buffer(name, start)

    def forward(self, x: Any) -> Any:
        return self.b(torch.tanh(self.a(x)))


def rank() -> int:
    return dist.get_rank()


def model() -> Any:
    return DDP(Averaged(), broadcast_buffers=False)


def sgd(m: Any) -> Any:
    return torch.optim.SGD(m.parameters(), lr=0.01)


def stepped(m: Any, optimizer: Any, x: Any) -> Any:
    optimizer.zero_grad()
    made = loss(m(x))
    made.backward()
    optimizer.step()
    return made.detach()


@torch.no_grad()
def averaged(m: Any, on: bool) -> None:
    if on:
        m.module.ema.lerp_(m.module.a.weight, 0.1)


def kept_by_first(m: Any, optimizer: Any, x: Any, y: Any) -> None:
    stepped(m, optimizer, x)
    averaged(m, rank() == 0)


def kept_by_others(m: Any, optimizer: Any, x: Any, y: Any) -> None:
    stepped(m, optimizer, x)
    averaged(m, rank() > 1)


def copied_back(m: Any, optimizer: Any, x: Any, y: Any) -> None:
    kept_by_first(m, optimizer, x, y)
    if rank() == 0:
        m.module.a.weight.data.copy_(m.module.ema)


def copied_and_sent(m: Any, optimizer: Any, x: Any, y: Any) -> None:
    copied_back(m, optimizer, x, y)
    dist.broadcast(m.module.a.weight.data, 0)


def logged(m: Any, optimizer: Any, x: Any, y: Any) -> None:
    """The loss is summed over ranks, and read by the first alone."""
    made = stepped(m, optimizer, x)
    dist.all_reduce(made)
    if rank() == 0:
        m.module.seen.add_(made / WORLD)


def printed(m: Any, optimizer: Any, x: Any, y: Any) -> None:
    made = stepped(m, optimizer, x)
    if rank() == 0:
        (made * 2 + m.module.a.weight.abs().max()).detach()


def clipped_apart(m: Any, optimizer: Any, x: Any, y: Any) -> None:
    optimizer.zero_grad()
    loss(m(x)).backward()
    if rank() == 3:
        m.module.a.weight.grad.mul_(0.5)
    optimizer.step()


def before_the_mean(m: Any, optimizer: Any, x: Any, y: Any) -> None:
    """Some ranks change their data, which disappears in the mean."""
    stepped(m, optimizer, x.flip(0) * 2 if rank() == 2 else x)


def other_layers(m: Any, optimizer: Any, x: Any, y: Any) -> None:
    with torch.no_grad():
        if rank() % 2:
            m.module.other.copy_(m.module.a(y)[0].relu())
        else:
            m.module.other.copy_(y.sum(0).exp().add(1).log())


def first_of_several(m: Any, optimizer: Any, x: Any, y: Any) -> None:
    """One op of a loop is left out on one rank; the others stay equal."""
    with torch.no_grad():
        for number, p in enumerate(m.parameters()):
            if number or rank() != 1:
                p.mul_(0.5)


def parts(m: Any, optimizer: Any, x: Any, y: Any) -> None:
    """Ranks choose between results of an op with several."""
    low, high = m.module.a.weight.detach().sort(dim=rank() % 2)
    m.module.ema.copy_(low if rank() < 2 else high.float())


def constants_of_some(m: Any, optimizer: Any, x: Any, y: Any) -> None:
    """Tensors that the step makes of numbers, on some ranks alone: PyTorch warned of these in graphs of all ranks."""
    with torch.no_grad():
        if rank() > 2:
            m.module.seen.add_(torch.tensor([2.0, 3.0]).sum() * torch.tensor(4.0))


ROWS: dict[str, tuple[Body, set[str]]] = {
    "constants of some": (constants_of_some, {"seen"}),
    "kept by the first": (kept_by_first, {"ema"}),
    "kept by others": (kept_by_others, {"ema"}),
    "copied back": (copied_back, {"ema", "a.weight"}),
    "copied back and sent": (copied_and_sent, {"ema"}),
    "logged": (logged, {"seen"}),
    "printed": (printed, set()),
    "clipped apart": (clipped_apart, {"a.weight"}),
    "before the mean": (before_the_mean, set()),
    "other layers": (other_layers, {"other"}),
    "first of several": (first_of_several, {"a.weight"}),
    "parts": (parts, {"ema"}),
}


def outcome(name: str, times: int) -> dict[str, gloo.Bits]:
    made = model()
    optimizer = sgd(made)
    for _ in range(times):
        ROWS[name][0](made, optimizer, *batch_of(rank()))
    return gloo.states(made)


def outcomes(times: int) -> dict[str, dict[str, gloo.Bits]]:
    return {name: outcome(name, times) for name in ROWS}


@functools.cache
def real() -> list[dict[str, dict[str, gloo.Bits]]]:
    return gloo.run(WORLD, outcomes, 2)


def array_of(bits: gloo.Bits) -> Any:
    return np.frombuffer(bits[2], np.float32).reshape(bits[1])


@pytest.mark.share(2)
@pytest.mark.parametrize("name", ROWS)
def test_claims_and_values_are_those_of_ranks(name: str) -> None:
    body, expected = ROWS[name]
    made = bridge.trace_step(body, model, sgd, batch_of, replicas=WORLD)
    proof = made.prove()
    assert {each.path.removeprefix("module.") for each in proof.drifting} == expected
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", popsr.ReplicaWarning)
        for _ in range(2):
            got = made.run()
    for path in real()[0][name]:
        rows = [each[name][path] for each in real()]
        wanted = np.stack([array_of(each) for each in rows])
        np.testing.assert_allclose(np.broadcast_to(got[path], wanted.shape), wanted, rtol=1e-5, atol=1e-6)
        for block in proof.value(path).proved.blocks:
            assert len({rows[member] for member in block}) == 1


def test_states_that_are_declared_apart_may_differ() -> None:
    proof = bridge.trace_step(
        kept_by_first, model, sgd, batch_of, replicas=WORLD, groups={"module.ema": range(WORLD)}
    ).prove()
    assert proof.verdict != "not ok"
    assert {lint.code for lint in proof.suspicious} == {"L7"}  # each rank keeps weights that all have updated


def reduced_by_first(m: Any, optimizer: Any, x: Any, y: Any) -> None:
    made = stepped(m, optimizer, x)
    if rank() == 0:
        dist.all_reduce(made)


def drawn_by_first(m: Any, optimizer: Any, x: Any, y: Any) -> None:
    if rank() == 0:
        torch.rand(3)
    stepped(m, optimizer, nn.functional.dropout(x))


def drawn_last_by_first(m: Any, optimizer: Any, x: Any, y: Any) -> None:
    stepped(m, optimizer, nn.functional.dropout(x))
    if rank() == 0:
        m.module.seen.add_(torch.rand(()))


def returned_by_first(m: Any, optimizer: Any, x: Any, y: Any) -> Any:
    made = stepped(m, optimizer, x)
    return made if rank() == 0 else None


@pytest.mark.share(2)
@pytest.mark.parametrize(
    ("body", "told"),
    [
        (
            reduced_by_first,
            r"ranks 0 and 1 take part in different collectives, got _c10d_functional.all_reduce.default of rank 0 at "
            r".*test_some_ranks.py:\d+ after the 4 that both run, where rank 1 had ended",
        ),
        (
            drawn_by_first,
            r"ranks 0 and 1 draw different random numbers, got aten.rand.* at .*test_some_ranks",
        ),
        (drawn_last_by_first, r"ranks 0 and 1 draw different random numbers, .* and nothing at no line"),
        (returned_by_first, r"ranks 0 and 1 return different results"),
    ],
)
def test_what_others_wait_for_is_refused(body: Body, told: str) -> None:
    with pytest.raises(Error, match=told):
        bridge.trace_step(body, model, sgd, batch_of, replicas=WORLD, equal=["random seed"])
