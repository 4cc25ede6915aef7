"""Claims about a step against torch's ranks: values after some steps, and each claim by bits."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import popsr
import popsr.bridge.torch as bridge
from popsr.bridge import BridgedStep
from tests_py.bridge.torch.ranks import states_after

torch = pytest.importorskip("torch")

__all__ = ["check_claims", "fixed", "rows_of"]


def fixed(module: Any) -> Any:
    """A module whose parameters are the same wherever it is made, without a generator."""
    for number, p in enumerate(module.parameters()):
        p.data = torch.linspace(-1, 1 + number, p.numel()).view(p.shape)
    return module


def rows_of(rank: int) -> tuple[Any]:
    """A batch that differs on each rank."""
    return (torch.ones(8, 4) * (rank + 1) + torch.arange(4.0),)


def check_claims(
    step: Any, model: Callable[[], Any], optimizer: Any, batch: Any = rows_of, world: int = 4, times: int = 3
) -> BridgedStep:
    """Steps of popsr give what torch gives, and what is proved equal has the same bits on torch's ranks."""
    made = bridge.trace_step(step, model, optimizer, batch, replicas=world)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", popsr.ReplicaWarning)  # states drift in most of these steps
        for _ in range(times):
            got = made.run()
    proof = made.prove()
    expected = states_after(step, model, optimizer, batch, world, times=times)
    assert set(expected) <= set(got)
    for path, rows in expected.items():
        wanted = np.stack(rows)
        scale = max(float(np.abs(wanted).max()), 1e-3)
        assert np.abs(got[path] - wanted).max() <= 1e-5 * scale, path
        bits: dict[int, bytes] = {}
        for label, row in zip(proof.value(path).proved.labels, rows, strict=True):
            assert bits.setdefault(label, row.tobytes()) == row.tobytes(), path
    return made
