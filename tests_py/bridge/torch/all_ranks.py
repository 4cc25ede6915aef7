"""torch's answer to a graph with functional collectives, for all ranks in one process: node by node."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tests_py.bridge.torch.graphs.random_graphs import GROUPS, WORLD  # noqa: E402

__all__ = ["run_all"]


def members(name: str, rank: int) -> list[int]:
    return next(group for group in GROUPS[name] if rank in group)


def collective(name: str, of_ranks: list[Any], args: tuple[Any, ...]) -> list[Any]:
    """The results of a collective, in ascending rank order."""
    found = []
    for rank in range(WORLD):
        group = members(args[-1], rank)
        ts, place = [of_ranks[r] for r in group], group.index(rank)
        if name in ("all_reduce", "all_reduce_"):
            found.append(_reduced(ts, args[0]))
        elif name == "all_gather_into_tensor":
            found.append(torch.cat(ts))
        elif name == "reduce_scatter_tensor":
            found.append(_reduced(ts, args[0]).chunk(len(ts))[place])
        elif name == "all_to_all_single":
            found.append(torch.cat([t.chunk(len(ts))[place] for t in ts]))
        else:
            assert name == "broadcast"
            found.append(ts[args[0]].clone())
    if name.endswith("_"):
        return [t.copy_(new) for t, new in zip(of_ranks, found, strict=True)]
    return found


def _reduced(ts: list[Any], op: str) -> Any:
    if op == "sum":
        return torch.stack(ts).sum(0)
    if op == "avg":
        return torch.stack(ts).sum(0) / len(ts)
    return {"max": torch.Tensor.amax, "min": torch.Tensor.amin, "product": torch.prod}[op](torch.stack(ts), 0)


class _Generators:
    """torch's generator for each rank, seeded alike in groups."""

    def __init__(self, seeds: Iterable[int]) -> None:
        self._states = [torch.Generator().manual_seed(1000 + seed).get_state() for seed in seeds]

    def call(self, rank: int, op: Any, args: Any, options: Any) -> Any:
        torch.set_rng_state(self._states[rank])
        made = op(*args, **options)
        self._states[rank] = torch.get_rng_state()
        return made


def run_all(module: Any, inputs: list[list[Any]], seeds: Iterable[int] = range(WORLD)) -> list[list[Any]]:
    """Results of all ranks.

    Args:
        module: the graph.
        inputs: a list for each rank.
        seeds: of torch's generator on each rank.
    """
    values: list[dict[Any, Any]] = [{} for _ in range(WORLD)]
    given = [iter(each) for each in inputs]
    generators = _Generators(seeds)
    for node in module.graph.nodes:
        if node.op == "output":
            return [list(torch.fx.node.map_arg(node.args[0], lambda n, of=of: of[n])) for of in values]
        if node.op == "placeholder":
            for of, its in zip(values, given, strict=True):
                of[node] = next(its)
            continue
        if node.op == "get_attr":
            for of in values:
                of[node] = getattr(module, node.target).clone()
            continue
        args = [torch.fx.node.map_arg((node.args, node.kwargs), lambda n, of=of: of[n]) for of in values]
        name = str(node.target).split(".")[1] if "_c10d" in str(node.target) else ""
        if name and name != "wait_tensor":
            made = collective(name, [each[0][0] for each in args], args[0][0][1:])
        elif name:
            made = [each[0][0] for each in args]
        elif torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
            made = [generators.call(r, node.target, *each) for r, each in enumerate(args)]
        else:
            made = [node.target(*each, **options) for each, options in args]
        for of, value in zip(values, made, strict=True):
            of[node] = value
    raise AssertionError("no output")
