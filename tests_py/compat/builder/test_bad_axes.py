"""Axes that a tensor does not have, and words and shapes that an op does not know, are refused before anything runs.

They were taken modulo the rank once, so that an axis beyond the last was another axis.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")

from popsr.compat import popart

INDEX = np.array([0], np.uint32)
PLACES = np.zeros((2, 3), np.int32)
ONE = np.ones((2, 3), np.float32)

# Method of ONNX, its version, operands beside a tensor [2, 3], attributes; A stands for the axis.
AXES: list[tuple[str, int, tuple[Any, ...], dict[str, Any]]] = [
    *((name, 10, (), {"axis": "A"}) for name in ("softmax", "logsoftmax", "hardmax", "argmax", "argmin")),
    *((name, 11, (), {"axes": ["A"]}) for name in ("reducesum", "reducemax", "reducel2", "squeeze")),
    ("topk", 10, (np.array([1]),), {"axis": "A"}),
    ("gather", 10, (np.array([0]),), {"axis": "A"}),
    ("scatter", 10, (np.array([[0]]), np.ones((1, 1), np.float32)), {"axis": "A"}),
    ("gatherelements", 11, (np.array([[0]]),), {"axis": "A"}),
    ("compress", 10, (np.array([True, False]),), {"axis": "A"}),
    ("lpnormalization", 10, (), {"axis": "A"}),
    ("concat", 10, (ONE,), {"axis": "A"}),
    ("split", 10, (), {"num_outputs": 2, "axis": "A"}),
    ("slice", 9, (), {"ends": [1], "starts": [0], "axes": ["A"]}),
    ("transpose", 10, (), {"perm": [0, "A"]}),
]
GRAPHCORE: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("reverse", (), {"dimensions": ["A"]}),
    ("sort", (), {"axis": "A"}),
    ("reducemedian", (), {"axes": ["A"]}),
    ("scatterreduce", (PLACES,), {"axis_size": 2, "axis": "A"}),
    ("dynamicslice", (INDEX,), {"axes": ["A"], "sizes": [1]}),
    ("dynamiczero", (INDEX,), {"axes": ["A"], "sizes": [1]}),
    ("slice", (), {"ends": [1], "starts": [0], "axes": ["A"]}),
]
OTHERS: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("init", (), {"shape": [2], "data_type": "FLOAT", "init_type": "Some"}),
    ("shapeddropout", (), {"shape": [3, 3]}),
    ("shapeddropout", (), {"shape": [2]}),
    ("reshape", (), {"shape": [-1, -1]}),
    ("reshape", (), {"shape": [-1, 4]}),
    ("l1loss", (), {"lambda": 1.0, "reduction": "Middle"}),
    ("identityloss", (), {"reduction": "Middle"}),
    ("nllloss", (np.array([0, 1], np.int32),), {"reduction": "Middle"}),
    ("depthtospace", (), {"blocksize": 1, "mode": "XYZ"}),
    ("bucketize", (np.ones((1, 1), np.float32),), {}),
    ("sequenceslice", (ONE, INDEX, INDEX, np.zeros(2, np.uint32)), {}),
]
KERNEL = np.ones((2, 2, 1, 1), np.float32)
WORDS: list[tuple[str, int, tuple[Any, ...], dict[str, Any]]] = [
    ("topk", 10, (np.array([4]),), {"axis": 1}),
    ("pad", 10, (), {"pads": [0, 0, 0, 0], "mode": "mirror"}),
    ("resize", 10, (np.ones(1, np.float32),), {}),
    ("lpnormalization", 10, (), {"p": 3}),
    ("conv", 10, (KERNEL,), {"kernel_shape": [3, 3]}),
    ("conv", 10, (KERNEL,), {"auto_pad": "SAME"}),
    ("conv", 10, (KERNEL, np.ones(1, np.float32)), {}),
    ("convtranspose", 10, (KERNEL,), {"kernel_shape": [3, 3]}),
    ("convtranspose", 10, (KERNEL,), {"auto_pad": "SAME"}),
    ("maxpool", 10, (), {"kernel_shape": [1, 1], "auto_pad": "SAME"}),
    ("depthtospace", 11, (), {"blocksize": 1, "mode": "XYZ"}),
    (
        "lstm",
        10,
        (np.ones((1, 8, 3), np.float32), np.ones((1, 8, 2), np.float32)),
        {"direction": "bidirectional"},
    ),
    ("lstm", 10, (np.ones((1, 8, 3), np.float32), np.ones((1, 8, 2), np.float32)), {"direction": "sideways"}),
]
SHAPES = {"depthtospace": [1, 4, 2, 2], "squeeze": [1, 3], "lstm": [1, 2, 3]}
SHAPES |= {key: [1, 2, 3, 3] for key in ("conv", "convtranspose", "maxpool")}


def _put(value: Any, axis: int) -> Any:
    """Attributes with the axis in its place."""
    if isinstance(value, dict):
        return {key: _put(each, axis) for key, each in value.items()}
    if isinstance(value, list):
        return [_put(each, axis) for each in value]
    return axis if value == "A" else value


def _open(
    family: str, method: str, operands: tuple[Any, ...], named: dict[str, Any]
) -> popart.InferenceSession:
    builder = popart.Builder()
    ids = [
        builder.addInputTensor("FLOAT", SHAPES.get(method, [2, 3])),
        *map(builder.aiOnnxOpset11.constant, operands),
    ]
    given = () if method == "init" else (ids,)
    made = getattr(getattr(builder, family), method)(*given, **named)
    first = made if isinstance(made, str) else made[0]
    device = popart.DeviceManager().createCpuDevice()
    return popart.InferenceSession(builder.getModelProto(), popart.DataFlow(1, [first]), device)


@pytest.mark.parametrize(("method", "version", "operands", "named"), AXES)
def test_an_axis_of_an_op_of_onnx(
    method: str, version: int, operands: tuple[Any, ...], named: dict[str, Any]
) -> None:
    for axis in (1,) if method == "transpose" else (0, -2):
        _open(f"aiOnnxOpset{version}", method, operands, _put(named, axis))
    for axis in (2, 7, -3):
        with pytest.raises(popart.popart_exception):
            _open(f"aiOnnxOpset{version}", method, operands, _put(named, axis))


@pytest.mark.parametrize(("method", "operands", "named"), GRAPHCORE)
def test_an_axis_of_an_own_op(method: str, operands: tuple[Any, ...], named: dict[str, Any]) -> None:
    _open("aiGraphcore", method, operands, _put(named, 0))
    for axis in (2, 7, -3):
        with pytest.raises(popart.popart_exception):
            _open("aiGraphcore", method, operands, _put(named, axis))


@pytest.mark.parametrize(("method", "operands", "named"), OTHERS)
def test_a_word_or_shape(method: str, operands: tuple[Any, ...], named: dict[str, Any]) -> None:
    with pytest.raises(popart.popart_exception):
        _open("aiGraphcore", method, operands, named)


@pytest.mark.parametrize(("method", "version", "operands", "named"), WORDS)
def test_a_word_or_number_of_an_op_of_onnx(
    method: str, version: int, operands: tuple[Any, ...], named: dict[str, Any]
) -> None:
    outputs = {"lstm": {"num_outputs": 3}, "maxpool": {"num_outputs": 1}}.get(method, {})
    with pytest.raises(popart.popart_exception):
        _open(f"aiOnnxOpset{version}", method, operands, outputs | named)


def test_a_call_has_the_results_of_its_graph() -> None:
    builder = popart.Builder()
    x, body = builder.addInputTensor("FLOAT", [2]), builder.createSubgraphBuilder()
    body.addOutputTensor(body.aiOnnx.neg([body.addInputTensor("FLOAT", [2])]))
    first, _ = builder.aiGraphcore.call([x], 2, body)
    with pytest.raises(popart.popart_exception, match="2 results of a graph with 1"):
        popart.InferenceSession(
            builder.getModelProto(), popart.DataFlow(1, [first]), popart.DeviceManager().createCpuDevice()
        )


def test_the_border_of_a_flattened_tensor() -> None:
    for axis in (-2, -1, 0, 1, 2):
        _open("aiOnnx", "flatten", (), {"axis": axis})
    for axis in (3, -3):
        with pytest.raises(popart.popart_exception):
            _open("aiOnnx", "flatten", (), {"axis": axis})


def test_rows_of_a_scan_are_as_many() -> None:
    builder = popart.Builder()
    begin, *rows = (builder.addInputTensor("FLOAT", shape) for shape in ([2], [3, 2], [4, 2]))
    body = builder.createSubgraphBuilder()
    carried, *row = (body.addUntypedInputTensor() for _ in range(3))
    body.addOutputTensor(body.aiOnnx.add([carried, body.aiOnnx.add(row)]))
    made = builder.aiOnnx.scan([begin, *rows], 1, body, 2)[0]
    with pytest.raises(popart.popart_exception):
        popart.InferenceSession(
            builder.getModelProto(), popart.DataFlow(1, [made]), popart.DeviceManager().createCpuDevice()
        )
