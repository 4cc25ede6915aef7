"""Texts that refuse sharded steps, and the hint about data in a group that splits layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import popsr.bridge.torch as bridge
from popsr.errors import UnsupportedError

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.distributed.fsdp import fully_shard  # noqa: E402
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor  # noqa: E402
from torch.distributed.tensor.experimental import context_parallel  # noqa: E402

from tests_py.bridge.torch import models  # noqa: E402
from tests_py.bridge.torch.sharded import parallel_forms as parallel  # noqa: E402
from tests_py.bridge.torch.sharded.forms import ignoring, mesh_of, net, then  # noqa: E402
from tests_py.bridge.torch.traced.test_steps import adamw, sgd  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:FSDP2-wrapped module")


def switched(name: str, value: Any) -> Callable[..., Any]:
    """A step that begins with a call of the module's method."""

    def step(model: Any, optimizer: Any, x: Any, y: Any) -> None:
        getattr(model, name)(value)
        models.plain_step(model, optimizer, x, y)

    return step


def then_switched(model: Any, optimizer: Any, x: Any, y: Any) -> None:
    models.plain_step(model, optimizer, x, y)
    model.set_force_sum_reduction_for_comms(True)
    model.set_gradient_divide_factor(3.0)


def then_evaluated(model: Any, optimizer: Any, x: Any, y: Any) -> Any:
    models.plain_step(model, optimizer, x, y)
    with torch.no_grad():
        return model(x)


def decayed_as_data(model: Any, _optimizer: Any, x: Any, _y: Any) -> Any:
    with torch.no_grad():
        made = model(x)
    for p in model.parameters():
        p.data.mul_(0.9)
    return made


class Outside(nn.Module):
    """A module whose teacher is none of its parts."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = net()()
        self.teacher = [net()()]

    def forward(self, x: Any) -> Any:
        return self.inner(x) + self.teacher[0](x)


def odd(cut: bool = False) -> Any:
    made = models.seeded(models.Mlp(7))
    if not cut:
        return fully_shard(made, mesh=mesh_of(2))
    weight = distribute_tensor(made.first.weight.detach(), mesh_of(2), [Shard(0)])
    made.first.weight = nn.Parameter(weight)
    return made


def in_context(model: Any, _optimizer: Any, x: Any, _y: Any) -> Any:
    with context_parallel(model.mesh, buffers=[x], buffer_seq_dims=[0]):
        return model(x)


def with_mesh() -> Any:
    made = models.mlp()
    made.mesh = mesh_of(2)
    return made


def replicated() -> Any:
    from torch.distributed._composable.replicate import replicate

    return replicate(models.mlp())


HERE = r"test_refused.py:\d+"
CUT = (
    r"'first.weight' is not cut into equal parts, got axis 0 of \(7, 6\) over 2 ranks, expected a length that"
)
LEFT = "gradients of fully_shard are not reduced when the step ends, got "
KEPT = r"old values of 'first.weight' are still gathered .* expected reshard\(\) of the module"
PLAIN = models.plain_step
REFUSED: dict[str, tuple[Any, Any, str]] = {
    "parts of different sizes": (odd, PLAIN, CUT),
    "DTensors of different sizes": (lambda: odd(cut=True), PLAIN, CUT),
    "never reduced": (
        net(),
        switched("set_requires_gradient_sync", False),
        LEFT + r"set_requires_gradient_sync\(False\) of 'first.weight', expected a last backward pass",
    ),
    "never reduced over replicas": (
        net(1, 2),
        switched("set_requires_all_reduce", False),
        LEFT + r"set_requires_all_reduce\(False\)",
    ),
    "never resharded": (net(), switched("set_reshard_after_backward", False), KEPT),
    "evaluated last": (net(), then_evaluated, KEPT),
    "written while gathered": (net(), decayed_as_data, KEPT),
    "a switch for the next step": (net(), then_switched, "one step and the next run different ops"),
    "a hook": (
        net(),
        lambda m, *rest: m.set_all_reduce_hook(print),
        rf"FSDPModule.set_all_reduce_hook is not read at .*{HERE}",
    ),
    "a hook from before": (
        then(net(), lambda m: m.set_all_reduce_hook(dist.all_reduce)),
        PLAIN,
        "FSDPModule.set_all_reduce_hook is not followed, got a module on which it was called",
    ),
    "outside of the model": (
        Outside,
        PLAIN,
        rf"a module of fully_shard outside of the model is called at .*{HERE}, got one with 'first.weight'",
    ),
    "context_parallel": (with_mesh, in_context, rf"context_parallel of torch is not read at .*{HERE}"),
    "replicate of DDP": (
        replicated,
        PLAIN,
        r"DDP is not read at .*, got one, expected DistributedDataParallel",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    model, step, told = REFUSED[name]
    with pytest.raises(UnsupportedError, match=told):
        bridge.trace_step(step, model, sgd, models.labelled, replicas=2)


TORCHS: dict[str, tuple[Any, Any, str]] = {
    "foreach over a mixture": (adamw(foreach=True), parallel.words, "got mixed torch.Tensor and DTensor"),
    "fused over a mixture": (adamw(fused=True), parallel.words, "got mixed torch.Tensor and DTensor"),
    "norm of a mixture": (adamw(), parallel.words_clipped_step, "got mixed torch.Tensor and DTensor"),
}


@pytest.mark.share(2)
@pytest.mark.parametrize("name", TORCHS)
def test_errors_of_torch_are_passed_on(name: str) -> None:
    optimizer, step, told = TORCHS[name]
    with pytest.raises(UnsupportedError, match=rf"cannot be traced at .*parallel_forms.py:\d+.*{told}"):
        bridge.trace_step(step, parallel.parallel(), optimizer, parallel.alike, replicas=2)


def test_a_parameter_that_nobody_reduces_drifts() -> None:
    proof = bridge.trace_step(PLAIN, ignoring, sgd, models.labelled, replicas=2).prove()
    assert {each.path for each in proof.drifting if not each.path.startswith("optimizer")} == {
        "first.weight",
        "first.bias",
    }


GROUPS = {
    2: "'x', 'y' differ on each rank, also on ranks that split layers over mesh axis 'tensor', [[0, 1]]: if these "
    "share a batch, as in tensor parallelism, say equal=['x', 'y']",
    4: "'x', 'y' differ on each rank, also on ranks that split layers over mesh axis 'tensor', [[0, 1], [2, 3]]: if "
    "these share a batch, as in tensor parallelism, say groups={'x': [[0, 1], [2, 3]], 'y': [[0, 1], [2, 3]]}",
}


@pytest.mark.share(2)
@pytest.mark.parametrize("world", GROUPS)
def test_data_of_ranks_that_split_layers(world: int) -> None:
    model = parallel.parallel() if world == 2 else parallel.sharded_parallel(2, 2)
    made = bridge.trace_step(parallel.words, model, sgd, *parallel.tokens(0), replicas=world)
    assert made.prove().problems[0] == GROUPS[world]


def test_ranks_that_split_layers_share_their_batch() -> None:
    made = bridge.trace_step(
        parallel.words, parallel.parallel(), sgd, *parallel.tokens(0), replicas=2, groups=parallel.pairs(2)
    )
    assert made.prove().ok


def placed(model: Any, _optimizer: Any, x: Any, _y: Any) -> Any:
    return DTensor.from_local(x, model.mesh, [Replicate()], run_check=False).full_tensor()


def test_a_placement_is_not_taken_for_a_fact() -> None:
    """Values that a DTensor calls replicated may differ: nothing is sent for ``full_tensor``."""
    made = bridge.trace_step(placed, with_mesh, sgd, models.labelled, replicas=2)
    assert str(made.prove().facts.partition(made.results[0].tensor)) == "{0}{1}"
