"""Graphs of popsr as models of ONNX."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from popsr._program.building.gaps import Gap, unsupported_ops
from popsr._program.graph import Graph
from popsr._program.op import Op
from popsr._program.tensor import Constant, Tensor
from popsr._support.host.arguments import read_mapping
from popsr._support.text.entry_points import public
from popsr._support.text.shown import shown
from popsr.bridge.onnx._export._rules import DOMAIN, EXPORTS, FUNCTIONS, OPSET
from popsr.bridge.onnx._model import OnnxModel
from popsr.bridge.onnx._places import name_of
from popsr.bridge.onnx._rules import NotSupportedError
from popsr.bridge.onnx._types import Array, code_of
from popsr.errors import ArgumentTypeError, ShapeError, UnknownNameError
from popsr.io._onnx.format import PRODUCER, require_onnx

__all__ = ["export"]

_IR_VERSION = 9


@public
def export(graph: Graph | OnnxModel, *, weights: Mapping[str, Any] | None = None) -> Any:
    """A graph as a model of ONNX.

    ``load(export(graph))`` computes the same bits. Calls are written in place. Ops that ONNX lacks and that are simple,
    as ``rsqrt``, are functions of the domain ``ai.popsr`` with bodies of ONNX's ops.

    Args:
        graph: the graph; or a model that was read, with its names and its initial weights.
        weights: values of inputs that are initializers of the model, by name: of a model that was read, new values,
            such as those of a session.
    Returns:
        The ``ModelProto``, of opset 20.
    Raises:
        UnsupportedOpsError: ops without a counterpart: all of them, with their places.
        UnknownNameError: weights of no input.
        MissingPackageError: onnx is not installed, or too old.
    """
    where = "bridge.onnx.export"
    onnx = require_onnx(where)
    given = {} if weights is None else dict(read_mapping(where, "weights", weights))
    if isinstance(graph, OnnxModel):
        names = {t: name for name, t in (*graph.inputs.items(), *graph.weights.items())}
        names.update((t, name) for name, t in graph.outputs.items())
        given = {**{name: graph.initial[name] for name in graph.weights}, **given}
        name, graph = graph.name, graph.graph
    elif isinstance(graph, Graph):
        name, names = graph.name.partition("_subgraph(")[0], {t: t.name for t in graph.inputs}
    else:
        raise ArgumentTypeError(f"{where}: not a graph, got {shown(graph)}, expected a Graph or an OnnxModel")
    arrays = {each: np.asarray(value) for each, value in given.items()}
    return _Writing(onnx, where, names, arrays).write(graph, name)


class _Writing:
    """One call of ``export``."""

    def __init__(self, onnx: Any, where: str, names: dict[Tensor, str], weights: dict[str, Array]) -> None:
        self._onnx, self._where, self._weights = onnx, where, weights
        self._names: dict[Tensor, str] = names
        self._taken = set(names.values())
        self._nodes: list[Any] = []
        self._fixed: list[Any] = []
        self._initializers: dict[str, Any] = {}
        self._constants: dict[Any, str] = {}
        self._functions: dict[str, None] = {}
        self._gaps: list[Gap] = []
        self._op: Op | None = None
        self._results: list[str] = []

    def write(self, graph: Graph, name: str) -> Any:
        inputs = [each for each in graph.inputs if self._names[each] not in self._weights]
        self._add_weights(graph)
        self._body(graph)
        outputs = [self._output(t) for t in graph.outputs]
        if self._gaps:
            raise unsupported_ops(self._where, self._gaps, "the notes name all of them")
        helper = self._onnx.helper
        made = helper.make_graph(
            [*self._fixed, *self._nodes],
            name or "graph",
            [self._info(self._names[t], t) for t in inputs],
            [self._info(each, t) for each, t in zip(outputs, graph.outputs, strict=True)],
            list(self._initializers.values()),
        )
        imports = [helper.make_opsetid("", OPSET)]
        if self._functions:
            imports.append(helper.make_opsetid(DOMAIN, 1))
        return helper.make_model(
            made,
            opset_imports=imports,
            ir_version=_IR_VERSION,
            producer_name=f"{PRODUCER}.bridge",
            functions=[self._function(each) for each in self._functions],
        )

    def _info(self, name: str, t: Tensor) -> Any:
        return self._onnx.helper.make_tensor_value_info(name, code_of(t.dtype), t.shape)

    def _add_weights(self, graph: Graph) -> None:
        known = {self._names[t]: t for t in graph.inputs}
        for name, value in self._weights.items():
            t = known.get(name)
            if t is None:
                raise UnknownNameError(
                    f"{self._where}: weights of no input, got {shown(name)}, expected one of {shown(list(known))}"
                )
            if value.shape != t.shape:
                raise ShapeError(
                    f"{self._where}: weight {shown(name)} does not fit, got {list(value.shape)}, expected "
                    f"{list(t.shape)}"
                )
            self._add(name, value.astype(t.dtype.as_numpy()))

    def _add(self, name: str, value: Array) -> None:
        self._initializers[name] = self._tensor(value, name)

    def _tensor(self, value: Array, name: str | None = None) -> Any:
        return self._onnx.numpy_helper.from_array(np.ascontiguousarray(value).reshape(value.shape), name)

    # Ops

    def _body(self, graph: Graph) -> None:
        for op in graph.ops:
            if op.kind == "call":
                self._call(op)
                continue
            self._op, self._results = op, []
            try:
                export = EXPORTS.get(op.kind)
                if export is None:
                    raise NotSupportedError("")
                self._results = [self._fresh_for(t) for t in op.outputs]
                export(self, op, ["" if t is None else self._name(t) for t in op.inputs])
            except NotSupportedError as error:
                self._gaps.append(Gap(f"{op.kind} ({error})" if str(error) else op.kind, op.location))
                self._names.update((t, "") for t in op.outputs)

    def _call(self, op: Op) -> None:
        """The ops of the graph, on the call's operands."""
        (graph,) = op.called_graphs
        before = dict(self._names)
        for inner, outer in zip(graph.inputs, op.inputs, strict=True):
            assert outer is not None
            self._names[inner] = self._name(outer)
        self._body(graph)
        results = [self._name(t) for t in graph.outputs]
        self._names = before
        self._names.update(zip(op.outputs, results, strict=True))

    def _name(self, t: Tensor) -> str:
        """The name of a value; that of a constant is a node."""
        found = self._names.get(t)
        if found is None:
            if not isinstance(t, Constant):
                raise NotSupportedError(f"reads {t.name} of another graph")
            data = t._ir._core.tensor_data(t._id)
            assert data is not None
            value = data.view(t.dtype.as_numpy()).reshape(t.shape)
            found = self._names[t] = self.constant(value, value.dtype)
        return found

    def _fresh_for(self, t: Tensor) -> str:
        name = self._names.get(t)
        if name is None:
            name = self._names[t] = self._unused(t.name)
        return name

    def _output(self, t: Tensor) -> str:
        """The name of an output, which a node must make."""
        name = self._name(t)
        if (
            name in self._weights
            or any(name == each for each in self._initializers)
            or name in self._input_names()
        ):
            self._results = [self._unused(f"{name}_out")]
            return self.node("Identity", [name])
        return name

    def _input_names(self) -> set[str]:
        made = {out for node in self._nodes for out in node.output}
        return {name for name in self._names.values() if name not in made}

    # Calls of exports

    def _unused(self, stem: str) -> str:
        name, number = stem, 1
        while name in self._taken:
            name, number = f"{stem}_{number}", number + 1
        self._taken.add(name)
        return name

    def fresh(self) -> str:
        """A new name."""
        return self._unused("value")

    def constant(self, value: Any, dtype: Any = np.int64) -> str:
        """A constant node before all others; equal ones are one."""
        array = np.asarray(value, dtype)
        key = (array.dtype, array.shape, array.tobytes())
        found = self._constants.get(key)
        if found is None:
            found = self._constants[key] = self._unused("constant")
            contiguous = np.ascontiguousarray(array).reshape(array.shape)  # a scalar stays one
            tensor = self._onnx.numpy_helper.from_array(contiguous)
            self._fixed.append(self._onnx.helper.make_node("Constant", [], [found], value=tensor))
        return found

    def node(
        self,
        op_type: str,
        inputs: Sequence[str],
        outputs: Sequence[str] | None = None,
        domain: str = "",
        **attributes: Any,
    ) -> str:
        """A node; its name is the location of the op."""
        if domain:
            self._functions[op_type] = None
        results = list(self._results if outputs is None else outputs)
        name = (name_of(self._op.location) if self._op is not None else "") or None
        made = self._onnx.helper.make_node(op_type, list(inputs), results, name, domain=domain, **attributes)
        self._nodes.append(made)
        return results[0]

    def _function(self, name: str) -> Any:
        """The body of an op that ONNX lacks."""
        text = f'<domain: "{DOMAIN}", opset_import: ["": {OPSET}]>\n{name} {FUNCTIONS[name][1]}'
        return self._onnx.parser.parse_function(text)
