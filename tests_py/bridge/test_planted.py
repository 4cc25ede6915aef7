"""Planted bugs in steps of JAX and PyTorch: popsr finds them at their line, and is silent about the right steps."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest

from tests_py.bridge.planted.cases import Case
from tests_py.bridge.planted.run import Framework, all_cases, row, table
from tests_py.bridge.planted.table import written

PACKAGES: dict[Framework, str] = {"JAX": "jax", "PyTorch": "torch"}
# Bugs of PyTorch that make all replicas wrong alike, of which the program has no sign: it does not say along which
# dimension a weight is cut, nor that shards are parts of one parameter.
NOT_FOUND = {
    "mean of partial outputs",
    "shards of local gradients",
}


def param(framework: Framework, case: Case) -> object:
    missing = importlib.util.find_spec(PACKAGES[framework]) is None
    mark = pytest.mark.skipif(missing, reason=f"needs {PACKAGES[framework]}")
    return pytest.param(framework, case, id=f"{framework}-{case.name}".replace(" ", "-"), marks=mark)


@pytest.mark.parametrize(("framework", "case"), [param(*each) for each in all_cases()])
def test_bugs_are_found_and_right_steps_are_silent(framework: Framework, case: Case) -> None:
    found = row(framework, case)
    assert found.false_alarms == []
    assert found.popsr.found is (case.name not in NOT_FOUND)
    assert found.popsr.names_line is found.popsr.found


def test_there_are_enough_of_each_kind() -> None:
    cases = [case for _, case in all_cases()]
    assert len({case.name for case in cases}) == len(cases) >= 30
    assert {case.kind for case in cases} >= {
        "forgotten collective",
        "doubled collective",
        "wrong axis",
        "wrong group",
        "rank-dependent branch",
        "rank-dependent seed",
        "rank-dependent data order",
        "state not synchronised",
        "cond on a varying predicate",
        "mean for sum",
    }
    assert len(cases) - len(NOT_FOUND) >= 29


def test_the_table_of_the_docs_is_fresh() -> None:
    for package in PACKAGES.values():
        pytest.importorskip(package)
    assert written() == table(), "run python -m tests_py.bridge.planted.table"


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_dtensor_takes_a_placement_on_trust() -> None:
    """Rows of each rank are called replicated: torch runs the step without a word, popsr finds what drifts."""
    torch = pytest.importorskip("torch")
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Replicate, distribute_tensor

    from popsr.bridge.torch import trace_step

    class Net(torch.nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.mesh = init_device_mesh("cpu", (4,))
            weight = distribute_tensor(torch.ones(4, 2), self.mesh, [Replicate()])
            self.w = torch.nn.Parameter(weight)

    def step(model: Net, x: Any) -> None:
        rows = DTensor.from_local(x, model.mesh, [Replicate()])
        loss = ((rows @ model.w) ** 2).mean()
        (g,) = torch.autograd.grad(loss, (model.w,))
        with torch.no_grad():
            model.w.sub_(0.1 * g)

    proof = trace_step(step, Net, None, torch.ones(2, 4), replicas=4).prove()
    assert [each.path for each in proof.drifting] == ["w"]
    assert any("loss = " in line.text for line in proof.lines("w"))
