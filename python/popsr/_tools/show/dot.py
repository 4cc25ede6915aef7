"""A program as a file of Graphviz: a box an op, an edge a tensor, a frame a graph."""

from __future__ import annotations

import os
from pathlib import Path

from popsr._program.graph import Graph
from popsr._program.ir import Ir
from popsr._program.op import Op
from popsr._program.tensor import Tensor
from popsr._support.host.arguments import is_a, read_path
from popsr._support.host.files import file_errors
from popsr._support.text.shown import shown
from popsr._tools.show.graph_tree import graphs_run_by
from popsr.errors import AttributeValueError

__all__ = ["dot_checkpoint", "dot_text", "write_dot_checks"]


def dot_checkpoint(ir: Ir, check: str, save_dir: str | os.PathLike[str] | None) -> None:
    """See :meth:`popsr.Ir.dot_checkpoint`."""
    where = "dot_checkpoint"
    _write(where, _path(where, check, save_dir), dot_text(ir))


def write_dot_checks(ir: Ir) -> None:
    """Write the files that the options ``dotChecks`` and its kin ask for.

    Raises:
        AttributeValueError: a name cannot be the name of a file; then none is written.
        FileError: a file cannot be written.
    """
    where, options = "Session: option dotChecks", ir.options
    paths = [_path(where, check, options.logDir or None) for check in sorted(options.dotChecks)]
    for path in paths:
        ops = slice(options.firstDotOp, options.finalDotOp)
        _write(where, path, dot_text(ir, ops, with_names=options.dotOpNames))


def _path(where: str, check: str, save_dir: str | os.PathLike[str] | None) -> Path:
    name = str.__str__(check) if is_a(check, str) else ""
    if name in ("", ".", "..") or set(name) & {"/", "\0"}:
        raise AttributeValueError(f"{where}: check is not a name of a file, got {shown(check)}")
    return read_path(where, "." if save_dir is None else save_dir) / f"{name}.dot"


def _write(where: str, path: Path, text: str) -> None:
    with file_errors(where, "write", path):
        path.write_text(text, encoding="utf-8")


def dot_text(ir: Ir, ops: slice = slice(None), *, with_names: bool = False) -> str:
    """The program in Graphviz's language.

    Args:
        ir: the program.
        ops: the ops of each graph that are shown, by their place in it.
        with_names: boxes of ops have their names too.
    """
    lines = ["digraph popsr {", "  compound=true;", "  node [shape=box];"]
    for number in range(ir._core.num_graphs):
        lines += _graph_lines(ir._graph(number), ops, with_names)
    return "\n".join([*lines, "}", ""])


def _graph_lines(graph: Graph, ops: slice, with_names: bool) -> list[str]:
    title = f"graph {graph.id}" if graph.id else "main graph"
    nodes = [f"graph{graph._id} [label={_quoted(title)}, shape=plaintext];"]
    edges = []
    sources: dict[Tensor, str] = {}
    for t in (*graph.inputs, *graph.variables, *graph.constants):
        sources[t] = f"tensor{t._id}"
        nodes.append(f"tensor{t._id} [label={_quoted(_type(t))}, shape=ellipse];")
    for op in graph.ops[ops]:
        name = f"\n{op.name}" if with_names else ""
        place = f"\n{op.location.rpartition(os.sep)[2]}" if op.location else ""
        nodes.append(f"op{op.id} [label={_quoted(op.kind + name + place)}];")
        edges += _edges(op, sources)
        sources |= dict.fromkeys(op.outputs, f"op{op.id}")
    for i, t in enumerate(graph.outputs):
        nodes.append(f"output{graph._id}_{i} [label={_quoted(f'output {i}')}, shape=ellipse];")
        edges.append(_edge(sources, t, f"output{graph._id}_{i}"))
    body = [f"    {node}" for node in nodes] + [f"    {edge}" for edge in edges]
    return [f"  subgraph cluster{graph._id} {{", *body, "  }"]


def _edges(op: Op, sources: dict[Tensor, str]) -> list[str]:
    edges = [_edge(sources, t, f"op{op.id}") for t in op.inputs if t is not None]
    for name, called in graphs_run_by(op):
        edges.append(f"op{op.id} -> graph{called._id} [style=dashed, label={_quoted(name)}];")
    return edges


def _edge(sources: dict[Tensor, str], t: Tensor, end: str) -> str:
    return f"{sources.get(t, f'tensor{t._id}')} -> {end} [label={_quoted(_type(t))}];"


def _type(t: Tensor) -> str:
    return f"{t.name}\n{t.dtype.name}{list(t.shape)}"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
