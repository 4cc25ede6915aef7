"""A program as plain tables: to read a recording without the program, and to align two of them."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

from popsr import _core

if TYPE_CHECKING:
    from popsr.ir import Ir

__all__ = ["program_table"]

Table = dict[str, Any]

_GRAPHS = ("graph", "then_branch", "else_branch")


def program_table(ir: Ir) -> Table:
    """Version, replicas, graphs, ops, tensors and streams; ``program`` is a digest of all but lines."""
    core = ir._core
    table: Table = {
        "popsr": _core.__version__,
        "replicas": core.replication,
        "graphs": [_graph(core, graph) for graph in range(core.num_graphs)],
        "tensors": [_tensor(core, tensor) for tensor in range(core.num_tensors)],
        "streams": [core.stream(stream).name for stream in range(core.num_streams)],
    }
    ids = [(graph["id"], op) for graph in table["graphs"] for op in graph["ops"]]
    table["ops"] = [_op(core, graph, op) for graph, op in ids]
    without_lines = {**table, "ops": [{**op, "line": ""} for op in table["ops"]]}
    table["program"] = hashlib.blake2b(json.dumps(without_lines).encode(), digest_size=16).hexdigest()
    return table


def _graph(core: _core.Ir, graph: int) -> Table:
    ops: list[int] = []
    for op in core.graph_ops(graph):
        ops += [op, *core.op_parts(op)]
    return {
        "id": graph,
        "name": core.graph_name(graph),
        "ops": ops,
        "inputs": core.graph_inputs(graph),
        "outputs": core.graph_outputs(graph),
    }


def _op(core: _core.Ir, graph: int, op: int) -> Table:
    attributes = core.op_attributes(op)
    called = [attributes[name] for name in _GRAPHS if isinstance(attributes.get(name), int)]
    shown = {name: _shown(core, name, value) for name, value in attributes.items() if name not in _GRAPHS}
    rule = core.op_seed_rule(op)
    if rule is not None:
        shown["stochastic rounding"] = rule
    outputs = core.op_outputs(op)
    name = core.tensor(outputs[0]).name if outputs else core.op_kind(op)
    return {
        "id": op,
        "graph": graph,
        "kind": core.op_kind(op),
        "scope": name.rpartition("/")[0],
        "name": name,
        "line": core.location_of(op),
        "inputs": core.op_inputs(op),
        "outputs": outputs,
        "attributes": shown,
        "graphs": called,
        "stochastic": rule is not None,
    }


def _shown(core: _core.Ir, name: str, value: Any) -> str:
    if name == "stream" and isinstance(value, int):
        return repr(core.stream(value).name)
    return repr(value)


def _tensor(core: _core.Ir, tensor: int) -> Table:
    info = core.tensor(tensor)
    made: Table = {"name": info.name, "kind": info.kind, "dtype": info.dtype, "shape": list(info.shape)}
    if info.kind == "constant":
        data = core.tensor_data(tensor)
        bits = b"" if data is None else data.tobytes()
        made["data"] = hashlib.blake2b(bits, digest_size=8).hexdigest()
    return made
