"""Training steps on 4 and 8 replicas, against torch running all ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import popsr
import popsr.bridge.torch as bridge

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

from tests_py.bridge.torch import models  # noqa: E402
from tests_py.bridge.torch.ranks import states_after  # noqa: E402


def sgd(model: Any) -> Any:
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.01)


def adamw(**options: Any) -> Callable[[Any], Any]:
    return lambda model: torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.1, **options)


OPTIMIZERS = {
    "sgd": sgd,
    "nesterov": lambda m: torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9, nesterov=True, foreach=True),
    "sgd fused": lambda m: torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9, nesterov=True, fused=True),
    "plain sgd fused": lambda m: torch.optim.SGD(m.parameters(), lr=0.1, weight_decay=0.1, fused=True),
    "adamw": adamw(foreach=False),
    "adamw foreach": adamw(foreach=True),
    "adamw fused": adamw(fused=True),
    "amsgrad": adamw(amsgrad=True, foreach=True),
    "adam": lambda m: torch.optim.Adam(m.parameters(), lr=0.01, foreach=True),
    "rmsprop": lambda m: torch.optim.RMSprop(m.parameters(), lr=0.01, momentum=0.5, centered=True),
    "adagrad": lambda m: torch.optim.Adagrad(m.parameters(), lr=0.01, foreach=True),
    "adagrad fused": lambda m: torch.optim.Adagrad(m.parameters(), lr=0.01, fused=True),
    "adadelta": lambda m: torch.optim.Adadelta(m.parameters(), lr=0.1),
    "nadam": lambda m: torch.optim.NAdam(m.parameters(), lr=0.01),
    "adamax": lambda m: torch.optim.Adamax(m.parameters(), lr=0.01),
}


def compare(
    step: Any, model: Any, optimizer: Any, batch: Any, world: int, **options: Any
) -> popsr.bridge.BridgedStep:
    """Two steps in popsr are two steps in torch."""
    made = bridge.trace_step(step, model, optimizer, batch, replicas=world, **options)
    made.run()
    got = made.run()
    expected = states_after(step, model, optimizer, batch, world)
    assert set(expected) <= set(got)
    for path, rows in expected.items():
        wanted = np.stack(rows)
        scale = max(float(np.abs(wanted).max()), 1e-3)
        assert np.abs(got[path] - wanted).max() <= 1e-5 * scale, path
    return made


@pytest.mark.share(4)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers(name: str) -> None:
    made = compare(models.data_parallel(), models.mlp, OPTIMIZERS[name], models.labelled, 4)
    assert made.prove().ok


def test_mlp_on_8_replicas() -> None:
    assert compare(models.data_parallel(), models.mlp, sgd, models.labelled, 8).prove().ok


@pytest.mark.parametrize("foreach", [pytest.param(False, marks=pytest.mark.slow), True])
def test_gpt(foreach: bool) -> None:
    made = compare(models.data_parallel(), models.gpt, adamw(foreach=foreach, eps=1e-3), models.tokens, 4)
    assert made.prove().ok


def test_forgotten_sum_makes_exactly_its_parameter_drift() -> None:
    def reduce(name: str, grad: Any) -> Any:
        return grad if name == "blocks.0.3.0.weight" else models.average(name, grad)

    made = bridge.trace_step(
        models.data_parallel(reduce), models.gpt, adamw(), models.tokens, replicas=4, ranks="first"
    )
    proof = made.prove()
    forgotten = "blocks.0.3.0.weight"
    assert {each.path for each in proof.drifting} == {
        forgotten,
        f"optimizer.{forgotten}.exp_avg",
        f"optimizer.{forgotten}.exp_avg_sq",
    }
    assert "models.py" in str(proof.explain(forgotten))


PAIRS = [[0, 1], [2, 3]]
PARTS = [[0, 2], [1, 3]]


def test_tensor_parallel() -> None:
    """Pairs of ranks split a layer and share their data; a pair averages its gradients with the other."""
    made = compare(
        models.data_parallel(models.across_pairs),
        models.SplitMlp,
        sgd,
        _of_pairs,
        4,
        groups={"[xy]": PAIRS, "first.*": PARTS, "second.*": PARTS},
    )
    proof = made.prove()
    assert proof.ok, str(proof)
    assert str(proof.value("first.weight").proved) == "{0,2}{1,3}"
    assert str(proof.value("inner.weight").proved) == "{0,1,2,3}"


def test_forgotten_sum_of_tensor_parallelism() -> None:
    made = bridge.trace_step(
        models.data_parallel(models.across_pairs),
        lambda: models.SplitMlp(forget=True),
        sgd,
        _of_pairs,
        replicas=4,
        groups={"x": PAIRS, "y": PAIRS},
    )
    proof = made.prove()
    assert {each.path for each in proof.drifting} == {
        f"{start}inner.{name}{end}"
        for name in ("weight", "bias")
        for start, end in (("", ""), ("optimizer.", ".momentum_buffer"))
    }


def _of_pairs(rank: int) -> Any:
    return models.labelled(rank // 2)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, of its compiler
def test_compiled_module() -> None:
    made = bridge.trace_step(
        models.data_parallel(), lambda: torch.compile(models.mlp()), sgd, models.labelled, replicas=2
    )
    plain = bridge.trace_step(models.data_parallel(), models.mlp, sgd, models.labelled, replicas=2)
    got, expected = made.run(), plain.run()
    assert set(got) == set(expected)
    for path, rows in expected.items():
        np.testing.assert_array_equal(got[path], rows, err_msg=path)


def test_one_replica() -> None:
    assert compare(models.data_parallel(), models.mlp, sgd, models.labelled, 1).prove().ok


def test_checkpointed_activations() -> None:
    class Checkpointed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = models.mlp()

        def forward(self, x: Any) -> Any:
            return checkpoint(self.inner, x, use_reentrant=False)

    assert compare(models.data_parallel(), Checkpointed, sgd, models.labelled, 2).prove().ok


def test_autocast_and_numbers_of_the_step() -> None:
    def step(model: Any, optimizer: Any, x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        for p in model.parameters():
            torch.distributed.all_reduce(p.grad, torch.distributed.ReduceOp.AVG)
        optimizer.step()
        return {"loss": loss.item(), "twice": 2 * loss.item()}

    made = bridge.trace_step(step, models.mlp, sgd, models.labelled, replicas=2)
    assert made.prove().ok
    got = made.run()
    expected = states_after(step, models.mlp, sgd, models.labelled, 2, times=1)
    for path, rows in expected.items():
        np.testing.assert_allclose(got[path], np.stack(rows), atol=1e-2)
    np.testing.assert_array_equal(got["result['twice']"], 2 * got["result['loss']"])


def test_parameters_that_are_assigned() -> None:
    def step(model: Any, _optimizer: Any, x: Any, y: Any) -> Any:
        loss = torch.nn.functional.cross_entropy(model(x), y)
        names, ps = zip(*model.named_parameters(), strict=True)
        with torch.no_grad():
            for name, grad in zip(names, torch.autograd.grad(loss, ps), strict=True):
                layer = model.get_submodule(name.split(".")[0])
                if name.endswith("bias"):
                    layer.bias -= 0.1 * models.average(name, grad)
                else:
                    layer.weight = nn.Parameter(layer.weight - 0.1 * models.average(name, grad))
        return loss

    assert compare(step, models.mlp, sgd, models.labelled, 2).prove().ok


class Normed(nn.Module):
    def __init__(self, norm: Any) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(6, 8), norm(8), nn.Linear(8, 4)

    def forward(self, x: Any) -> Any:
        return self.last(self.norm(self.first(x)))


def test_synchronised_batch_norm() -> None:
    """Rows of two ranks are normalised as those of one rank that has both."""

    def run(norm: Any, batch: Any, world: int) -> Any:
        made = bridge.trace_step(
            models.data_parallel(), lambda: models.seeded(Normed(norm)), sgd, batch, replicas=world
        )
        assert made.prove().ok
        made.run()
        return made.run()

    got = run(nn.SyncBatchNorm, models.labelled, 2)
    both = [torch.cat(each) for each in zip(*map(models.labelled, range(2)), strict=True)]
    expected = run(nn.BatchNorm1d, lambda _rank: both, 1)
    for path in ("first.weight", "norm.weight", "norm.running_mean", "norm.running_var", "last.bias"):
        np.testing.assert_allclose(got[path][1], expected[path], rtol=1e-4, atol=1e-5, err_msg=path)
    local = bridge.trace_step(
        models.data_parallel(),
        lambda: models.seeded(Normed(nn.BatchNorm1d)),
        sgd,
        models.labelled,
        replicas=2,
    )
    drifting = {each.path for each in local.prove().drifting}
    assert drifting == {"norm.running_mean", "norm.running_var"}


def test_distributed_data_parallel() -> None:
    def model() -> Any:
        return torch.nn.parallel.DistributedDataParallel(models.mlp())

    made = bridge.trace_step(models.plain_step, model, sgd, models.labelled, replicas=4)
    made.run()
    got = made.run()
    expected = states_after(models.data_parallel(), models.mlp, sgd, models.labelled, 4)
    for path, rows in expected.items():
        name = path.replace("optimizer.", "optimizer.module.") if path.startswith("opt") else f"module.{path}"
        np.testing.assert_allclose(got[name], np.stack(rows), rtol=1e-5, atol=1e-6)
    assert made.prove().ok
