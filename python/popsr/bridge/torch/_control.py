"""Branches and loops that ask data: ``torch.cond`` and ``while_loop`` as they stand in graphs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from popsr import dtypes, ops
from popsr._program.context import gir
from popsr._program.create_graph import graph_input, graph_output
from popsr._program.graph import Graph
from popsr._program.tensor import Tensor
from popsr.bridge.torch._dtypes import Scalar
from popsr.bridge.torch._rules import Gap, Site

__all__ = ["CONTROL", "is_dynamic", "no_seed"]

Run = Callable[[Any, Sequence[Any]], Any]
"""Ops of a graph module for values of its placeholders, into the current graph."""

Kind = tuple[tuple[int, ...], dtypes.dtype]


def _cond(run: Run, site: Site, pred: Any, taken: Any, other: Any, operands: Sequence[Any] = ()) -> list[Any]:
    """A conditional; a predicate that is known picks its branch."""
    kinds = _kinds(site)
    if isinstance(pred, Scalar):
        pred = pred.tensor
    if not isinstance(pred, Tensor):
        return _results(run(taken if pred else other, operands))
    if not kinds:
        raise Gap("without results")
    branches = [
        _graph(name, run, module, operands, kinds) for name, module in (("true", taken), ("false", other))
    ]
    (graph, inputs), (other_graph, other_inputs) = branches
    asked = site.tensor(pred, dtypes.bool)
    return list(ops.conditional(asked, graph, other_graph, inputs, other_inputs))


def _while_loop(
    run: Run, site: Site, cond: Any, body: Any, carried: Sequence[Any], operands: Sequence[Any] = ()
) -> list[Any]:
    """A loop that goes on, on each replica, while the condition holds there."""
    kinds = _kinds(site)
    start = [site.tensor(value, kind) for value, (_, kind) in zip(carried, kinds, strict=True)]
    values = [*start, *operands]
    graph, inputs = _graph("while_body", run, body, values, kinds)
    asked, _ = _graph("while_condition", run, cond, values, [((), dtypes.bool)])
    return list(ops.while_loop(asked, graph, inputs))


CONTROL: dict[str, Callable[..., list[Any]]] = {"cond": _cond, "while_loop": _while_loop}
"""By the name of a higher-order op: rules that take what runs its graphs."""


def is_dynamic(module: Any) -> bool:
    """True if some shape or number of a graph is a symbol. torch also notes symbols that only loops had inside."""
    import torch

    values = [node.meta.get("val") for node in module.graph.nodes]
    leaves = torch.utils._pytree.tree_leaves(values)
    dims = [dim for value in leaves if isinstance(value, torch.Tensor) for dim in value.shape]
    return any(isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool) for value in [*leaves, *dims])


def _kinds(site: Site) -> list[Kind]:
    values = site.value if isinstance(site.value, list | tuple) else [site.value]
    if not all(hasattr(value, "dtype") for value in values):
        raise Gap("results that are not tensors")
    return site.outputs()


def _graph(
    name: str, run: Run, module: Any, values: Sequence[Any], kinds: Sequence[Kind]
) -> tuple[Graph, list[Tensor]]:
    """A graph of a graph module, and the tensors to call it with; numbers that are known stay known in it."""
    given = [value.tensor if isinstance(value, Scalar) else value for value in values]
    tensors = [value for value in given if isinstance(value, Tensor)]
    graph = gir().create_empty_graph(name)
    with graph:
        inputs = iter([graph_input(t.shape, t.dtype, f"in{i}") for i, t in enumerate(tensors)])
        inner = [next(inputs) if isinstance(value, Tensor) else value for value in given]
        inner = [
            Scalar(value) if isinstance(outer, Scalar) else value
            for outer, value in zip(values, inner, strict=True)
        ]
        made = _results(run(module, inner))
        site = Site(None, _no_groups, no_seed)
        seen = set(graph.inputs)
        for value, (shape, kind) in zip(made, kinds, strict=True):
            out = site.expand(site.tensor(value, kind), shape)
            out = ops.identity(out) if out in seen else out
            seen.add(out)
            graph_output(out)
    return graph, tensors


def _results(made: Any) -> list[Any]:
    return list(made) if isinstance(made, list | tuple) else [made]


def _no_groups(name: str) -> Any:
    raise Gap(f"a process group {name}")


def no_seed() -> Tensor:
    """Refuse random ops."""
    raise Gap("random numbers in a branch or loop")
