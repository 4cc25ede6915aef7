"""Nodes that ONNX's checker or onnxruntime refuses are refused: types, attributes, operands, shapes and values."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Any, NamedTuple

import numpy as np
import pytest

import popsr
from popsr.errors import (
    AttributeValueError,
    DTypeError,
    Error,
    OutOfRangeError,
    ShapeError,
    UnsupportedOpsError,
)

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

import onnxruntime  # noqa: E402
from onnx import TensorProto, helper  # noqa: E402

from popsr.bridge.onnx import load  # noqa: E402
from tests_py import ROOT  # noqa: E402
from tests_py.bridge.onnx.net import Net  # noqa: E402
from tests_py.bridge.onnx.wrong_nodes import refusal  # noqa: E402

F, U, B = np.arange(3, dtype=np.float32), np.arange(3, dtype=np.uint8), np.array([True, False, True])
ROWS, SCORES = np.zeros((3, 2), np.float32), np.arange(6, dtype=np.float32).reshape(2, 3)


def ints(*values: int) -> Any:
    return np.array(values, np.int64)


class Known(NamedTuple):
    """An operand that is an initializer."""

    value: Any


class Case(NamedTuple):
    """A model of one node, and the error of popsr."""

    model: Any
    data: dict[str, Any]
    kind: type[Error]
    text: str


def node(
    op_type: str,
    operands: list[Any],
    kind: type[Error],
    text: str,
    opset: int = 17,
    results: int = 1,
    **attributes: Any,
) -> Case:
    net, names, data = Net(), [], {}
    for i, each in enumerate(operands):
        names.append("" if each is None else f"x{i}")
        if isinstance(each, Known):
            net.weight(f"x{i}", np.asarray(each.value))
        elif each is not None:
            data[f"x{i}"] = each
            net.input(f"x{i}", each.shape, helper.np_dtype_to_tensor_dtype(each.dtype))
    first = net.add(op_type, names, "here", results, **attributes)
    for i in range(results):
        net.output(f"{first}{i or ''}")
    return Case(net.model(opset), data, kind, text)


def pad(mode: str, low: int, high: int, text: str) -> Case:
    return node("Pad", [F, Known(ints(low, high))], AttributeValueError, text, 19, mode=mode)


def layer(
    op_type: str, gates: int, text: str, w: Any = None, start: Any = None, size: int = 4, **more: Any
) -> Case:
    operands: list[Any] = [
        np.zeros((5, 2, 3), np.float32),
        np.zeros((1, gates * 4, 3) if w is None else w, np.float32),
        np.zeros((1, gates * 4, 4), np.float32),
    ]
    if start is not None:
        operands += [None, None, np.zeros(start, np.float32)]
    return node(op_type, operands, AttributeValueError, text, results=2, hidden_size=size, **more)


def declared(kind: type[Error], text: str, code: int, shape: Any) -> Case:
    made = node("Relu", [F], kind, text)
    made.model.graph.output[0].CopyFrom(helper.make_tensor_value_info("here.out", code, shape))
    return made


def twice() -> Case:
    made = node("LeakyRelu", [F], AttributeValueError, "attribute alpha twice", alpha=0.1)
    made.model.graph.node[0].attribute.append(helper.make_attribute("alpha", 1.0))
    return made


def branches(code: int) -> Case:
    """An ``If`` whose branches declare a type that they do not make."""
    made = helper.make_tensor_value_info("r", code, [3])
    graph = helper.make_graph([helper.make_node("Relu", ["x1"], ["r"])], "branch", [], [made])
    case = node(
        "If", [np.array(True), F], UnsupportedOpsError, "If (its condition, of branches with different results",
        then_branch=graph, else_branch=graph,
    )  # fmt: skip
    del case.model.graph.node[0].input[1:]
    return case


def function(shape: list[int]) -> Case:
    case = node("f", [F], ShapeError, "another shape than the model declares, got [3] for 'm'")
    case.model.graph.node[0].domain = "own"
    case.model.opset_import.append(helper.make_opsetid("own", 1))
    nodes = [helper.make_node("Relu", ["a"], ["m"]), helper.make_node("Neg", ["m"], ["b"])]
    made = helper.make_function("own", "f", ["a"], ["b"], nodes, [helper.make_opsetid("", 17)])
    made.value_info.append(helper.make_tensor_value_info("m", 1, shape))
    case.model.functions.append(made)
    return case


WRONG = "here' ({}) at position 1 has an operand of a wrong type, got tensor({}) for '{}' ({}), expected {}"
REFUSED: dict[str, Case] = {
    "a condition of floats": node(
        "Where", [F, F, F], DTypeError, WRONG.format("Where", "float", "x0", "condition", "bool")
    ),
    "two types": node("Where", [B, F, U], DTypeError, WRONG.format("Where", "uint8", "x2", "Y", "float")),
    **{
        f"{op_type} of floats": node(op_type, [F, F], DTypeError, WRONG.format(op_type, "float", "x0", "A", "bool"))
        for op_type in ("And", "Or", "Xor")
    },
    "Not of floats": node("Not", [F], DTypeError, WRONG.format("Not", "float", "x0", "X", "bool")),
    "a known condition": node("Not", [Known(F)], DTypeError, WRONG.format("Not", "float", "x0", "X", "bool")),
    "unsigned negated": node("Neg", [U], DTypeError, "got tensor(uint8) for 'x0' (X), expected bfloat16 or "),
    "Relu of bool": node("Relu", [B], DTypeError, "got tensor(bool) for 'x0' (X)"),
    "Sqrt of whole numbers": node("Sqrt", [ints(4)], DTypeError, "got tensor(int64) for 'x0' (X)"),
    "random whole numbers": node(
        "RandomNormal", [], UnsupportedOpsError, "dtype is not floating, got int64", shape=[2], dtype=7
    ),
    "a remainder of floats": node("Mod", [F, F], AttributeValueError, "fmod 0 of float32, expected fmod=1"),
    "a result too many": node("Relu", [F], AttributeValueError, "too many results for opset 17, got 2", results=2),
    "an operand too many": node("Relu", [F, F], AttributeValueError, "too many operands for opset 17, got 2"),
    "an operand too few": node("Where", [B, F], AttributeValueError, "lacks the operand 'Y'"),
    "an operand left out": node("Where", [B, None, F], AttributeValueError, "lacks the operand 'X'"),
    "an attribute of another version": node("Relu", [F], AttributeValueError, "got 'alpha'", alpha=1.0),
    "an attribute of another type": node("LeakyRelu", [F], AttributeValueError, "got 'alpha' of type 2", alpha=1),
    "an attribute that it needs": node("Cast", [F], AttributeValueError, "got [], expected 'to' too"),
    "an attribute twice": twice(),
    "an op of an earlier opset": node(
        "Scatter", [F, ints(1), F[:1]], AttributeValueError, "an op that opset 17 has no more, got Scatter"
    ),
    "no classes": node("OneHot", [ints(0), Known(0), F[:2]], AttributeValueError, "depth 0, expected 1 or more"),
    "classes below 0": node("OneHot", [ints(0), Known(-3), F[:2]], AttributeValueError, "depth -3"),
    "three pads": node("Pad", [F, Known(ints(0, 1, 1))], AttributeValueError, "3 pads of 1 axes, expected 2"),
    "pads beyond what they mirror": pad("reflect", 3, 0, "pads 3 and 0 of axis 0 in mode reflect, expected at most 2"),
    "pads after the end": pad("reflect", 0, 7, "expected at most 2 for 3 elements"),
    "pads of what is cut off": pad("reflect", -1, 2, "expected at most 1 for 2 elements"),
    "pads of nothing": pad("edge", -3, 3, "for 0 elements"),
    "more cut off than there is": pad("constant", -4, 0, "pads -4 and 0 of axis 0 with 3 elements"),
    "a hidden size": layer("LSTM", 4, "hidden_size 7 of weights for 4, expected 4", size=7),
    "weights of one row": layer("RNN", 1, "W of shape [1, 1, 3], expected [1, 4, 3]", (1, 1, 3)),
    "weights of another layer": layer("GRU", 3, "W of shape [1, 16, 3], expected [1, 12, 3]", (1, 16, 3)),
    "a state of one sample": layer("RNN", 1, "start 0 of shape [1, 1, 4], expected [1, 2, 4]", start=(1, 1, 4)),
    "a layout": layer("GRU", 3, "layout 2, expected 0 or 1", layout=2),
    "neighbours": node("LRN", [SCORES[None, None]], AttributeValueError, "size 0, expected 1 or more", size=0),
    "a declared shape": declared(ShapeError, "got [3] for 'here.out', expected [4]", 1, [4]),
    "a declared rank": declared(ShapeError, "got [3] for 'here.out', expected [3, 1]", 1, [3, 1]),
    "a declared type": declared(DTypeError, "got tensor(float) for 'here.out', expected tensor(double)", 11, [3]),
    "branches": branches(TensorProto.DOUBLE),
    "a shape in a function": function([4]),
}  # fmt: skip
MORE = {"a shape in a function"}
"""Cases that popsr refuses and neither of the others does."""


def checked(case: Case) -> bool:
    """True if ONNX's checker reads a model whose outputs have the types that it infers."""
    made = onnx.shape_inference.infer_shapes(case.model)
    try:
        onnx.checker.check_model(made, full_check=True)
    except Exception:
        return False
    return True


def runs(case: Case) -> bool:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(
        case.model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    try:
        session.run(None, case.data)
    except Exception:
        return False
    return True


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    case = REFUSED[name]
    with pytest.raises(case.kind, match=re.escape(case.text)) as found:
        load(case.model)
    assert "\n" not in str(found.value)
    assert str(found.value).startswith("bridge.onnx.load: ")
    if name not in MORE:
        assert refusal(case.model) or not checked(case) or not runs(case)


BEYOND = OutOfRangeError
AT_RUN: dict[str, tuple[Case, Any]] = {
    "a class too great": (node("NegativeLogLikelihoodLoss", [SCORES, ints(0, 3)], BEYOND, "got 3"), None),
    "a label too great": (node("SoftmaxCrossEntropyLoss", [SCORES, ints(0, 3)], BEYOND, "got 3"), None),
    "a place beyond": (node("GatherND", [ROWS, np.array([[4, 1]])], BEYOND, "got 4"), None),
    "a place before": (node("GatherND", [ROWS, np.array([[-4, 1]])], BEYOND, "got -1"), None),
    "a row beyond": (node("Gather", [ROWS, ints(3)], BEYOND, "got 3"), None),
    "an element beyond": (node("GatherElements", [ROWS, np.array([[3, 0]])], BEYOND, "got 3"), None),
    "a length too great": (node("ReverseSequence", [ROWS, ints(4, 1)], BEYOND, "got"), None),
    "a length below 0": (node("ReverseSequence", [ROWS, ints(0, -1)], BEYOND, "got -1"), None),
    "rows of a layer": (
        node("RNN", [np.zeros((5, 2, 3), np.float32), np.zeros((1, 4, 3), np.float32), np.zeros((1, 4, 4), np.float32),
                     None, np.array([6, 1], np.int32)], BEYOND, "got 6", hidden_size=4),
        None,
    ),
    # ONNX says that classes begin at 0; onnxruntime counts those below from the end.
    "a class below 0": (node("NegativeLogLikelihoodLoss", [SCORES, ints(0, -1)], BEYOND, "got -1"), "a value"),
    "a label below 0": (node("SoftmaxCrossEntropyLoss", [SCORES, ints(0, -1)], BEYOND, "got -1"), "a value"),
}  # fmt: skip


@pytest.mark.parametrize("name", AT_RUN)
def test_values_out_of_range_are_errors_when_the_program_runs(name: str) -> None:
    case, theirs = AT_RUN[name]
    assert runs(case) == (theirs is not None)
    model = load(case.model)
    data = {model.input_streams[name]: value for name, value in case.data.items()}
    with popsr.Session(model.ir) as session, pytest.raises(case.kind, match=re.escape(case.text)):
        session.run(data)


def test_classes_out_of_range_are_none() -> None:
    """ONNX says so of OneHot, and onnxruntime does so."""
    case = node("OneHot", [ints(0, 3, -3, -4), Known(3), Known(np.array([0, 1], np.float32))], Error, "")
    (found,) = load(case.model).run(case.data).values()
    session = onnxruntime.InferenceSession(case.model.SerializeToString())
    np.testing.assert_array_equal(found, session.run(None, case.data)[0])
    assert found.sum(1).tolist() == [1, 0, 1, 0]


def test_shapes_that_the_user_gives_outdo_those_declared() -> None:
    case = declared(ShapeError, "", 1, [3])
    model = load(case.model, shapes={"x0": (5,)})
    assert model.outputs["here.out"].shape == (5,)


def test_an_initializer_of_another_type_than_its_input_is_refused() -> None:
    case = node("Relu", [Known(F)], DTypeError, "")
    case.model.graph.input.append(helper.make_tensor_value_info("x0", TensorProto.DOUBLE, [3]))
    with pytest.raises(
        DTypeError, match=r"input 'x0' has a value of another type .* expected tensor\(double\)"
    ):
        load(case.model)


EXCEPTIONS = {
    "GRU without_an_attribute": "hidden_size, which the weights tell",
    "LSTM without_an_attribute": "hidden_size, which the weights tell",
    "RNN without_an_attribute": "hidden_size, which the weights tell",
    "LSTM one_result_more": "onnxruntime has no layout 1",
    "LRN another_integer": "an even size, of which ONNX says what it is",
}
"""Cases that onnxruntime refuses and popsr reads, by op type and change, and why."""


def test_what_onnxruntime_refuses_of_changed_nodes_is_refused() -> None:
    """Compare in another process: onnxruntime ends its own on some wrong nodes."""
    made = subprocess.run(
        [sys.executable, "-m", "tests_py.bridge.onnx.wrong_nodes", "0"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert made.returncode == 0, made.stderr[-2000:]
    lines = made.stdout.splitlines()
    assert int(lines[-1].split()[0]) > 900
    assert [each for each in lines[:-1] if each.partition(":")[0] not in EXCEPTIONS] == []
