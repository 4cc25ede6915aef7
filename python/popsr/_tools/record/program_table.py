"""A program as plain tables: to read a recording without the program, and to align two of them."""

from __future__ import annotations

import functools
import hashlib
import json
from typing import TYPE_CHECKING, Any

from popsr import _core

if TYPE_CHECKING:
    from popsr._program.ir import Ir

__all__ = ["program_table"]

Table = dict[str, Any]


@functools.cache
def _types() -> dict[str, dict[str, str]]:
    """Types of attributes by name, by kind of op."""
    schemas = _core.op_schemas()
    return {schema["name"]: {each["name"]: each["type"] for each in schema["attrs"]} for schema in schemas}


def program_table(ir: Ir, rules: _core.SeedRules) -> Table:
    """Version, replicas, graphs, ops, tensors and streams; ``program`` is a digest of all but lines.

    Args:
        ir: the program.
        rules: the seeds that its ops round with.
    """
    core = ir._core
    table: Table = {
        "popsr": _core.__version__,
        "replicas": core.replication,
        "graphs": [_graph(core, graph) for graph in range(core.num_graphs)],
        "tensors": [_tensor(core, tensor) for tensor in range(core.num_tensors)],
        "streams": [core.stream(stream).name for stream in range(core.num_streams)],
    }
    ids = [(graph["id"], op) for graph in table["graphs"] for op in graph["ops"]]
    table["ops"] = [_op(core, rules, graph, op) for graph, op in ids]
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


def _op(core: _core.Ir, rules: _core.SeedRules, graph: int, op: int) -> Table:
    kind = core.op_kind(op)
    called, streams, shown = [], [], {}
    for attribute, value in core.op_attributes(op).items():
        match _types()[kind][attribute]:
            case "graph":
                called.append(value)
            case "stream":  # its number is another one in an edited program
                streams.append(core.stream(value).name)
                shown[attribute] = repr(streams[-1])
            case _:
                shown[attribute] = repr(value)
    rule = rules.rule(core, op)
    if rule is not None:
        shown["stochastic rounding"] = rule
    outputs = core.op_outputs(op)
    name = core.tensor(outputs[0]).name if outputs else kind
    return {
        "id": op,
        "graph": graph,
        "kind": kind,
        "scope": name.rpartition("/")[0],
        "name": name,
        "line": core.location_of(op),
        "inputs": core.op_inputs(op),
        "outputs": outputs,
        "attributes": shown,
        "graphs": called,
        "streams": streams,
        "stochastic": rule is not None,
    }


def _tensor(core: _core.Ir, tensor: int) -> Table:
    info = core.tensor(tensor)
    made: Table = {"name": info.name, "kind": info.kind, "dtype": info.dtype, "shape": list(info.shape)}
    if info.kind == "constant":
        data = core.tensor_data(tensor)
        bits = b"" if data is None else data.tobytes()
        made["data"] = hashlib.blake2b(bits, digest_size=8).hexdigest()
    return made
