"""Training code with the libraries that people use: read unchanged, and held against real ranks."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.filterwarnings("ignore")  # of the libraries about each other

import popsr  # noqa: E402
import popsr.bridge.torch as bridge  # noqa: E402
from tests_py.bridge.torch import gloo  # noqa: E402
from tests_py.bridge.torch.training.programs import PROGRAMS, Program  # noqa: E402

_GROUPS = {"zero1": {"shard": range(2)}}
"""Groups of states that are to differ between ranks."""


def proof_of(name: str, wrapped: bool) -> Any:
    """The proof of a program on two ranks."""
    program = program_of(name)
    made = bridge.trace_step(
        program.step,
        lambda: program.model(wrapped),
        program.optimizer,
        *program.batch(0),
        replicas=2,
        groups=_GROUPS.get(name),
    )
    return made.prove()


def program_of(name: str) -> Program:
    """The program, where its packages are installed."""
    for package in PROGRAMS[name].needs:
        pytest.importorskip(package)
    return PROGRAMS[name]


def steps_of(name: str) -> dict[str, gloo.Bits]:
    """The states of this rank after two steps."""
    import torch.distributed as dist

    program = PROGRAMS[name]
    model = program.model(True)
    optimizer = program.optimizer(model)
    for _ in range(2):
        program.step(model, optimizer, *program.batch(dist.get_rank()))
    return gloo.states(model, optimizer)


@pytest.mark.share(4)
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_are_in_step_as_on_real_ranks(name: str) -> None:
    proof = proof_of(name, wrapped=True)
    assert proof.ok, proof
    first, second = gloo.run(2, steps_of, name)
    assert {each.path for each in proof.states} <= {*first, "random seed"}
    for each in proof.states:
        if each.path in first and each.proved.num_blocks == 1:
            assert first[each.path] == second[each.path], each.path


@pytest.mark.share(4)
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_without_a_reduction_drift(name: str) -> None:
    proof = proof_of(name, wrapped=False)
    assert not proof.ok
    assert proof.drifting
    assert isinstance(proof, popsr.bridge.Proof)
