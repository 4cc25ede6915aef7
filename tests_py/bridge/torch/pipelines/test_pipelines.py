"""Pipelines: what popsr computes and claims of each rank, beside processes of gloo."""

from __future__ import annotations

import fnmatch
import warnings
from typing import Any

import numpy as np
import pytest

import popsr
import popsr.bridge.torch as bridge

torch = pytest.importorskip("torch")

from tests_py.bridge.torch import gloo  # noqa: E402
from tests_py.bridge.torch.pipelines.programs import (  # noqa: E402
    APART,
    PROGRAMS,
    WRONG,
    Layers,
    batch_of,
    optimizer_of,
)

STEPS = 2


def run_rank(name: str, times: int) -> dict[str, gloo.Bits]:
    """States of this rank after some steps."""
    _, make, step = PROGRAMS[name]
    model = make()
    optimizer = optimizer_of(model)
    for _ in range(times):
        step(model, optimizer, *batch_of(torch.distributed.get_rank()))
    return gloo.states(model, optimizer)


def array_of(bits: gloo.Bits) -> np.ndarray[Any, Any]:
    dtype, shape, data = bits
    return np.frombuffer(data, dtype.removeprefix("torch.")).reshape(shape)


@pytest.mark.share(4)
@pytest.mark.parametrize("name", PROGRAMS)
def test_claims(name: str) -> None:
    world, make, step = PROGRAMS[name]
    made = bridge.trace_step(step, make, optimizer_of, batch_of, replicas=world)
    proof = made.prove()
    assert proof.verdict == ("not ok" if name in APART else "ok"), proof.problems
    own = APART.get(name, "")
    assert {value.path for value in proof.drifting} == {
        value.path
        for value in proof.states
        if not value.path.endswith(".step")
        and (fnmatch.fnmatchcase(value.path, own) or fnmatch.fnmatchcase(value.path, f"optimizer.{own}.*"))
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", popsr.ReplicaWarning)
        for _ in range(STEPS):
            got = made.run()
    real = gloo.run(world, run_rank, name, STEPS)
    paths = {value.path: value for value in proof.states}
    for rank, states in enumerate(real):
        for path, bits in states.items():
            value = paths[path]
            assert value.held is None or rank in value.held
            wanted = array_of(bits)
            scale = max(float(np.abs(wanted).max()), 1e-3)
            assert np.abs(got[value.path][rank] - wanted).max() <= 2e-5 * scale, (rank, path)
    for value in proof.states:
        for block in value.proved.blocks:
            rows = {bits for rank in block for path, bits in real[rank].items() if path == value.path}
            assert len(rows) <= 1, (value.path, block)


@pytest.mark.parametrize("step", WRONG, ids=lambda step: step.__name__)
def test_steps_that_are_refused(step: Any) -> None:
    kind, text, lines = WRONG[step]
    with pytest.raises(kind, match=text) as caught:
        bridge.trace_step(step, lambda: Layers(1, (0,)), optimizer_of, batch_of, replicas=2)
    start = step.__code__.co_firstlineno
    for line in lines:
        assert f"programs.py:{start + line}" in str(caught.value)
