"""Task sessions of one small program, which tests of their state and of their errors share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import popsr
from popsr import addons, ops
from popsr.addons.streams import InputStreams, OutputStreams
from popsr.addons.task_session import TaskSession
from tests_py.support.helpers import assert_same_bits, dtype, np_dtype

NAMES = ("file", "fc.w", "fc.b", "layers.0.w")  # the first is a parameter of np.savez
Array = np.ndarray[Any, Any]


def make(
    names: tuple[str, ...] = NAMES,
    *,
    start: float = 0.0,
    kind: str = "float32",
    memmap_dir: Path | None = None,
    read_only: bool = False,
    shape: tuple[int, ...] = (2, 3),
    replication: int = 2,
    **options: Any,
) -> TaskSession:
    """A session of a program that adds its input to each variable; there are two groups of replicas."""
    ir = popsr.Ir(replication=replication)
    with ir.main_graph, popsr.in_sequence():
        grouping = ir.replica_grouping(group_size=1)
        inputs, outputs = InputStreams(x=((), dtype(kind))), OutputStreams(y=(shape, dtype(kind)))
        factories = addons.NamedVariableFactories.from_dict(
            {
                name: addons.VariableFactory(
                    lambda i=i: np.full(shape, start + i, np_dtype(kind)),  # type: ignore[misc]
                    dtype(kind),
                    replica_grouping=grouping,
                )
                for i, name in enumerate(names)
            }
        )
        variables = factories.init(memmap_dir=memmap_dir, read_only_if_exists=read_only)
        x = ops.host_load(inputs.x)
        for variable in variables.values_flat():
            ops.add_(variable, x)
        ops.host_store(outputs.y, variables.values_flat()[0])
    return TaskSession(inputs, outputs, variables, ir=ir, **options)


def train(session: TaskSession, *steps: float) -> None:
    with session:
        for step in steps:
            (plan,) = session.inputs
            session.run({plan: np.full(2, step, plan.dtype.as_numpy())})


def state(session: TaskSession) -> dict[str, Array]:
    return dict(session.get_named_tensors_data().to_dict())


def assert_same_state(got: TaskSession, wanted: dict[str, Array]) -> None:
    found = state(got)
    assert found.keys() == wanted.keys()
    for name, data in wanted.items():
        assert_same_bits(found[name], data, name)
