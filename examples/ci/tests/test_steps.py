"""Proofs as tests, by popsr's plugin of pytest."""

import pytest
from training import sharded


@pytest.mark.in_step(**sharded.step_options)
def test_step():
    """Passes if the step that it returns is proved."""
    return sharded.step, *sharded.step_args


@pytest.mark.in_step(**sharded.step_options)
@pytest.mark.parametrize("devices", [2, 8])
def test_number_of_devices(devices, in_step):
    """The fixture proves as often as it is called; options of the call are in the place of the marker's."""
    proof = in_step(sharded.step, *sharded.step_args, mesh={"data": devices})
    assert proof.step.ir.replication_factor == devices
