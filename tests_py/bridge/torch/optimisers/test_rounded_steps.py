"""Proofs of steps with optimisers that round stochastically, beside the bits of processes of gloo."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import popsr  # noqa: E402
import popsr.sr.torch as rounding  # noqa: E402
from tests_py.bridge.torch import gloo  # noqa: E402

WORLD = 2
OPTIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "SGD": ("SGD", {"momentum": 0.9, "dampening": 0.1}),
    "Lion": ("Lion", {"weight_decay": 0.1}),
    "Adafactor": ("Adafactor", {}),
    "Adam": ("Adam", {"weight_decay": 0.1}),
    "AdamW": ("AdamW", {}),
    "AMSGrad": ("AdamW", {"amsgrad": True, "moments": torch.bfloat16}),
    "Muon": ("Muon", {}),
}


def plain() -> Any:
    """Matrices alone, as Muon has them, with weights that rounding changes."""
    net = torch.nn.Sequential(torch.nn.Linear(8, 8, bias=False), torch.nn.Linear(8, 4, bias=False))
    for k, p in enumerate(net.parameters()):
        p.data = torch.linspace(-1, 1 + k, p.numel()).view(p.shape)
    return net.bfloat16()


def reduced() -> Any:
    return torch.nn.parallel.DistributedDataParallel(plain())


def sharded() -> Any:
    from torch.distributed.fsdp import fully_shard

    return fully_shard(plain())


def rank() -> int:
    return torch.distributed.get_rank()


def rows(number: int) -> tuple[Any]:
    return (torch.linspace(-1, 1 - 3 * number, 32).view(4, 8).bfloat16(),)


def step(model: Any, optimizer: Any, x: Any) -> Any:
    optimizer.zero_grad()
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    return loss.detach()


def scheduled(model: Any, optimizer: Any, x: Any) -> Any:
    found = step(model, optimizer, x)
    optimizer.scheduler.step()
    return found


def adamw(model: Any, **options: Any) -> Any:
    return rounding.AdamW(model.parameters(), **{"lr": 0.01, "seed": 0, **options})


def with_schedule(model: Any) -> Any:
    made = adamw(model)
    made.scheduler = torch.optim.lr_scheduler.OneCycleLR(made, 0.1, total_steps=50)
    return made


def of_kind(what: str) -> Callable[[Any], Any]:
    kind, options = OPTIONS[what]
    return lambda model: getattr(rounding, kind)(model.parameters(), lr=0.01, seed=2**64 - 1, **options)


# Of each case the step, the model, the optimiser and a part of the finding; none if equal weights stay equal.
CASES: dict[str, tuple[Any, Any, Any, str]] = {
    **{what: (step, reduced, of_kind(what), "") for what in OPTIONS},
    "schedule": (scheduled, reduced, with_schedule, ""),
    "tensor as rate": (step, reduced, lambda model: adamw(model, lr=torch.tensor(0.01)), ""),
    "another seed on each rank": (
        step,
        reduced,
        lambda model: adamw(model, seed=rank()),
        r"'value of each rank at .*test_rounded_steps.py:\d+' is declared equal nowhere",
    ),
    "another rate on each rank": (
        step,
        reduced,
        lambda model: adamw(model, lr=0.01 * (1 + rank())),
        r"'value of each rank at .*test_rounded_steps.py:\d+' is declared equal nowhere",
    ),
    "another option on each rank": (
        step,
        reduced,
        lambda model: adamw(model, maximize=rank() == 1),
        r"'value of each rank at .*test_rounded_steps.py:\d+' is declared equal nowhere",
    ),
    "another tensor on each rank": (
        step,
        reduced,
        lambda model: adamw(model, lr=torch.tensor(0.01 * (1 + rank()))),
        r"optimizer.param_groups\[0\].lr",
    ),
    "gradients that are not reduced": (step, plain, adamw, r"each replica has a part of its gradient"),
}


def after_steps(what: str) -> dict[str, gloo.Bits]:
    run, model, optimizer, _ = CASES[what]
    made = model()
    own = optimizer(made)
    for _ in range(3):
        run(made, own, *rows(rank()))
    return {name: gloo.bits(p) for name, p in made.named_parameters()}


@pytest.mark.parametrize("what", CASES)
def test_equal_weights_stay_equal_or_the_proof_says_why_not(what: str) -> None:
    run, model, optimizer, finding = CASES[what]
    proof = popsr.prove(run, model, optimizer, rows, replicas=WORLD)
    assert proof.ok is not bool(finding), proof
    if finding:
        assert any(re.search(finding, each) for each in proof.problems), proof.problems
    truth = gloo.run(WORLD, after_steps, what)
    assert (truth[0] == truth[1]) is proof.ok


def test_the_op_is_named_and_runs_are_refused() -> None:
    proof = popsr.prove(step, reduced, adamw, rows, replicas=WORLD)
    assert [gap.op for gap in proof.gaps] == ["popsr.sr.torch.AdamW.step (a step that rounds)"]
    assert "unsupported" not in repr(proof)
    with pytest.raises(popsr.errors.UnsupportedOpsError, match=r"popsr.sr.torch.AdamW.step"):
        proof.step.run()


def test_parts_of_fully_sharded_parameters() -> None:
    """Each rank has parts of its own; the steps of their replicas are alike."""

    def hybrid() -> Any:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        return fully_shard(plain(), mesh=init_device_mesh("cpu", (2, 2), mesh_dim_names=("r", "s")))

    assert popsr.prove(step, sharded, adamw, rows, replicas=WORLD).ok
    assert popsr.prove(step, hybrid, adamw, rows, replicas=4).ok
    apart = popsr.prove(step, hybrid, lambda model: adamw(model, seed=rank()), rows, replicas=4)
    assert not apart.ok
    with pytest.raises(popsr.errors.Error, match="expected whole parameters"):
        popsr.prove(step, sharded, of_kind("Muon"), rows, replicas=WORLD)
