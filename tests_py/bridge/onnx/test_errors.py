"""Models that cannot be read: typed errors that name the node, its op type and its position."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from popsr.bridge import UnsupportedOpsError
from popsr.errors import (
    ArgumentTypeError,
    AttributeValueError,
    CheckpointError,
    DTypeError,
    Error,
    GraphError,
    ShapeError,
    UnknownNameError,
    UnsupportedError,
)

onnx = pytest.importorskip("onnx")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402

from popsr.bridge.onnx import _importer, export, load  # noqa: E402
from popsr.io._onnx.wire import delimited  # noqa: E402
from tests_py.bridge.onnx.net import Net  # noqa: E402


def one(
    op_type: str, *shapes: tuple[int | str, ...], opset: int = 17, domain: str = "", **attributes: Any
) -> Any:
    """A model of one node ``here``."""
    net = Net()
    inputs = [net.input(f"x{i}", shape) for i, shape in enumerate(shapes)]
    net.output(net.add(op_type, inputs, "here", domain=domain, **attributes))
    return net.model(opset)


def empty(**parts: Any) -> Any:
    """A model whose graph hands its input on."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])
    graph = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["y"])], "g", [x], [helper.make_empty_tensor_value_info("y")]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    for name, value in parts.items():
        setattr(model, name, value)
    return model


def changed(change: Callable[[Any], object]) -> Any:
    """``empty`` with its message changed."""
    model = empty()
    change(model)
    return model


def without_opset(model: Any) -> None:
    del model.opset_import[:]


def with_opset(version: int) -> Callable[[Any], object]:
    return lambda model: setattr(model.opset_import[0], "version", version)


def cycle(model: Any) -> None:
    model.graph.node[0].input[0] = "z"
    model.graph.node.append(helper.make_node("Relu", ["y"], ["z"], "back"))


def twice(model: Any) -> None:
    model.graph.input.append(model.graph.input[0])


def nowhere(model: Any) -> None:
    model.graph.output[0].name = "no such value"


def of_strings(model: Any) -> None:
    model.graph.input[0].type.tensor_type.elem_type = TensorProto.STRING


def of_sequence(model: Any) -> None:
    model.graph.input[0].type.CopyFrom(helper.make_sequence_type_proto(helper.make_tensor_type_proto(1, [2])))


def negative(model: Any) -> None:
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = -3


def shapeless(model: Any) -> None:
    model.graph.input[0].type.tensor_type.ClearField("shape")


def initializer(**fields: Any) -> Callable[[Any], object]:
    def change(model: Any) -> None:
        tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[2])
        for name, value in fields.items():
            if isinstance(value, list):
                del getattr(tensor, name)[:]
                getattr(tensor, name).extend(value)
            else:
                setattr(tensor, name, value)
        model.graph.initializer.append(tensor)

    return change


def same_initializers(model: Any) -> None:
    for _ in range(2):
        model.graph.initializer.append(numpy_helper.from_array(np.zeros(2, np.float32), "w"))


def itself(model: Any) -> None:
    call = helper.make_node("f", ["a"], ["b"], domain="own")
    model.functions.append(helper.make_function("own", "f", ["a"], ["b"], [call], []))
    model.graph.node[0].op_type, model.graph.node[0].domain = "f", "own"


def calls(levels: int, each: int) -> Callable[[Any], object]:
    """Functions that call the one before, each so many times."""

    def change(model: Any) -> None:
        imports = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
        for level in range(levels):
            inner, domain = (f"f{level - 1}", "own") if level else ("Identity", "")
            names = ["a", *(f"m{i}" for i in range(each - 1)), "b"]
            nodes = [helper.make_node(inner, [x], [y], domain=domain) for x, y in itertools.pairwise(names)]
            model.functions.append(helper.make_function("own", f"f{level}", ["a"], ["b"], nodes, imports))
        model.graph.node[0].op_type, model.graph.node[0].domain = f"f{levels - 1}", "own"

    return change


def quantised(axis: int) -> Any:
    net = Net()
    scales = net.constant(np.ones(3, np.float32))
    net.output(net.add("QuantizeLinear", [net.input("x", (2, 3)), scales], "here", axis=axis))
    return net.model()


def shape_that_is_an_input() -> Any:
    net = Net()
    net.output(net.add("Reshape", [net.input("x0", (2,)), net.input("x1", (1,), TensorProto.INT64)], "here"))
    return net.model()


REFUSED: dict[str, tuple[Any, type[Error], str]] = {
    "no model": (3, ArgumentTypeError, "model is not a model, got 3, expected a path or a ModelProto"),
    "no opset": (changed(without_opset), GraphError, "model without opsets, got no opset_import"),
    "a later opset": (
        changed(with_opset(99)),
        UnsupportedError,
        "opset is not known, got 99, expected 1 to 28",
    ),
    "a cycle": (
        changed(cycle),
        GraphError,
        "node (Identity) at position 1 reads what no earlier node makes, got 'z'",
    ),
    "an output of no node": (changed(nowhere), GraphError, "output that no node makes, got 'no such value'"),
    "an input twice": (changed(twice), GraphError, "two inputs of one name"),
    "strings": (changed(of_strings), UnsupportedOpsError, "input (element type string) at x:1"),
    "a sequence": (changed(of_sequence), UnsupportedOpsError, "input (sequence instead of a tensor) at x:1"),
    "a negative extent": (changed(negative), ShapeError, "input 'x' has a wrong shape, got [-3]"),
    "no shape": (changed(shapeless), ShapeError, "input 'x' has no shape"),
    "a symbol": (one("Relu", ("N", 3)), ShapeError, "input 'x0' has a symbolic dimension, got 'N' at axis 0"),
    "initializers of one name": (
        changed(same_initializers),
        CheckpointError,
        "two initializers of one name, got 'w'",
    ),
    "too little data": (
        changed(initializer(raw_data=b"123")),
        CheckpointError,
        "initializer contradicts itself, got 'w'",
    ),
    "too much data": (
        changed(initializer(float_data=[1.0] * 3)),
        CheckpointError,
        "contradicts itself, got 'w'",
    ),
    "a huge tensor": (
        changed(initializer(dims=[1 << 40, 1 << 40])),
        CheckpointError,
        "contradicts itself, got 'w'",
    ),
    "a negative dimension": (changed(initializer(dims=[-2])), CheckpointError, "contradicts itself, got 'w'"),
    "floats of another 8 bits": (
        changed(initializer(data_type=TensorProto.FLOAT8E5M2FNUZ)),
        UnsupportedOpsError,
        "initializer (element type float8e5m2fnuz) at w:1",
    ),
    "4 bits that contradict themselves": (
        changed(initializer(data_type=TensorProto.INT4, raw_data=b"123")),
        CheckpointError,
        "contradicts itself, got 'w'",
    ),
    "data elsewhere": (
        changed(initializer(data_location=1)),
        UnsupportedError,
        "initializer 'w' has its data in another file, got a message without a folder",
    ),
    "depth": (changed(calls(40, 1)), GraphError, "graphs and functions inside each other, got more than 32"),
    "a function that calls itself": (changed(itself), GraphError, "function that calls itself, got 'f'"),
    "functions of a million nodes": (
        changed(calls(20, 2)),
        GraphError,
        "functions and loops of too many nodes",
    ),
    "an unknown op": (one("Nonsense", (2,)), UnsupportedOpsError, "got Nonsense at here (Nonsense):1"),
    "an unknown domain": (
        one("Relu", (2,), domain="com.x"),
        UnsupportedOpsError,
        "Relu (of the domain com.x, which the model does not import) at here (Relu):1",
    ),
    "an op of a later opset": (
        one("Gelu", (2,), opset=13),
        UnsupportedOpsError,
        "Gelu (of opset 13, expected 20 or later) at here (Gelu):1",
    ),
    "shapes that do not fit": (one("Add", (2,), (3,)), ShapeError, "node 'here' (Add) at position 1: add: "),
    "an attribute of another type": (
        one("Flatten", (2, 3), axis=1.5),
        AttributeValueError,
        "node 'here' (Flatten) at position 1 has an attribute of a wrong type, got 'axis' of type 1, expected 2",
    ),
    "an axis out of range": (one("Concat", (2,), (2,), axis=7), Error, "node 'here' (Concat) at position 1"),
    "a shape that is an input": (
        shape_that_is_an_input(),
        UnsupportedOpsError,
        "Reshape (its shape is not known when the model is read: give values of 'x1') at here (Reshape):1",
    ),
    "too few operands": (
        one("Add", (2,)),
        AttributeValueError,
        "node 'here' (Add) at position 1 lacks the operand 'B', got ['x0'], expected a name at place 2",
    ),
    "scales along an axis that is not there": (
        quantised(axis=2),
        AttributeValueError,
        "axis 2",
    ),
    "an activation that is not there": (
        one("LeakyRelu", (2,), alpha="much"),
        AttributeValueError,
        "attribute of a wrong type, got 'alpha' of type 3, expected 1",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, kind, text = REFUSED[case]
    monkeypatch.setattr(_importer, "MAX_NODES", 1 << 12)  # reached sooner
    with pytest.raises(kind, match=re.escape(text)) as found:
        load(model)
    assert "\n" not in str(found.value)
    assert str(found.value).startswith("bridge.onnx.load: ")


def test_all_nodes_without_a_counterpart_are_in_one_error() -> None:
    net = Net()
    x = net.input("x", (2,))
    for i in range(3):
        x = net.add("Relu", [net.add("Unheard", [x], f"first{i}")])
        net.output(net.add("Mystery", [net.inputs[0].name], f"second{i}"))
    with pytest.raises(UnsupportedOpsError) as found:
        load(net.model())
    # Nodes that read an unread result are named too: whether there is a rule needs no shapes.
    assert [str(gap) for gap in found.value.gaps] == [
        "Unheard at first0 (Unheard):1",
        "Mystery at second0 (Mystery):3",
        "Unheard at first1 (Unheard):4",
        "Mystery at second1 (Mystery):6",
        "Unheard at first2 (Unheard):7",
        "Mystery at second2 (Mystery):9",
    ]


def test_huge_results_take_no_memory() -> None:
    net = Net()
    depth = net.constant(np.array([1 << 40]))
    pair = net.constant(np.array([0.0, 1.0], np.float32))
    net.output(net.add("OneHot", [net.input("x", (2,), TensorProto.INT64), depth, pair], "hot"))
    with pytest.raises(
        UnsupportedOpsError, match=r"elements that are known when the model is read\) at hot \(OneHot\):3"
    ):
        load(net.model())


@pytest.mark.parametrize(
    ("options", "kind", "text"),
    [
        ({"values": {"z": 1}}, UnknownNameError, "values of what is not an input, got 'z'"),
        (
            {"values": {"x": np.zeros(2)}},
            DTypeError,
            "value of 'x' has another type, got float64, expected float32",
        ),
        ({"weights": "frozen"}, AttributeValueError, "weights"),
        ({"replicas": 0}, AttributeValueError, "replicas"),
        ({"shapes": 4}, ArgumentTypeError, "shapes"),
    ],
)
def test_options(options: dict[str, Any], kind: type[Error], text: str) -> None:
    with pytest.raises(kind, match=re.escape(text)):
        load(empty(), **options)


def test_calls_of_a_model() -> None:
    model = load(empty())
    with pytest.raises(
        UnknownNameError, match=re.escape("run: not the model's inputs, got ['z'], expected ['x']")
    ):
        model.run({"z": 1})
    with model.ir.main_graph, pytest.raises(UnknownNameError, match="call: not the model's inputs"):
        model.call({})
    with pytest.raises(Error, match="run: model without streams"):
        load(empty(), streams=False).run({"x": np.zeros(2, np.float32)})


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(b"\x08")
    with pytest.raises(CheckpointError, match=r"^bridge\.onnx\.load"):
        load(path)
    path.write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"load_onnx: .* is empty|bridge.onnx.load"):
        load(path)
    with pytest.raises(OSError, match="No such file"):
        load(tmp_path / "none.onnx")
    with pytest.raises(OSError, match="cannot read"):
        load(tmp_path)


def test_files_of_many_fields_are_refused_before_they_become_messages(tmp_path: Path) -> None:
    """Two bytes of a file can become hundreds of a message."""
    nodes = b"\x0a\x00" * (1 << 20 | 1 << 16)
    path = tmp_path / "m.onnx"
    path.write_bytes(b"\x08\x08" + delimited(7, len(nodes)) + nodes)
    with pytest.raises(CheckpointError, match=r"^bridge\.onnx\.load: .* has too many protobuf fields"):
        load(path)


def test_data_in_other_files_is_read_unless_refused(tmp_path: Path) -> None:
    net = Net()
    net.weight("w", np.arange(600, dtype=np.float32))
    net.output(net.add("Add", [net.input("x", (600,)), "w"]))
    path = tmp_path / "m.onnx"
    onnx.save(net.model(), path, save_as_external_data=True, location="m.bin", size_threshold=0)
    with pytest.raises(UnsupportedError, match="initializer 'w' has its data in another file"):
        load(path, external_data=False)
    read = load(path)
    np.testing.assert_array_equal(read.run({"x": np.ones(600, np.float32)})["add0.out"], np.arange(600) + 1)


@pytest.mark.parametrize(
    ("graph", "options", "kind", "text"),
    [
        (3, {}, ArgumentTypeError, "not a graph, got 3, expected a Graph or an OnnxModel"),
        (load(empty()), {"weights": {"w": 1}}, UnknownNameError, "weights of no input, got 'w'"),
        (
            load(empty()),
            {"weights": {"x": np.zeros(3)}},
            ShapeError,
            "weight 'x' does not fit, got [3], expected [2]",
        ),
    ],
    ids=["no graph", "no such weight", "another shape"],
)
def test_exports(graph: Any, options: dict[str, Any], kind: type[Error], text: str) -> None:
    with pytest.raises(kind, match=re.escape(text)):
        export(graph, **options)


def test_a_loop_of_many_passes_is_refused() -> None:
    body = helper.make_graph(
        [helper.make_node("Identity", ["c"], ["d"]), helper.make_node("Concat", ["v", "v"], ["w"], axis=0)],
        "body",
        [
            helper.make_tensor_value_info("i", 7, []),
            helper.make_tensor_value_info("c", 9, []),
            helper.make_tensor_value_info("v", 1, None),
        ],
        [helper.make_tensor_value_info("d", 9, []), helper.make_tensor_value_info("w", 1, None)],
    )
    net = Net()
    count = net.constant(np.array(1 << 40))
    net.output(net.add("Loop", [count, "", net.input("x", (2,))], "loop", body=body))
    with pytest.raises(
        UnsupportedOpsError, match=r"Loop \(.*changes its shape from pass to pass\) at loop \(Loop\):2"
    ):
        load(net.model())


def test_ops_behind_a_missing_op_are_named() -> None:
    net = Net()
    x = net.add("Relu", [net.input("x", (2,))], "first")
    alpha = net.add("Alpha", [x], "alpha", domain="foreign")
    beta = net.add("Beta", [alpha], "beta", domain="foreign")
    known = net.add("Relu", [beta], "known")
    gelu = net.add("Gelu", [known], "a_function_of_onnx")
    net.output(gelu)
    net.output(net.add("Gamma", [x], "gamma", domain="foreign"))
    with pytest.raises(UnsupportedOpsError, match="3 kinds of op without a counterpart") as caught:
        load(net.model(20))
    assert [gap.op.split()[0] for gap in caught.value.gaps] == ["Alpha", "Beta", "Gamma"]


def branch(op_type: str, *operands: str, **attributes: Any) -> Any:
    """A graph of one node."""
    node = helper.make_node(op_type, operands, ["r"], f"in_{op_type}", **attributes)
    return helper.make_graph([node], op_type, [], [helper.make_empty_tensor_value_info("r")])


def choice(condition: str, then: Any, other: Any) -> Any:
    """A branch of one of two graphs, whose condition depends on an input; and an op of its result."""
    net = Net()
    net.input("x", (2, 3))
    net.input("shape", (1,), TensorProto.INT64)
    net.input("c", (), TensorProto.BOOL)
    net.weight("one", np.ones(1, np.int64))
    kind = TensorProto.BOOL
    made = {
        "input": lambda: "c",
        "missing": lambda: net.add("Cast", [net.add("Odd", ["x"], "odd")], to=kind),
        "equal": lambda: net.add("Equal", ["shape", "one"], "equal"),
    }[condition]()
    made = net.add("If", [made], "choice", then_branch=then, else_branch=other)
    net.output(net.add("Later", [net.add("Relu", [made])], "later"))
    return net.model()


FIRST, FLAT = branch("Squeeze", "x", "one"), branch("Flatten", "x", axis=0)
INSIDE: dict[str, tuple[Any, list[str], tuple[str, ...]]] = {
    "a branch that does not fit": (
        choice("equal", FIRST, FLAT),
        ["If (its condition, of branches with different results, is not known when the model is read: give values of "
         "'shape')", "Later"],
        ("shape",),
    ),
    "a shape in a branch": (
        choice("input", branch("Reshape", "x", "shape"), FLAT),
        ["Reshape (its shape is not known when the model is read: give values of 'shape')", "Later"],
        ("shape",),
    ),
    "both branches": (choice("input", branch("A", "x"), branch("B", "x")), ["A", "B", "Later"], ()),
    "behind a missing condition": (
        choice("missing", branch("A", "x"), branch("Gelu", "x")),
        ["Odd", "A", "Gelu (of opset 17, expected 20 or later)", "Later"],
        (),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", INSIDE)
def test_what_is_missing_inside_is_named_once(name: str) -> None:
    proto, gaps, needed = INSIDE[name]
    with pytest.raises(UnsupportedOpsError) as found:
        load(proto)
    assert sorted(each.op for each in found.value.gaps) == sorted(gaps)
    assert getattr(found.value, "needed", ()) == needed


def test_values_decide_a_branch_on_a_shape() -> None:
    proto = INSIDE["a branch that does not fit"][0]
    proto.graph.node[-1].op_type = "Neg"
    model = load(proto, values={"shape": np.array([6])})
    assert model.outputs["later.out"].shape == (1, 6)


def test_ops_inside_functions_behind_a_missing_op_are_named() -> None:
    net = Net()
    net.output(net.add("f", [net.add("Odd", [net.input("x", (2,))])], domain="own"))
    model = net.model(opsets={"": 17, "own": 1})
    nodes = [helper.make_node("Relu", ["a"], ["m"]), helper.make_node("Even", ["m"], ["b"])]
    model.functions.append(
        helper.make_function("own", "f", ["a"], ["b"], nodes, [helper.make_opsetid("", 17)])
    )
    with pytest.raises(UnsupportedOpsError) as found:
        load(model)
    assert [each.op for each in found.value.gaps] == ["Odd", "Even"]
