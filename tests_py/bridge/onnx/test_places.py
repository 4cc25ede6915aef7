"""Lints and explanations about a model of ONNX name its nodes: name, op type and position."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

import popsr
from popsr import ops
from popsr.errors import UnsupportedOpsError

pytest.importorskip("onnx")

from onnx import TensorProto, helper

from popsr.bridge.onnx import OnnxModel, export, load, prove
from tests_py.bridge.onnx.net import Net
from tests_py.bridge.onnx.test_training import training

GRAPHCORE = {"": 17, "ai.graphcore": 1}


def dense() -> Any:
    """A loss of one weight; names as exporters of PyTorch write them."""
    net = Net("dense")
    h = net.add("MatMul", [net.input("x", ["N", 4]), net.normal("w", (4, 3))], "/layer1/fc/MatMul")
    net.output(net.add("ReduceSum", [net.add("Tanh", [h], "/layer1/Tanh")], "/loss/ReduceSum", keepdims=0))
    return net.model(opsets=GRAPHCORE)


def read(proto: Any, **options: Any) -> OnnxModel:
    return load(proto, replicas=2, shapes={"N": 2}, **options)


def without_mean() -> OnnxModel:
    model = read(dense(), streams=False)
    training(model, 0.1, mean=False)
    return model


def equal_weights_summed() -> OnnxModel:
    net = Net()
    net.output(net.add("ReplicatedAllReduce", [net.normal("w", (4,))], "/comm/Sum", domain="ai.graphcore"))
    return read(net.model(opsets=GRAPHCORE))


def sum_in_a_branch() -> OnnxModel:
    """Each replica has a condition of its own, and a branch has a collective."""
    net = Net()
    net.input("x", (4,))
    net.input("c", (), TensorProto.BOOL)
    node = helper.make_node(
        "ReplicatedAllReduce", ["x"], ["summed"], "/then/Sum", domain="ai.graphcore", collectiveOperator="Max"
    )
    branches = {
        f"{name}_branch": helper.make_graph([each], name, [], [helper.make_empty_tensor_value_info(out)])
        for name, out, each in (
            ("then", "summed", node),
            ("else", "same", helper.make_node("Relu", ["x"], ["same"], "/else/Relu")),
        )
    }
    net.output(net.add("If", ["c"], "/gate/If", **branches))
    return read(net.model(opsets=GRAPHCORE))


def sum_over_other_groups() -> OnnxModel:
    """A weight of each replica alone is updated with a sum over all."""
    net = Net()
    own = popsr.Ir(2).replica_grouping(group_size=1)
    product = net.add("Mul", [net.input("x", (4,)), net.normal("w", (4,))], "/fc/Mul")
    net.output(net.add("ReplicatedAllReduce", [product], "/fc/Sum", domain="ai.graphcore"))
    model = read(net.model(opsets=GRAPHCORE), streams=False, groups={"w": own})
    with model.ir.main_graph, popsr.in_sequence():
        x = ops.host_load(popsr.h2d_stream((4,), popsr.float32, "x"))
        ops.var_updates.accumulate_(model.variables["w"], model.call({"x": x}).outputs[0], 0.1)
    return model


class Row(NamedTuple):
    """A program, the code of its lint, and texts with names of nodes that are in the lint or in the explanation."""

    model: Callable[[], OnnxModel]
    code: str
    lint: str = ""
    explained: str = ""


ROWS = {
    "a variable that drifts": Row(without_mean, "L2", explained="/layer1/fc/MatMul (MatMul):1: "),
    "a sum that is missing": Row(without_mean, "L11", explained="/layer1/fc/MatMul (MatMul):1: "),
    "a sum of equal values": Row(equal_weights_summed, "L6", "L6 /comm/Sum (ReplicatedAllReduce):1: "),
    "a collective in a branch": Row(sum_in_a_branch, "L1", "L1 /then/Sum (ReplicatedAllReduce):1: "),
    "the branch of a collective": Row(sum_in_a_branch, "L1", "conditional at /gate/If (If):1 parts them"),
    "another group": Row(sum_over_other_groups, "L7", "L7 /fc/Sum (ReplicatedAllReduce):2: "),
}


@pytest.mark.parametrize("name", ROWS)
def test_lints_name_the_node(name: str) -> None:
    row = ROWS[name]
    proof = prove(row.model())
    texts = [str(each) for each in proof.lints if each.code == row.code]
    assert texts
    assert any(row.lint in text for text in texts), texts
    if row.explained:
        assert row.explained in str(proof.explain("w"))


def test_names_stay_whole_in_short_texts() -> None:
    """A name with slashes is not a path: nodes of two layers stay apart."""
    net = Net()
    net.output(net.add("Odd", [net.input("x", (4,))], "/layer1/Act"))
    with pytest.raises(UnsupportedOpsError, match=r"got Odd at /layer1/Act \(Odd\):1, expected"):
        read(net.model())


def test_a_written_model_keeps_the_names_of_nodes() -> None:
    written = export(read(dense()))
    names = {node.name for node in written.graph.node}
    assert {"/layer1/fc/MatMul", "/layer1/Tanh", "/loss/ReduceSum"} <= names


def test_a_node_without_a_name_has_its_op_type() -> None:
    proto = dense()
    proto.graph.node[1].name = ""
    assert "Tanh:2" in [op.location for op in read(proto).graph.ops]
