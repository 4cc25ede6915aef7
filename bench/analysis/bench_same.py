"""Processor time of a comparison with one device: a training step of JAX of 12 layers on a mesh of 4 x 2."""

import os
import time
import warnings

os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")

import pytest

pytest.importorskip("jax")

from bench.programs.same_step import Sizes, step_of
from bench.record import at_most, duration

DRAWS = 3
"""Random inputs, one more than the least that a comparison takes."""
SIZES = [Sizes(layers=layers, sequence=sequence) for layers, sequence in ((2, 8), (12, 8), (12, 16))]


@pytest.mark.parametrize("sizes", SIZES, ids=lambda sizes: f"{sizes.layers}-{sizes.sequence}")
def test_same(record, sizes, monkeypatch):
    import popsr
    from popsr.bridge._same import _exact

    warnings.simplefilter("ignore")
    monkeypatch.setattr(_exact, "_DRAWS", DRAWS)
    step, args, options = step_of(sizes)
    start = time.process_time()
    proof = popsr.prove(step, *args, **options, like="one device")
    seconds = time.process_time() - start
    assert proof.same.ok, proof.same
    draws = max(each.draws for each in proof.same.values)
    table = f"{draws} draws of {proof.same.steps} steps, processor time with tracing"
    goal = at_most(10, seconds, duration) if sizes.layers == 12 else {}
    record(
        table, f"{sizes.layers} layers, {sizes.sequence} tokens of a sample", time=duration(seconds), **goal
    )
