"""Ids and names of tensors and graphs, and how programs print: PopXL's rules."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import popsr
from popsr import errors, ops
from popsr.ops import collectives, var_updates
from popsr.transforms import autodiff

F32 = popsr.float32


def _double(x: popsr.Tensor) -> popsr.Tensor:
    return x + x


class Layer(popsr.Module):
    def build(self, x: popsr.Tensor) -> popsr.Tensor:
        w = popsr.graph_input((2,), F32, "w")
        with popsr.name_scope("inner"):
            return ops.mul(x, w)


def _variable(name: str | None = None) -> popsr.Variable:
    return popsr.variable(np.ones(2), F32, name)


# Tensors


def test_ids_of_the_main_graph_are_names() -> None:
    with popsr.Ir().main_graph as graph:
        del graph
        w, t, c = _variable("w"), _variable(), popsr.constant(1.0)
        made = [_double(w), ops.relu(w), w @ w, ops.init((2,), F32, "z"), ops.identity(w, "copy")]
    assert [x.id for x in (w, t, c)] == ["w", "t", "t__t0"]
    assert [x.id for x in made] == ["add_out", "relu_out", "matmul_out", "z", "copy"]
    assert {(x.scope, x.name == x.id) for x in made} == {("", True)}


def test_ids_in_other_graphs_start_with_the_graph() -> None:
    ir = popsr.Ir()
    with ir.main_graph:
        graph = ir.create_graph(Layer(), _variable())
    names = ["x", "w", "inner/mul_out"]
    assert [t.name for t in graph.tensors] == names
    assert [t.id for t in graph.tensors] == [f"Layer_subgraph(0)/{name}" for name in names]
    assert {t.scope for t in graph.tensors} == {graph.id}
    for t in graph.tensors:
        assert graph.get_tensor(t.id) is t


def test_name_scopes_are_prefixes() -> None:
    with popsr.Ir().main_graph, popsr.name_scope("a"), popsr.name_scope("b"):
        stream = popsr.h2d_stream((2,), F32, "in")
        made = [_variable("w"), popsr.constant(1.0), ops.host_load(stream), ops.init((), F32, "z")]
        made += [*ops.split(made[0], 2), ops.host_load(stream, "loaded")]
    assert stream.tensor_id == "a/b/in"
    assert [t.name for t in made] == [
        f"a/b/{name}" for name in ("w", "t", "in_load", "z", "slice_out", "slice_out__t0", "loaded")
    ]


def test_collisions_count_in_the_whole_program() -> None:
    ir = popsr.Ir()
    with ir.main_graph:
        x = _variable("x")
        main = [_double(x), _double(x), _double(x)]
        graph = ir.create_graph(lambda t: _double(t) + _double(t), x)
        other = ir.create_graph(lambda t: t, x)
    assert [t.name for t in main] == ["add_out", "add_out__t0", "add_out__t1"]
    assert [t.name for t in graph.tensors] == ["t", "add_out", "add_out__t2", "add_out__t3"]
    assert [t.name for t in other.tensors] == ["t"]  # another graph is another scope


def test_taken_suffixes_are_left_out() -> None:
    with popsr.Ir().main_graph:
        assert [_variable(name).id for name in ("x", "x__t0", "x", "x__t0")] == [
            "x",
            "x__t0",
            "x__t1",
            "x__t0__t2",
        ]


@pytest.mark.parametrize(
    ("make", "names"),
    [
        (lambda x: ops.add_(x, x), ["add__out"]),
        (lambda x: ops.topk(x, 1, 0, True, True), ["topk_out", "topk_out__t0"]),
        (lambda x: ops.reshape_(x, (2, 1)), ["reshape__out"]),
        (lambda x: collectives.replicated_all_reduce(x), ["replicated_all_reduce_out"]),
        (lambda x: var_updates.accumulate_(x, x), ["accumulate__out"]),
        (lambda x: x[0], ["slice_out", "squeeze_out"]),
    ],
)
def test_outputs_are_named_after_their_op(make: Callable[[popsr.Tensor], Any], names: list[str]) -> None:
    with popsr.Ir().main_graph as graph:
        make(_variable("x"))
        assert [t.name for t in graph.tensors[1:]] == names


# Graphs


def test_graph_ids_count_in_the_program() -> None:
    ir = popsr.Ir()

    def local(x: popsr.Tensor) -> popsr.Tensor:
        return x

    with ir.main_graph:
        x = _variable()
        graphs = [ir.create_graph(fn, x) for fn in (_double, local, lambda t: t, Layer())]
        ops.repeat(graphs[0], 2, x)  # PopXL makes a graph around the body
        graphs += [ir.create_graph(_double, x), ir.create_empty_graph("mine"), ir.create_empty_graph()]
    inside = "test_graph_ids_count_in_the_program"
    assert [graph.id for graph in graphs] == [
        "_double_subgraph(0)",
        f"{inside}.local_subgraph(1)",
        f"{inside}.<lambda>_subgraph(2)",
        "Layer_subgraph(3)",
        "_double_subgraph(5)",
        "mine_subgraph(6)",
        "graph_subgraph(7)",
    ]
    assert (ir.main_graph.id, ir.main_graph.name) == ("", "")
    assert popsr.Ir().create_empty_graph().id == "graph_subgraph(0)"  # each program counts for itself


def test_gradients_are_named_after_what_they_are_of() -> None:
    ir = popsr.Ir()
    with ir.main_graph:
        x, w = _variable("x"), _variable("w")

        def layer(x: popsr.Tensor, w: popsr.Tensor) -> popsr.Tensor:
            h = ops.tanh(x * w)
            return h + h * x

        graph = ir.create_graph(layer, x, w)
    info = autodiff(graph)
    assert info.graph.id == f"{graph.id}_bwd"
    assert [t.name for t in info.graph.inputs][:1] == ["Gradient___add_out"]
    assert [t.name for t in info.graph.inputs][1:] == [
        each.fwd_tensor.name for each in info.expected_inputs[1:]
    ]
    assert [t.name for t in info.graph.outputs] == ["Gradient___x", "Gradient___w"]
    assert [t.id for t in info.graph.outputs] == [
        f"{graph.id}_bwd/Gradient___x",
        f"{graph.id}_bwd/Gradient___w",
    ]
    names = {t.name for t in info.graph.tensors}
    assert {"Gradient___mul_out", "Gradient___tanh_out"} <= names  # and those on the way
    for t in info.graph.tensors:
        assert info.graph.get_tensor(t.id) is t


def test_gradient_graphs_are_numbered_from_the_second_on() -> None:
    ir = popsr.Ir()
    with ir.main_graph:
        graph = ir.create_graph(lambda t: ops.exp(t), _variable())
    ids = [autodiff(graph).graph.id for _ in range(3)]
    assert ids == [f"{graph.id}_bwd", f"{graph.id}_bwd_0", f"{graph.id}_bwd_1"]


def test_gradients_of_called_graphs_have_names_too() -> None:
    ir = popsr.Ir()
    with ir.main_graph:
        x = _variable("x")
        inner = ir.create_graph(lambda t: ops.exp(t), x)
        outer = ir.create_graph(lambda t: ops.call(inner, t)[0], x)
    infos = autodiff(outer, return_all_grad_graphs=True)
    assert {graph: [t.name for t in info.graph.outputs] for graph, info in infos.items()} == {
        outer: ["Gradient___t"],
        inner: ["Gradient___t"],
    }


# Text


def test_reprs() -> None:
    ir = popsr.Ir()
    with ir.main_graph:
        bob = popsr.variable(np.zeros(1, np.int32), popsr.int32, "bob")
        graph = ir.create_graph(lambda a: a, bob)
        buffer = popsr.remote_buffer((2,), F32, 3)
        assert repr(bob) == "Variable[bob popsr.dtypes.int32 (1,)]"
        assert repr(popsr.constant([1.0], name="c")) == "Constant[c popsr.dtypes.float32 (1,)]"
    assert repr(graph.inputs[0]) == f"Tensor[{graph.id}/a popsr.dtypes.int32 (1,)]"
    assert repr(graph) == f"Graph[id={graph.id} name={graph.id} inputs=1 ops=0]"
    assert repr(ir) == f"Ir[id={ir.id} replicas=1 graphs=2 ops=0 variables=1]"
    assert repr(buffer) == "RemoteBuffer[id=1 float32 (2,) entries=3]"
    assert repr(popsr.Session).endswith("Session'>")


def test_programs_print_as_they_are_written() -> None:
    ir = popsr.Ir(replication=2)
    with ir.main_graph:
        w = popsr.variable(np.ones((2, 2)), F32, "w", replica_grouping=ir.replica_grouping(group_size=1))
        graph = ir.create_graph(Layer(), w)
        ops.call(graph, w, ops.relu(w))
    text = re.sub(r"  # .*", "", str(ir))
    assert text == (
        "graph main() {\n"
        "  variable %w f32[2] ReplicaGrouping(num_replicas=2, stride=1, group_size=1, num_groups=2)\n"
        "  %relu_out f32[2] = relu(%w)\n"
        "  %call_out f32[2] = call(%w, %relu_out, graph='Layer_subgraph(0)')\n"
        "}\n"
        "graph 'Layer_subgraph(0)'(%x f32[2], %w f32[2]) {\n"
        "  %inner/mul_out f32[2] = mul(%x, %w)\n"
        "  return %inner/mul_out\n"
        "}\n"
    )
    assert str(ir.main_graph) + str(graph) == str(ir)
    assert f"# {__file__}:" in str(ir)
    (op,) = graph.ops
    assert repr(op).startswith("%Layer_subgraph(0)/inner/mul_out f32[2] = mul(%Layer_subgraph(0)/x,")


# Graphviz

NODE = re.compile(r'^    (\w+) \[label="((?:[^"\\]|\\.)*)"', re.MULTILINE)
EDGE = re.compile(r'^    (\w+) -> (\w+) \[.*label="((?:[^"\\]|\\.)*)"', re.MULTILINE)


def test_programs_are_written_for_graphviz(tmp_path: Path) -> None:
    ir = popsr.Ir()
    with ir.main_graph:
        w = _variable('w "quoted"')
        graph = ir.create_graph(Layer(), w)
        ops.call(graph, w, w)
    ir.dot_checkpoint("Fwd0", tmp_path)
    text = (tmp_path / "Fwd0.dot").read_text()
    nodes = dict(NODE.findall(text))
    edges = EDGE.findall(text)
    assert text.startswith("digraph popsr {\n")
    assert text.count("{") == text.count("}") == 3
    assert {label.partition("\\n")[0] for label in nodes.values()} == {
        "main graph", 'w \\"quoted\\"', "call", "graph Layer_subgraph(0)", "x", "w", "mul", "output 0",
    }  # fmt: skip
    assert {end for edge in edges for end in edge[:2]} <= set(nodes)
    kinds = [(nodes[a].partition("\\n")[0], nodes[b].partition("\\n")[0]) for a, b, _ in edges]
    assert sorted(kinds) == sorted([
        ('w \\"quoted\\"', "call"), ('w \\"quoted\\"', "call"), ("call", "graph Layer_subgraph(0)"),
        ("x", "mul"), ("w", "mul"), ("mul", "output 0"),
    ])  # fmt: skip
    assert ("inner/mul_out\\nfloat32[2]") in {label for _, _, label in edges}


def test_checkpoints_go_to_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    popsr.Ir().dot_checkpoint("Final")
    assert (tmp_path / "Final.dot").exists()


@pytest.mark.parametrize(
    ("check", "folder", "error", "match"),
    [
        ("", None, errors.AttributeValueError, r"dot_checkpoint: check is not a name of a file, got ''"),
        ("a/b", None, errors.AttributeValueError, r"got 'a/b'"),
        ("..", None, errors.AttributeValueError, r"got '\.\.'"),
        (3, None, errors.AttributeValueError, r"got 3"),
        ("All", 3, errors.ArgumentTypeError, r"dot_checkpoint: not the path of a file, got 3"),
        (
            "All",
            "missing",
            errors.FileError,
            r"dot_checkpoint: cannot write 'missing/All.dot', got No such file",
        ),
    ],
)
def test_refused_checkpoints(
    check: Any,
    folder: Any,
    error: type[Exception],
    match: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error, match=match):
        popsr.Ir().dot_checkpoint(check, folder)
    assert list(tmp_path.iterdir()) == []
