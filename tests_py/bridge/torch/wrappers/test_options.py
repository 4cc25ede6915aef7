"""Options and communication hooks of ``DistributedDataParallel``: what is proved equal is so on ranks of gloo."""

from __future__ import annotations

import functools
import re
from typing import Any

import pytest

import popsr.bridge.torch as bridge

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.distributed.algorithms.ddp_comm_hooks import (  # noqa: E402
    default_hooks,
    post_localSGD_hook,
    powerSGD_hook,
)
from torch.distributed.algorithms.join import Join  # noqa: E402
from torch.nn.parallel import DistributedDataParallel as DDP  # noqa: E402, N817

from tests_py.bridge.torch import gloo  # noqa: E402
from tests_py.bridge.torch.wrappers import options, wrapped  # noqa: E402
from tests_py.bridge.torch.wrappers.options import ROWS, hooked  # noqa: E402
from tests_py.bridge.torch.wrappers.wrapped import Made, Two, outcome, plain, sgd, updated  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")  # of torch, about broadcast_buffers=

REFUSED = {
    "static, accumulated": "no forward pass of the wrapper expects",
    "static, two backward passes": "no forward pass of the wrapper expects",
    "static, two forward and backward passes": "no forward pass of the wrapper expects",
    "static, loss of the module": "no forward pass of the wrapper expects",
    "static, forward pass for nothing": "reduces nothing in the first step",
}
"""Rows that torch runs, or fails in its first step, and popsr refuses."""


def all_outcomes() -> dict[str, Any]:
    return {name: outcome(name, ROWS) for name in ROWS}


@functools.cache
def real() -> dict[str, set[str] | str]:
    return wrapped.real_outcomes(all_outcomes)


@pytest.mark.share(4)
@pytest.mark.parametrize("name", ROWS)
def test_equal_where_ranks_are(name: str) -> None:
    found, expected = wrapped.proved_outcome(ROWS[name]), real()[name]
    if name in REFUSED or isinstance(expected, str):
        assert isinstance(found, str), expected
        assert found.startswith("UnsupportedError: trace_step: DistributedDataParallel ")
        assert REFUSED.get(name, "") in found
    else:
        assert found == expected


def test_what_torch_lets_devices_alone_use() -> None:
    """On a CPU torch refuses hooks of bf16, and ``SyncBatchNorm`` in the wrapper."""
    assert wrapped.proved_outcome(hooked(default_hooks.bf16_compress_hook)) == set()
    wrapper = default_hooks.bf16_compress_wrapper(options.untouched)
    assert wrapped.proved_outcome(hooked(wrapper)) == set(all_of_two())

    def made() -> Made:
        norm: Any = nn.SyncBatchNorm
        model = DDP(norm.convert_sync_batchnorm(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))))
        return model, sgd(model), updated(plain)

    assert wrapped.proved_outcome(made) == set()


def all_of_two() -> list[str]:
    return [f"module.{name}" for name, _ in Two().named_parameters()]


# Four ranks


def pairs() -> Made:
    """Wrappers of pairs of ranks, which start from the values of their pair's first."""
    torch.manual_seed(dist.get_rank())
    groups = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    model = DDP(Two(), process_group=groups[dist.get_rank() // 2])
    return model, sgd(model), updated(plain)


def hook_of_pairs() -> Made:
    """Means inside of pairs, in a hook."""
    groups = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    return hooked(default_hooks.allreduce_hook, lambda: groups[dist.get_rank() // 2])()


GROUPED = {"pairs": pairs, "hook of pairs": hook_of_pairs}


def grouped_outcomes() -> dict[str, Any]:
    return {name: outcome(name, GROUPED) for name in GROUPED}


def test_groups_of_ranks() -> None:
    real_ranks = gloo.run(4, grouped_outcomes)
    for name, row in GROUPED.items():
        last: list[Made] = []

        def model(row: Any = row, last: Any = last) -> Any:
            last[:] = [row()]
            return last[0][0]

        def step(*args: Any, last: Any = last) -> Any:
            return last[0][2](*args)

        torch.manual_seed(0)
        optimizer = lambda _, last=last: last[0][1]  # noqa: E731
        made = bridge.trace_step(step, model, optimizer, wrapped.batch_of, replicas=4)
        proof = made.prove()
        for state in proof.states:
            bits = [each[name][state.path] for each in real_ranks]
            labels = state.proved.labels
            assert [labels.index(label) for label in labels] == [bits.index(each) for each in bits]


# Refused


def power() -> Any:
    return powerSGD_hook.PowerSGDState(None, start_powerSGD_iter=2)


def local() -> Any:
    return post_localSGD_hook.PostLocalSGDState(None, None, 100)


@pytest.mark.parametrize(
    ("hook", "state", "told"),
    [
        (options.asks("index"), None, r"got bucket.index, expected bucket.buffer\(\)"),
        (options.asks("is_last"), None, "got bucket.is_last"),
        (options.asks("gradients"), None, "got bucket.gradients"),
        (options.asks("parameters"), None, "got bucket.parameters"),
        (options.sliced, None, "got aten.slice.Tensor, expected ops on elements"),
        (options.sized, None, "got numel of a tensor, expected a hook that does not ask for sizes"),
        (options.by_norm, None, "got aten.linalg_vector_norm.default"),
        (options.counting, lambda: {"calls": 0}, "got a change of 'state.calls'"),
        (options.drawing, None, "got aten.rand_like.default"),
        (powerSGD_hook.powerSGD_hook, power, "communication hook 'powerSGD_hook' of DistributedDataParallel"),
        (post_localSGD_hook.post_localSGD_hook, local, "'post_localSGD_hook'"),
        (lambda _, bucket: None, None, "got NoneType from it, expected a future of a tensor"),
    ],
)
def test_hooks_that_are_refused(hook: Any, state: Any, told: str) -> None:
    found = wrapped.proved_outcome(hooked(hook, state))
    assert isinstance(found, str)
    assert "UnsupportedError: trace_step: communication hook " in found
    assert re.search(told, found), found


def test_trace_inside_of_a_join_is_refused() -> None:
    def made() -> Made:
        model = DDP(Two())
        Join([model]).__enter__()
        return model, sgd(model), updated(plain)

    assert "with join() is not followed" in str(wrapped.proved_outcome(made))
