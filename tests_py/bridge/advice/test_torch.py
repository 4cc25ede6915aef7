"""Advice about steps of PyTorch: wrappers, batch norms, groups, seeds; each compared with the step that follows it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
import torch.nn.functional as F  # noqa: E402, N812
from torch import nn  # noqa: E402
from torch.autograd import Function  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.distributed.tensor.parallel import (  # noqa: E402
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

from popsr.bridge import Proof  # noqa: E402
from popsr.bridge.torch import trace_step  # noqa: E402
from tests_py.bridge.advice.following import differences  # noqa: E402
from tests_py.bridge.torch.models import seeded  # noqa: E402

WORLD = 4


def plain() -> Any:
    return seeded(nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)))


def wrapped() -> Any:
    return DistributedDataParallel(plain())


def normed() -> Any:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))


def normed_wrapped() -> Any:
    return DistributedDataParallel(normed())


def converted() -> Any:
    return DistributedDataParallel(nn.SyncBatchNorm.convert_sync_batchnorm(normed()))


def apart() -> Any:
    torch.manual_seed(dist.get_rank())
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))


def together() -> Any:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))


def together_wrapped() -> Any:
    return DistributedDataParallel(together())


class Noisy(nn.Module):
    """A buffer of random numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.lin = seeded(nn.Linear(4, 3))
        self.register_buffer("noise", torch.zeros(3))

    def forward(self, x: Any) -> Any:
        noise: Any = self.noise
        noise.copy_(torch.rand(3))
        return self.lin(x) + noise


class _Add(Function):
    """The sum over ranks; each has the gradient of its own part."""

    @staticmethod
    def forward(ctx: Any, t: Any) -> Any:
        dist.all_reduce(made := t.clone())
        return made

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return grad


class Shards(nn.Module):
    """Tensor parallelism by hand: each rank has its columns of the first weight, and its rows of the second."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(dist.get_rank())
        self.up, self.down = nn.Linear(4, 2, bias=False), nn.Linear(2, 3, bias=False)

    def forward(self, x: Any) -> Any:
        return _Add.apply(self.down(torch.tanh(self.up(x))))


def parallel() -> Any:
    made = seeded(nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)))
    mesh = init_device_mesh("cpu", (WORLD,), mesh_dim_names=("tp",))
    return parallelize_module(made, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})


def entropy(made: Any, y: Any) -> Any:
    return F.cross_entropy(made, y.argmax(1))


def square(made: Any, y: Any) -> Any:
    return F.mse_loss(made, y)


def mean(made: Any, y: Any) -> Any:
    return ((made - y) ** 2).mean()


def rows(made: Any, y: Any) -> Any:
    return ((made - y) ** 2).sum(1).mean()


def two(made: Any, y: Any) -> Any:
    return F.mse_loss(made, y) + F.cross_entropy(made, y.argmax(1))


def total(made: Any, y: Any) -> Any:
    return F.mse_loss(made, y, reduction="sum")


def of_all(made: Any, y: Any) -> Any:
    return F.cross_entropy(made, y.argmax(1), reduction="sum") / (8 * WORLD)


def half(made: Any, y: Any) -> Any:
    return F.mse_loss(made, y) / 2


def mixed(made: Any, y: Any) -> Any:
    return ((made - y) ** 2).mean() + F.mse_loss(made, y, reduction="sum")


@dataclass(frozen=True)
class Row:
    """A wrong step, what is advised of it, and the step that follows the advice.

    Attributes:
        model: the wrong step's.
        loss: of what the model makes and of labels.
        reduces: True if the step averages gradients itself.
        text: the beginning of the advice; empty if none is to be given.
        right: the model that follows it, if another one does.
        options: of ``trace_step`` that follow it, if these do.
        given: of ``trace_step`` in both.
        optimizer: the optimiser's class.
        is_model: True if the model is given as a module.
    """

    model: Callable[[], Any]
    loss: Callable[[Any, Any], Any] = square
    reduces: bool = False
    text: str = ""
    right: Callable[[], Any] | None = None
    options: dict[str, Any] = field(default_factory=dict)
    given: dict[str, Any] = field(default_factory=dict)
    optimizer: Any = torch.optim.SGD
    is_model: bool = False


WRAP = "wrap the model: DistributedDataParallel(model). Or take the mean over {0,1,2,3} of the gradient of '0.weight', "
CONVERT = "convert batch norms: nn.SyncBatchNorm.convert_sync_batchnorm(model)"
SHARDS = {"up.weight": [[0], [1], [2], [3]], "down.weight": [[0], [1], [2], [3]]}
ROWS = {
    "no reduction": Row(plain, text=WRAP, right=wrapped),
    "entropy": Row(plain, entropy, text=WRAP, right=wrapped),
    "a mean by hand": Row(plain, mean, text=WRAP, right=wrapped),
    "a mean of sums": Row(plain, rows, text=WRAP, right=wrapped),
    "two losses": Row(plain, two, text=WRAP, right=wrapped),
    "Adam": Row(plain, text=WRAP, right=wrapped, optimizer=torch.optim.AdamW),
    "a module": Row(plain, text=WRAP, right=wrapped, is_model=True),
    "a sum of losses": Row(plain, total),
    "a mean of all ranks": Row(plain, of_all),
    "half a mean": Row(plain, half),
    "a sum beside a mean": Row(plain, mixed),
    "local statistics": Row(normed_wrapped, text=CONVERT, right=converted),
    "local statistics of a sum": Row(normed_wrapped, total, text=CONVERT, right=converted),
    "both": Row(normed, text=f"{CONVERT}; {WRAP[:45]}", right=converted),
    "seeds of ranks": Row(apart, reduces=True, text="start from equal values of '", right=together),
    "seeds and no reduction": Row(apart, text=WRAP[:45], right=together_wrapped),
    "shards": Row(
        Shards,
        text=f"declare that shards differ: groups={SHARDS}",
        options={"groups": SHARDS},
        given={"equal": "[xy]"},
    ),
    "a batch for each rank of a layer": Row(
        parallel,
        text="let ranks that split layers share their batch: equal=['x', 'y']",
        options={"equal": ["x", "y"]},
    ),
    "random numbers of ranks": Row(
        Noisy,
        reduces=True,
        text="draw the same random numbers on all ranks",
        options={"equal": ["random seed"]},
    ),
}


def proved(row: Row, model: Callable[[], Any], **options: Any) -> Proof:
    def step(model: Any, optimizer: Any, x: Any, y: Any) -> None:
        optimizer.zero_grad()
        row.loss(model(x), y).backward()
        for p in model.parameters() if row.reduces else ():
            dist.all_reduce(p.grad, dist.ReduceOp.AVG)
        optimizer.step()

    def batch(rank: int) -> Any:
        generator = torch.Generator().manual_seed(rank // 2)
        return torch.randn(8, 4, generator=generator), torch.rand(8, 3, generator=generator)

    given = model() if row.is_model and model is row.model else model
    return trace_step(
        step,
        given,
        lambda m: row.optimizer(m.parameters(), lr=0.1),
        batch,
        replicas=WORLD,
        **row.given | options,
    ).prove()


NIGHTLY = {
    "a mean by hand",
    "two losses",
    "Adam",
    "half a mean",
    "local statistics of a sum",
    "seeds and no reduction",
}
"""Rows that others are like."""


@pytest.mark.share(6)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name in NIGHTLY else []) for name in ROWS]
)
def test_advice(name: str) -> None:
    row = ROWS[name]
    proof = proved(row, row.model)
    assert proof.verdict == "not ok"
    if not row.text:
        assert not proof.advice
        return
    [advice] = proof.advice
    assert str(advice).startswith(row.text)
    right = proved(row, row.right or row.model, **row.options)
    assert right.ok
    assert not differences(advice.step, right.step)


def test_the_model_stays_as_it_is() -> None:
    model = plain()
    kept = {name: t.clone() for name, t in model.state_dict().items()}
    row = Row(lambda: model, is_model=True)
    proof = proved(row, row.model)
    assert proof.advice
    assert all(torch.equal(kept[name], t) for name, t in model.state_dict().items())
    assert all(not p._backward_hooks and not p._post_accumulate_grad_hooks for p in model.parameters())


def test_hooks_are_not_left_out() -> None:
    def make() -> Any:
        made = plain()
        for p in made.parameters():
            p.register_hook(lambda grad: grad * 2)
        return made

    [advice] = proved(Row(make, is_model=True), make).advice
    assert str(advice).startswith("take the mean over {0,1,2,3} of the gradient of")
