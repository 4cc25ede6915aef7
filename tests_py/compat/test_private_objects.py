"""Private names that PopXL programs and their tests use are answered from the program, never by a silent None."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import popsr
from popsr import ops
from popsr._program.context import get_current_context
from popsr.compat._objects import types
from popsr.compat.popart._internal import ir as _ir
from popsr.errors import (
    ArgumentTypeError,
    AttributeAccessError,
    AttributeValueError,
    OutOfRangeError,
    ReplicaError,
    SessionError,
    StateError,
    UndefinedValue,
    UnknownNameError,
    UnsupportedError,
)
from popsr.replicas import CommGroup, CommGroupType, ReplicaGrouping, VariableSettings
from tests_py.support.hostile.values import HOSTILE
from tests_py.support.typed_errors import untyped
from tests_py.support.unchecked import unchecked


class World:
    """One program with all kinds of things."""

    # With members of PopART's objects, which have no types.
    a: Any
    b: Any
    c: Any
    d: Any
    sub: Any
    graph: Any
    remote: Any

    def __init__(self) -> None:
        self.ir = popsr.Ir(replication=2)
        with self.ir.main_graph, popsr.in_sequence():
            self.a = popsr.variable(np.ones((2, 3), np.float16), name="a")
            self.b = ops.add(self.a, self.a)
            self.sub = self.ir.create_graph(lambda x: x * 2, self.b)
            (self.c,) = ops.call(self.sub, self.b)
            ops.add_(self.a, self.c)
            self.d = ops.collectives.replicated_all_reduce(self.b)
            self.remote = popsr.remote_variable(
                np.ones(4, np.float32), popsr.RemoteBuffer((4,), popsr.float32, 1)
            )
        self.graph = self.ir.main_graph

    @property
    def op(self) -> Any:
        """The first op by PopART's names."""
        return self.graph._pb_graph.getOps()[0]

    @property
    def call(self) -> Any:
        """The call."""
        return self.graph._pb_graph.getOps()[1]


@pytest.fixture(scope="module")
def world() -> World:
    return World()


ANSWERS: dict[str, tuple[Callable[[World], Any], Callable[[World], Any]]] = {
    # ir._pb_ir
    "getSessionOptions": (lambda w: w.ir._pb_ir.getSessionOptions(), lambda w: w.ir.options),
    "getAllGraphs": (lambda w: [str(g.id) for g in w.ir._pb_ir.getAllGraphs()], lambda w: ["", w.sub.id]),
    "getGraphSchedule": (lambda w: w.ir._pb_ir.getGraphSchedule(), lambda w: w.ir._pb_ir.getAllGraphs()),
    "getMainGraph": (lambda w: w.ir._pb_ir.getMainGraph(), lambda w: w.graph._pb_graph),
    "getGraph by id": (lambda w: w.ir._pb_ir.getGraph(w.sub._pb_graph.id), lambda w: w.sub._pb_graph),
    "getGraph by name": (lambda w: w.ir._pb_ir.getGraph(w.sub.id), lambda w: w.sub._pb_graph),
    "hasGraph": (lambda w: [w.ir._pb_ir.hasGraph(name) for name in ("", "no")], lambda w: [True, False]),
    "Ir.id": (lambda w: (w.ir._pb_ir.id, w.ir._pb_ir.getId()), lambda w: (w.ir.id, w.ir.id)),
    "Ir.getOpSchedule": (lambda w: len(w.ir._pb_ir.getOpSchedule(False)), lambda w: 5),
    "getAllOps": (lambda w: len(w.ir._pb_ir.getAllOps()), lambda w: 5),
    "applyPreAliasPatterns": (lambda w: w.ir._pb_ir.applyPreAliasPatterns(w.graph._pb_graph), lambda w: None),
    "updateVertices": (lambda w: w.ir._pb_ir.updateVertices(), lambda w: None),
    "setPatterns": (
        lambda w: w.ir._pb_ir.setPatterns(_ir.patterns.Patterns(_ir.patterns.PatternsLevel.Minimal)),
        lambda w: None,
    ),
    "setDataFlow": (lambda w: w.ir._pb_ir.setDataFlow(_ir.DataFlow(1, {})), lambda w: None),
    "Ir as class": (lambda w: isinstance(w.ir._pb_ir, _ir.Ir), lambda w: True),
    # graph._pb_graph
    "getOps": (
        lambda w: [str(op.opType) for op in w.graph._pb_graph.getOps()],
        lambda w: ["Add", "Call", "AddLhsInplace", "ReplicatedAllReduce"],
    ),
    "getOpSchedule": (lambda w: w.graph._pb_graph.getOpSchedule(), lambda w: w.graph._pb_graph.getOps()),
    "Graph.id": (
        lambda w: (str(w.sub._pb_graph.id), w.sub._pb_graph.id.str()),
        lambda w: (w.sub.id, w.sub.id),
    ),
    "GraphId": (lambda w: w.sub._pb_graph.id == _ir.GraphId(w.sub.id), lambda w: True),
    "getInputIds": (lambda w: w.sub._pb_graph.getInputIds(), lambda w: [w.sub.inputs[0].id]),
    "getOutputIds": (lambda w: w.sub._pb_graph.getOutputIds(), lambda w: [w.sub.outputs[0].id]),
    "getInputId": (lambda w: w.sub._pb_graph.getInputId(0), lambda w: w.sub.inputs[0].id),
    "hasInputId": (lambda w: w.sub._pb_graph.hasInputId(w.sub.inputs[0].id), lambda w: True),
    "getTensors": (
        lambda w: [unchecked(popsr.Tensor)._from_pb_tensor(t) for t in w.sub._pb_graph.getTensors()],
        lambda w: list(w.sub.tensors),
    ),
    "getTensor": (lambda w: w.graph._pb_graph.getTensor("a"), lambda w: w.a._pb_tensor),
    "Graph.getIr": (lambda w: w.sub._pb_graph.getIr(), lambda w: w.ir._pb_ir),
    "addScope": (lambda w: w.sub._pb_graph.addScope("x"), lambda w: f"{w.sub.id}/x"),
    "removeScope": (lambda w: w.sub._pb_graph.removeScope(f"{w.sub.id}/x"), lambda w: "x"),
    "_create_tensor_id, new": (lambda w: w.graph._create_tensor_id("out"), lambda w: "out"),
    "_create_tensor_id, taken": (lambda w: w.graph._create_tensor_id("a").startswith("a__t"), lambda w: True),
    "_create_tensor_id of a graph": (lambda w: w.sub._create_tensor_id("y"), lambda w: f"{w.sub.id}/y"),
    # ops
    "opType": (
        lambda w: (w.op.opType, w.op.opType(), w.graph.ops[0].opType),
        lambda w: ("Add", "Add", "Add"),
    ),
    "type(op)": (lambda w: type(w.op) is unchecked(_ir.op).AddOp, lambda w: True),
    "op.id": (lambda w: w.op.id, lambda w: w.graph.ops[0].id),
    "op.name": (lambda w: (w.op.name, w.op.name()), lambda w: ("add_out", "add_out")),
    "getInputs": (lambda w: [t.id for t in w.op.getInputs()], lambda w: ["a", "a"]),
    "getOutputs": (lambda w: [t.id for t in w.op.getOutputs()], lambda w: ["add_out"]),
    "inTensor": (lambda w: w.op.inTensor(1), lambda w: w.a._pb_tensor),
    "outTensor": (lambda w: w.op.outTensor(0), lambda w: w.b._pb_tensor),
    "inId, outId": (lambda w: (w.op.inId(0), w.op.outId(0)), lambda w: ("a", "add_out")),
    "hasInput": (lambda w: [w.op.hasInput(i) for i in (1, 2)], lambda w: [True, False]),
    "hasOutput": (lambda w: [w.op.hasOutput(i) for i in (0, 1)], lambda w: [True, False]),
    "op.getGraph": (lambda w: w.op.getGraph(), lambda w: w.graph._pb_graph),
    "getCalledGraphs": (lambda w: w.call.getCalledGraphs(), lambda w: [w.sub._pb_graph]),
    "getCalledGraph": (lambda w: w.call.getCalledGraph(), lambda w: w.sub._pb_graph),
    "getCalledGraphIds": (lambda w: w.call.getCalledGraphIds(), lambda w: [w.sub._pb_graph.id]),
    "getDebugInfo": (
        lambda w: (w.op.getDebugInfo().getPathName(), w.op.getDebugInfo().getLocation()),
        lambda w: ("add_out", w.graph.ops[0].location),
    ),
    "isOutlineable": (lambda w: w.op.isOutlineable(), lambda w: True),
    "getVirtualGraphId": (
        lambda w: (w.op.hasVirtualGraphId(), w.op.getVirtualGraphId()),
        lambda w: (True, 0),
    ),
    "op.settings": (lambda w: (w.op.settings.name, w.op.settings.graph.id.str()), lambda w: ("add_out", "")),
    "getReplicaGrouping": (
        lambda w: w.graph._pb_graph.getOps()[3].getReplicaGrouping(),
        lambda w: w.ir.replica_grouping(),
    ),
    # tensor._pb_tensor
    "info.shape": (lambda w: list(w.a._pb_tensor.info.shape()), lambda w: [2, 3]),
    "info.nelms": (lambda w: w.a._pb_tensor.info.nelms(), lambda w: 6),
    "info.dataType": (
        lambda w: w.a._pb_tensor.info.dataType(),
        lambda w: types.TensorInfo("FLOAT16", [1]).dataType(),
    ),
    "Tensor.id": (lambda w: (w.a._pb_tensor.id, str(w.a._pb_tensor)), lambda w: ("a", "a")),
    "isAliased": (
        lambda w: [t._pb_tensor.isAliased() for t in (w.a, w.b, w.c)],
        lambda w: [True, False, False],
    ),
    "getProducer": (lambda w: w.b._pb_tensor.getProducer(), lambda w: w.op),
    "hasProducer": (lambda w: [t._pb_tensor.hasProducer() for t in (w.a, w.b)], lambda w: [False, True]),
    "Tensor.getGraph": (lambda w: w.a._pb_tensor.getGraph(), lambda w: w.graph._pb_graph),
    "tensorType": (
        lambda w: [t._pb_tensor.tensorType().name for t in (w.a, w.b, w.sub.constants[0])],
        lambda w: ["Variable", "ActGrad", "Const"],
    ),
    "tensorLocationInfo": (
        lambda w: [t._pb_tensor.tensorLocationInfo.isRemote() for t in (w.a, w.remote)],
        lambda w: [False, True],
    ),
    "getRemoteBufferInfo": (
        lambda w: w.remote._pb_tensor.tensorLocationInfo.getRemoteBufferInfo()[1],
        lambda w: 0,
    ),
    "isSharded": (lambda w: w.remote._pb_tensor.tensorLocationInfo.isSharded(), lambda w: False),
    "_from_pb_tensor": (
        lambda w: unchecked(popsr.Tensor)._from_pb_tensor(w.b._pb_tensor) is w.b,
        lambda w: True,
    ),
    "_memmap_arr": (lambda w: w.a._memmap_arr, lambda w: None),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_names_are_answered_from_the_program(name: str, world: World) -> None:
    ask, expected = ANSWERS[name]
    assert ask(world) == expected(world)


REFUSED: dict[str, tuple[Callable[[World], Any], type[Exception], str]] = {
    "ir": (
        lambda w: w.ir._pb_ir.getMainGrap(),
        AttributeAccessError,
        "got 'getMainGrap', expected 'getMainGraph'",
    ),
    "graph": (lambda w: w.graph._pb_graph.getOpp, AttributeAccessError, "expected 'getOps'"),
    "tensor": (lambda w: w.a._pb_tensor.isAliassed, AttributeAccessError, "expected 'isAliased'"),
    "op": (lambda w: w.op.inTensors, AttributeAccessError, "expected 'inTensor'"),
    "nothing alike": (
        lambda w: w.ir._pb_ir.qqq,
        AttributeAccessError,
        "expected one of applyPreAliasPatterns, ",
    ),
    "private": (lambda w: w.ir._pb_ir._nope, AttributeAccessError, "unknown name, got '_nope'"),
    "no such graph": (lambda w: w.ir._pb_ir.getGraph("no"), UnknownNameError, "got 'no'"),
    "no id": (lambda w: w.ir._pb_ir.getGraph(3), ArgumentTypeError, "getGraph: id is not a str, got 3"),
    "no such tensor": (lambda w: w.graph._pb_graph.getTensor("no"), UnknownNameError, "got 'no'"),
    "patterns": (lambda w: w.ir._pb_ir.setPatterns("All"), ArgumentTypeError, "not a Patterns"),
    "level": (
        lambda w: _ir.patterns.Patterns(unchecked(3)),
        ArgumentTypeError,
        "Patterns: patterns",
    ),
    "pattern": (
        lambda w: setattr(_ir.patterns.Patterns(), "InPlace", 1),
        ArgumentTypeError,
        "enablePattern: value is not a bool",
    ),
    "data flow": (lambda w: w.ir._pb_ir.setDataFlow(1), ArgumentTypeError, "not a DataFlow"),
    "graph of patterns": (
        lambda w: w.ir._pb_ir.applyPreAliasPatterns(w.graph),
        ArgumentTypeError,
        "not a PopartGraph",
    ),
    "transform": (lambda w: _ir.transforms.Prune().apply(3), ArgumentTypeError, "Prune.apply: graph"),
    "producer": (lambda w: w.a._pb_tensor.getProducer(), UndefinedValue, "no op makes 'a'"),
    "remote": (lambda w: w.a._pb_tensor.tensorLocationInfo.getRemoteBufferInfo(), UndefinedValue, "'a'"),
    "input": (lambda w: w.op.inTensor(2), OutOfRangeError, "inTensor: index out of range, got 2"),
    "output": (lambda w: w.op.outTensor(-1), OutOfRangeError, "outTensor: index out of range, got -1"),
    "groups": (lambda w: w.op.getReplicaGrouping(), UnsupportedError, "expected a collective"),
    "call": (lambda w: w.op.getCalledGraph(), UnsupportedError, "the op runs no graph"),
    "settings of nothing": (lambda w: _ir.Settings(3, "x"), ArgumentTypeError, "Settings: graph is not a"),
    "loop": (lambda w: w.op.getTripCountValue(), UnsupportedError, "the op is not a loop"),
    "tensor of popart": (
        lambda w: unchecked(popsr.Tensor)._from_pb_tensor(w.a),
        ArgumentTypeError,
        "pb_tensor is not a",
    ),
    "op of a class": (
        lambda w: unchecked(_ir.op).AddOp(3),
        ArgumentTypeError,
        "AddOp: cannot be constructed, got 3",
    ),
    "op of another class": (
        lambda w: unchecked(_ir.op).MulOp(w.graph.ops[0]),
        ArgumentTypeError,
        "MulOp: cannot be",
    ),
    "created": (
        lambda w: unchecked(get_current_context())._op_created("op"),
        ArgumentTypeError,
        "_op_created: op",
    ),
    "settings outside": (
        lambda w: unchecked(get_current_context())._get_op_settings("x"),
        StateError,
        "_get_op_settings",
    ),
    "tensor id": (lambda w: w.graph._create_tensor_id(3), ArgumentTypeError, "_create_tensor_id: name"),
    "device": (lambda w: popsr.Session(w.ir)._set_device("gpu"), AttributeValueError, "_set_device"),
    "device object": (lambda w: popsr.Session(w.ir)._set_device(3), ArgumentTypeError, "_set_device: device"),
    "loaded": (
        lambda w: popsr.Session(w.ir)._pb_session.setEngineIsLoaded(2),
        ArgumentTypeError,
        "setEngine",
    ),
    "session": (
        lambda w: popsr.Session(w.ir)._pb_session.setEngine,
        AttributeAccessError,
        "setEngineIsLoaded",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_unknown_names_are_typed_errors(name: str, world: World) -> None:
    call, error, match = REFUSED[name]
    with pytest.raises(error, match=match) as caught:
        call(world)
    assert isinstance(caught.value, popsr.Error)
    assert len(str(caught.value)) <= 500


def _members(world: World) -> dict[str, Callable[..., Any]]:
    """Public methods of the objects by PopART's spelling, and functions that take anything."""
    pending = unchecked(_ir.Op)(_ir.OperatorIdentifier("a", "b"), _ir.Settings(world.graph))
    session = popsr.Session(world.ir)
    found: dict[str, Callable[..., Any]] = {
        "_create_tensor_id": world.graph._create_tensor_id,
        "_set_device": session._set_device,
        "_from_pb_tensor": unchecked(popsr.Tensor)._from_pb_tensor,
        "createConnectedOp": world.graph._pb_graph.createConnectedOp_X,
        "createOp": world.graph._pb_graph.createOp_X,
        **{
            cls.__name__: cls for cls in (_ir.GraphId, _ir.DebugContext, _ir.Settings, _ir.OperatorIdentifier)
        },
    }
    for owner in (
        world.ir._pb_ir,
        world.graph._pb_graph,
        world.a._pb_tensor,
        world.a._pb_tensor.tensorLocationInfo,
        world.op,
        session._device,
        session._pb_session,
        pending,
    ):
        for name in dir(owner):
            if "_" not in name and name not in ("setup", "dotCheckpoint"):
                member = getattr(owner, name)
                if callable(member):
                    found[f"{type(owner).__name__}.{name}"] = member
    return found


def _outcome(member: Callable[..., Any], *args: Any) -> str | None:
    """Fault in the end of a call; None if there is none."""
    try:
        member(*args)
    except popsr.Error as error:
        return untyped(error)
    except TypeError as error:  # Python's, about the number of arguments
        return None if "positional argument" in str(error) else repr(error)
    except Exception as error:
        return repr(error)
    return None


def test_whatever_they_are_called_with_they_answer_or_raise_typed_errors(world: World) -> None:
    with world.graph:
        wrong = {
            f"{name}({value}, ...{count})": found
            for i, (name, member) in enumerate(_members(world).items())
            for value, make in list(HOSTILE.items())[i % 5 :: 5]  # another fifth of the values for each
            for count in (1, 2)
            if (found := _outcome(member, *(make() for _ in range(count)))) is not None
        }
    assert wrong == {}


def test_log_ir_logs_the_program(world: World, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "popsr"):
        world.ir._pb_ir.logIr()
    assert caplog.messages == [str(world.ir)]


def test_handles_of_what_a_failed_call_made_stay_refused() -> None:
    ir = popsr.Ir()
    made: list[Any] = []

    def fail(x: popsr.Tensor) -> popsr.Tensor:
        made.append(unchecked(x + x)._pb_tensor)
        raise ValueError("too late")

    with ir.main_graph, pytest.raises(ValueError, match="too late"):
        ir.create_graph(fail, popsr.TensorSpec((2,), popsr.float32))
    with pytest.raises(popsr.errors.GraphError, match="not in the program"):
        made[0].getProducer()


def test_merging_by_the_transform_of_popart() -> None:
    ir = popsr.Ir()
    with ir.main_graph:
        for name in "ab":
            ops.host_load(popsr.h2d_stream((2,), popsr.float32, name))
    assert _ir.transforms.MergeExchange().apply(unchecked(ir.main_graph)._pb_graph)
    (op,) = unchecked(ir.main_graph)._pb_graph.getOps()
    assert isinstance(op, unchecked(_ir.op.exchange).MultiExchangeOp)


# Variables


def test_memory_mapped_arrays_of_variables(tmp_path: Path) -> None:
    mapped = np.memmap(tmp_path / "w", np.float32, "w+", shape=(3,))
    with popsr.Ir().main_graph:
        assert unchecked(popsr.variable(mapped, name="w"))._memmap_arr is mapped


Settings = VariableSettings
REPRESENTATIVES = [
    (Settings(), [0]),
    (Settings(CommGroup(CommGroupType.Ungrouped)), [0, 1, 2, 3]),
    (Settings(CommGroup(CommGroupType.Consecutive, 4)), [0, 4, 8]),
    (Settings(CommGroup(CommGroupType.Orthogonal, 4)), [0, 1, 2]),
    (Settings(2, 3), [0, 1, 6, 7, 12]),
    (Settings(ReplicaGrouping.from_assignment([0, 0, 1, 0, 1, 1])), [0, 2]),
]


@pytest.mark.parametrize(("settings", "firsts"), REPRESENTATIVES, ids=lambda value: str(value)[:60])
def test_the_representative_of_a_group_needs_no_number_of_replicas(
    settings: VariableSettings, firsts: list[int]
) -> None:
    assert [settings.getGroupRepresentative(group) for group in range(len(firsts))] == firsts


@pytest.mark.parametrize(
    ("settings", "group"),
    [
        (Settings(), 1),
        (Settings(), -1),
        (Settings(CommGroup(CommGroupType.Ungrouped)), 2**20),
        (Settings(CommGroup(CommGroupType.Consecutive, 2**62)), 1),
        (Settings(2**62, 2**62), 2**62),
        (Settings(ReplicaGrouping.from_assignment([0, 0, 1, 1])), 2),
    ],
)
def test_groups_that_cannot_be_have_no_representative(settings: VariableSettings, group: int) -> None:
    with pytest.raises(ReplicaError, match=f"got (group )?{group}"):
        settings.getGroupRepresentative(group)


# Sessions that attach and detach by hand


def _counter() -> tuple[popsr.Session, popsr.Variable]:
    ir = popsr.Ir()
    with ir.main_graph:
        counter = popsr.variable(np.zeros((), np.float32), name="counter")
        ops.add_(counter, popsr.constant(1.0, popsr.float32))
    return popsr.Session(ir, "ipu_hw"), counter


def test_a_pipeline_that_detaches_by_hand_keeps_its_weights() -> None:
    """Several phases stay attached between their calls; the last one downloads and detaches."""
    session, counter = _counter()
    for expected in (2, 4):
        session.__enter__()
        session.run()
        with session:
            assert session._was_attached_stack == [False, True]
            session.run()
        assert list(session._was_attached_stack) == [False]
        was_attached = session._was_attached_stack.pop()
        assert (was_attached, session.is_attached, len(session._was_attached_stack)) == (False, True, 0)
        if not was_attached:
            session.weights_to_host()
            session._device.detach()
            session._pb_session.setEngineIsLoaded(False)
        assert not session.is_attached
        assert session.get_tensor_data(counter) == expected
        session._set_device("ipu_hw")


def test_detaching_by_hand_downloads_nothing() -> None:
    session, counter = _counter()
    session.__enter__()
    session.run()
    session._device.detach()
    assert session.get_tensor_data(counter) == 0
    with session:
        assert session.get_tensor_data(counter) == 0  # what the host has goes to the device
    session._device.detach()  # twice is once


def test_a_popped_entry_keeps_the_session_attached() -> None:
    session, _ = _counter()
    session.__enter__()
    session._was_attached_stack.pop()
    with session:
        assert session._was_attached_stack == [True]
    assert session.is_attached
    session._was_attached_stack.append(False)
    assert session._was_attached_stack == [False]
    session.__exit__(None, None, None)
    assert not unchecked(session).is_attached
    assert session._device.attach()
    assert session.is_attached
    assert session._was_attached_stack == []


STACK: dict[str, tuple[Callable[[Any], Any], type[Exception]]] = {
    "pop of nothing": (lambda stack: stack.pop(), OutOfRangeError),
    "append of nothing": (lambda stack: stack.append(True), OutOfRangeError),
    "no bool": (lambda stack: stack.append(3), ArgumentTypeError),
    "set": (lambda stack: stack.__setitem__(0, True), OutOfRangeError),
}


@pytest.mark.parametrize("name", STACK)
def test_entries_are_only_popped_and_put_back(name: str) -> None:
    session, _ = _counter()
    call, error = STACK[name]
    with pytest.raises(error, match="_was_attached_stack"):
        call(session._was_attached_stack)
    with pytest.raises(SessionError):
        session.run()
