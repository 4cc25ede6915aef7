"""popdist for one instance, and launchers of several."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import popsr
from popsr import errors, ops
from popsr._program import launcher
from popsr.compat import popart, popdist
from popsr.compat.popdist import popart as popdist_popart
from popsr.replicas import ReplicaGrouping

VARIABLES = [
    *launcher._INSTANCES,
    "POPDIST_NUM_TOTAL_REPLICAS",
    "POPDIST_NUM_LOCAL_REPLICAS",
    "POPDIST_NUM_IPUS_PER_REPLICA",
]

CALLS: dict[str, Callable[[], Any]] = {
    "popdist.init": popdist.init,
    "popdist.isPopdistEnvSet": popdist.isPopdistEnvSet,
    "popdist.getInstanceIndex": popdist.getInstanceIndex,
    "popdist.getNumInstances": popdist.getNumInstances,
    "popdist.getNumTotalReplicas": popdist.getNumTotalReplicas,
    "popdist.getNumLocalReplicas": popdist.getNumLocalReplicas,
    "popdist.getNumIpusPerReplica": popdist.getNumIpusPerReplica,
    "popdist.getInstanceIndex of execute_on_instances": lambda: popdist.execute_on_instances({0}),
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


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("name", [*launcher._INSTANCES, "POPDIST_NUM_TOTAL_REPLICAS"])
def test_several_instances_are_refused(name: str, call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "4")
    if name == "POPDIST_NUM_TOTAL_REPLICAS":
        monkeypatch.setenv("POPDIST_NUM_LOCAL_REPLICAS", "1")
    where = call.partition(" of ")[0]
    with pytest.raises(errors.UnsupportedError) as caught:
        CALLS[call]()
    assert str(caught.value) == (
        f"{where}: all replicas run in one process, got 4 instances of a launcher (by {name}), expected 1: start the "
        "program once, without the launcher"
    )


@pytest.mark.parametrize("name", VARIABLES)
@pytest.mark.parametrize("text", ["", "x", "0", "-1", "1.5", "9" * 5000, "²"])
def test_variables_that_are_not_numbers(name: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, text)
    with pytest.raises(
        errors.AttributeValueError, match=f"environment variable {name} is not a number"
    ) as caught:
        popdist.getNumIpusPerReplica()
    assert len(str(caught.value)) <= 500


def test_launchers_of_one_instance_are_not_launchers(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in launcher._INSTANCES:
        monkeypatch.setenv(name, "1")
    assert not popdist.isPopdistEnvSet()
    assert popdist.getNumInstances() == 1


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
