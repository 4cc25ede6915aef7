"""popdist's names for one instance, and for a rank of several; ``tests_py.mpi`` runs programs on ranks."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import pytest

import popsr
from popsr import errors, ops
from popsr._support.host import launcher
from popsr.addons.named_replica_grouping import get_instance_replica_grouping, is_cross_instance
from popsr.compat import popart, popdist
from popsr.compat.popdist import popart as popdist_popart
from popsr.replicas import ReplicaGrouping
from tests_py.support.helpers import run_python

VARIABLES = [
    *launcher._SIZES,
    *(launcher._PMIX, launcher._SLURM, launcher._INSTANCES),
    *(launcher._TOTAL, launcher._LOCAL, launcher._IPUS),
    "POPSR_COMM",
]
TOTAL, LOCAL, INSTANCES = launcher._TOTAL, launcher._LOCAL, launcher._INSTANCES
MISSING = "mpi4py is not installed, expected `pip install 'mpi4py>=4.1'` for the processes of a launcher "
ANOTHER = "mpi4py's MPI is not the launcher's, got "
MPIEXEC = "of MPI: start all instances with mpiexec"

CALLS: dict[str, Callable[[], Any]] = {
    "popdist.init": popdist.init,
    "popdist.isPopdistEnvSet": popdist.isPopdistEnvSet,
    "popdist.getInstanceIndex": popdist.getInstanceIndex,
    "popdist.getNumInstances": popdist.getNumInstances,
    "popdist.getNumTotalReplicas": popdist.getNumTotalReplicas,
    "popdist.getNumLocalReplicas": popdist.getNumLocalReplicas,
    "popdist.getReplicaIndexOffset": popdist.getReplicaIndexOffset,
    "popdist.getNumIpusPerReplica": popdist.getNumIpusPerReplica,
    "popdist.execute_on_instances": popdist.execute_on_instances({0})(list),
    "popdist.getNumLocalReplicas of options": lambda: popdist_popart.configureSessionOptions(
        popart.SessionOptions()
    ),
    "popdist.getNumLocalReplicas of a device": popdist_popart.getDevice,
    'Ir("popdist")': lambda: popsr.Ir("popdist"),
}


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delitem(sys.modules, "mpi4py.MPI", raising=False)


def start(monkeypatch: pytest.MonkeyPatch, variables: dict[str, Any], size: int = 0, rank: int = 0) -> None:
    """The environment of a rank; a size of 0: its mpi4py was not imported."""
    for name, value in variables.items():
        monkeypatch.setenv(name, str(value))
    if size:
        mpi: Any = ModuleType("mpi4py.MPI")
        mpi.COMM_WORLD, mpi.Is_initialized = SimpleNamespace(size=size, rank=rank), lambda: True
        monkeypatch.setitem(sys.modules, "mpi4py.MPI", mpi)


def test_without_a_launcher() -> None:
    popdist.init()
    assert popdist.isPopdistEnvSet() is False
    assert (popdist.getInstanceIndex(), popdist.getNumInstances()) == (0, 1)
    assert (popdist.getNumTotalReplicas(), popdist.getNumLocalReplicas()) == (1, 1)
    assert (popdist.getNumIpusPerReplica(), popdist.getReplicaIndexOffset()) == (1, 0)


@pytest.mark.parametrize(("total", "expected"), [(None, 1), ("4", 4)])
def test_replication(total: str | None, expected: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if total is not None:
        monkeypatch.setenv("POPDIST_NUM_TOTAL_REPLICAS", total)
        monkeypatch.setenv("POPDIST_NUM_IPUS_PER_REPLICA", "2")
    for ir in (popsr.Ir("popdist"), popsr.Ir(replication="popdist")):
        assert ir.replication_factor == ir.instance_replication_factor == expected
    assert popdist.isPopdistEnvSet() is (total is not None)
    assert popdist.getNumTotalReplicas() == popdist.getNumLocalReplicas() == expected
    assert popdist_popart.getDevice().numIpus == expected * (2 if total else 1)
    ir = popsr.Ir("popdist")
    popdist_popart.configureSessionOptions(ir.options)
    with ir.main_graph:
        y = popsr.d2h_stream((), popsr.float32)
        ops.host_store(y, popsr.constant(2.0, popsr.float32))
    with popsr.Session(ir, popdist_popart.getDevice()) as session:
        np.testing.assert_array_equal(session.run()[y], np.full((expected,) * (expected > 1), 2))
    assert ir.replica_grouping() == ReplicaGrouping.from_stride(expected)


RANKS: list[tuple[dict[str, Any], int, int, tuple[Any, ...]]] = [
    # Variables, size and rank of MPI's world; launched, instance, instances, replicas, local ones, the first of them.
    ({}, 0, 0, (False, 0, 1, 1, 1, 0)),
    ({}, 1, 0, (False, 0, 1, 1, 1, 0)),
    ({}, 4, 3, (True, 3, 4, 4, 1, 3)),  # mpi4py alone says it
    ({"PMI_SIZE": 4}, 4, 2, (True, 2, 4, 4, 1, 2)),
    ({"OMPI_COMM_WORLD_SIZE": 4, "PMIX_RANK": 1}, 4, 1, (True, 1, 4, 4, 1, 1)),
    ({"MV2_COMM_WORLD_SIZE": 2}, 2, 1, (True, 1, 2, 2, 1, 1)),
    ({"PMIX_RANK": 2}, 3, 2, (True, 2, 3, 3, 1, 2)),
    ({"PMIX_RANK": 1, "SLURM_STEP_NUM_TASKS": 2}, 2, 1, (True, 1, 2, 2, 1, 1)),
    ({"PMIX_RANK": 0, "SLURM_STEP_NUM_TASKS": 1}, 0, 0, (False, 0, 1, 1, 1, 0)),
    ({"SLURM_STEP_NUM_TASKS": 8}, 0, 0, (False, 0, 1, 1, 1, 0)),  # tasks that MPI does not connect
    ({"SLURM_STEP_NUM_TASKS": 2, "PMI_SIZE": 4}, 4, 0, (True, 0, 4, 4, 1, 0)),  # of daemons of the launcher
    ({"OMPI_COMM_WORLD_SIZE": 8, "PMI_SIZE": 2}, 2, 1, (True, 1, 2, 2, 1, 1)),  # started by a rank
    ({"PMI_SIZE": 1}, 0, 0, (False, 0, 1, 1, 1, 0)),
    ({TOTAL: 4}, 0, 0, (True, 0, 1, 4, 4, 0)),
    ({LOCAL: 4}, 0, 0, (True, 0, 1, 4, 4, 0)),
    ({TOTAL: 4, LOCAL: 4, INSTANCES: 1}, 0, 0, (True, 0, 1, 4, 4, 0)),
    ({TOTAL: 8, LOCAL: 4, INSTANCES: 2}, 2, 1, (True, 1, 2, 8, 4, 4)),
    ({LOCAL: 3}, 4, 2, (True, 2, 4, 12, 3, 6)),
    *(
        ({TOTAL: 6}, 4, rank, (True, rank, 4, 6, *share))
        for rank, share in enumerate([(2, 0), (2, 2), (1, 4), (1, 5)])
    ),
]


@pytest.mark.parametrize(("variables", "size", "rank", "expected"), RANKS)
def test_answers(
    variables: dict[str, Any],
    size: int,
    rank: int,
    expected: tuple[Any, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    start(monkeypatch, variables, size, rank)
    popdist.init()
    assert (
        popdist.isPopdistEnvSet(),
        popdist.getInstanceIndex(),
        popdist.getNumInstances(),
        popdist.getNumTotalReplicas(),
        popdist.getNumLocalReplicas(),
        popdist.getReplicaIndexOffset(),
    ) == expected
    _, _, instances, total, local, first = expected
    ir = popsr.Ir("popdist")
    assert (ir.replication_factor, ir.instance_replication_factor) == (total, local)
    assert ir.options.enableDistributedReplicatedGraphs is (instances > 1)
    popdist_popart.configureSessionOptions(ir.options)
    ir.options._check_for(ir)
    options = popart.SessionOptions()
    popdist_popart.configureSessionOptions(options)
    assert options.enableDistributedReplicatedGraphs is (instances > 1)
    assert (options.replicatedGraphCount, options.globalReplicationFactor) == (local, total)
    assert (options.enableReplicatedGraphs, options.globalReplicaOffset) == (local > 1, first)
    assert popdist_popart.getDevice().numIpus == local


@pytest.mark.parametrize(
    ("variables", "size", "rank", "error", "text"),
    [
        (
            {"PMI_SIZE": 4},
            1,
            0,
            errors.StateError,
            ANOTHER + r"1 rank, expected 4 \(by PMI_SIZE\): start .* `python -m mpi4py",
        ),
        ({"OMPI_COMM_WORLD_SIZE": 4}, 3, 0, errors.StateError, ANOTHER + "3 ranks, expected 4 "),
        ({"PMIX_RANK": 2}, 1, 0, errors.StateError, ANOTHER + r"1 rank, expected 3 or more \(by PMIX_RANK\)"),
        (
            {"PMIX_RANK": 0, "SLURM_STEP_NUM_TASKS": 4},
            1,
            0,
            errors.StateError,
            ANOTHER + "1 rank, expected 4 ",
        ),
        (
            {TOTAL: 3},
            4,
            0,
            errors.ReplicaError,
            f"fewer replicas than processes, got {TOTAL} 3, expected 4 or more",
        ),
        (
            {TOTAL: 4, LOCAL: 1},
            0,
            0,
            errors.ReplicaError,
            f"{LOCAL} contradicts .*, got 1, expected 4 in 1 process {MPIEXEC}",
        ),
        (
            {TOTAL: 6, LOCAL: 2},
            4,
            3,
            errors.ReplicaError,
            f"{LOCAL} .*, got 2, expected 1 in 4 processes {MPIEXEC}",
        ),
        (
            {INSTANCES: 4},
            0,
            0,
            errors.ReplicaError,
            f"{INSTANCES} contradicts .*, got 4, expected 1 in 1 process {MPIEXEC}",
        ),
        (
            {INSTANCES: 4},
            2,
            0,
            errors.ReplicaError,
            f"{INSTANCES} .*, got 4, expected 2 in 2 processes {MPIEXEC}",
        ),
    ],
)
def test_contradictions(
    variables: dict[str, Any],
    size: int,
    rank: int,
    error: type[Exception],
    text: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    start(monkeypatch, variables, size, rank)
    with pytest.raises(error, match=f"^popdist.getNumInstances: {text}"):
        popdist.getNumInstances()


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("name", [*launcher._SIZES, "PMIX_RANK"])
def test_launchers_without_mpi4py(name: str, call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    start(monkeypatch, {name: 4})
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    with pytest.raises(errors.MissingPackageError) as caught:
        CALLS[call]()
    assert str(caught.value) == f"{call.partition(' of ')[0]}: {MISSING}(by {name})"


def test_mpi4py_without_a_library(monkeypatch: pytest.MonkeyPatch) -> None:
    start(monkeypatch, {"PMI_SIZE": 4})
    package: Any = ModuleType("mpi4py")
    package.__version__ = "4.1.0"
    monkeypatch.setitem(sys.modules, "mpi4py", package)
    with pytest.raises(
        errors.MissingPackageError, match=r"mpi4py does not start, got .*MPI.*\(by PMI_SIZE\)$"
    ):
        popdist.init()


def test_groupings_inside_an_instance(monkeypatch: pytest.MonkeyPatch) -> None:
    start(monkeypatch, {TOTAL: 8}, 2, 1)
    ir = popsr.Ir("popdist")
    with ir.main_graph:
        everyone = ir.replica_grouping()
        assert get_instance_replica_grouping() == ir.replica_grouping(group_size=4)
        assert [is_cross_instance(each) for each in (everyone, ir.replica_grouping(2, 2))] == [True, False]
    start(monkeypatch, {TOTAL: 8}, 3, 1)
    with (
        ir.main_graph,
        pytest.raises(errors.ReplicaError, match="got 8 on 3 instances, expected a multiple of 3"),
    ):
        get_instance_replica_grouping()


def test_models_of_onnx_are_for_one_instance(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnx")
    from tests_py.compat.builder.programs import Linear

    start(monkeypatch, {}, 2, 1)
    options = popart.SessionOptions()
    popdist_popart.configureSessionOptions(options)
    with pytest.raises(errors.ReplicaError, match="replicas of other processes, got global"):
        Linear(np.ones(2, np.float32)).session(options=options)


@pytest.mark.parametrize("name", [*VARIABLES[:-1], "PMIX_RANK"])
@pytest.mark.parametrize("text", ["", "x", "-1", "1.5", "9" * 5000, "²"])
def test_variables_that_are_not_numbers(name: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    start(monkeypatch, {"PMIX_RANK": 5} if name == "SLURM_STEP_NUM_TASKS" else {}, 1)
    monkeypatch.setenv(name, text)
    with pytest.raises(
        errors.AttributeValueError, match=f"environment variable {name} is not a number"
    ) as caught:
        popdist.getNumIpusPerReplica()
    assert len(str(caught.value)) <= 500


def test_a_process_by_itself_does_not_import_mpi4py() -> None:
    program = """
import sys
import popsr
from popsr.compat import popdist
popdist.init()
ir = popsr.Ir("popdist")
print(popdist.isPopdistEnvSet(), "mpi4py" in sys.modules)
"""
    environment = {name: each for name, each in os.environ.items() if name not in VARIABLES}
    with mock.patch.dict(os.environ, environment, clear=True):
        assert run_python(program, SLURM_STEP_NUM_TASKS="4") == "False False\n"


def test_functions_run_on_some_instances() -> None:
    calls = []

    def add(x: int, *, y: int) -> int:
        """Sum."""
        calls.append(x)
        return x + y

    on_first = popdist.execute_on_instances({0, 2})(add)
    assert on_first(1, y=2) == 3
    assert (on_first.__name__, on_first.__doc__) == ("add", "Sum.")
    assert popdist.execute_on_instances([1], timeout=3)(add)(5, y=2) is None
    assert calls == [1]


@pytest.mark.parametrize("instances", [3, {"a"}, {-1}, [0.5]])
def test_wrong_instances(instances: Any) -> None:
    with pytest.raises(errors.Error, match=r"^popdist.execute_on_instances: instances"):
        popdist.execute_on_instances(instances)


def test_wrong_arguments() -> None:
    with pytest.raises(errors.ArgumentTypeError, match="configureSessionOptions: opts is not an Options"):
        popdist_popart.configureSessionOptions(3)  # type: ignore[arg-type]
    with pytest.raises(
        AttributeError, match=r"module 'popdist' has no attribute 'getNumInstance', expected 'getN"
    ):
        _ = popdist.getNumInstance  # type: ignore[attr-defined]
