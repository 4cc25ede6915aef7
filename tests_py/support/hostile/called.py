"""Public functions, methods and constructors that take part in writing programs, and calls of them."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import popsr
from popsr import addons, ops, transforms
from popsr.addons import (
    array_munging,
    debugging,
    graph_cache,
    layers,
    named_replica_grouping,
    remote,
    route_tensor,
    rts,
    variable_factory,
)
from popsr.addons import ops as addons_ops
from popsr.addons import transforms as addons_transforms
from popsr.addons.transforms import batch_serialisation, pipelining, repeat_graph, serial_io
from popsr.ops import collectives, var_updates
from popsr.ops.program.control import CallSiteInfo
from tests_py.support.helpers import PUBLIC
from tests_py.support.hostile.world import World

__all__ = ["ARITHMETIC", "Call", "Target", "targets"]


@dataclasses.dataclass(frozen=True)
class Target:
    """Something that can be called: ``get`` finds it in a world."""

    name: str
    get: Callable[[World], Callable[..., Any]]
    op: str | None = None  # its row in op_cases


@dataclasses.dataclass(frozen=True)
class Call:
    """A call, and what is wrong with it."""

    target: Target
    fn: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    spoiled: str
    inside: popsr.Graph

    def __call__(self) -> Any:
        with self.inside:
            return self.alone()

    def alone(self) -> Any:
        """The call itself; ``inside`` is to be current."""
        return self.fn(*self.args, **self.kwargs)

    def __str__(self) -> str:
        return f"{self.target.name}({self.spoiled})"


# Called functions

# They change the process or wait for something outside it.
_LEFT_OUT = {
    "popsr.set_num_threads",
    "popsr.build_info",
    "addons.timer",
    "addons.print_FLOPs",
    "addons.DotTree",
    "addons.NameScopeMeta",
    "Module.build",  # of Net: not popsr's
}

ARITHMETIC = (
    *("add", "radd", "iadd", "sub", "rsub", "mul", "rmul", "truediv", "rtruediv"),
    *("mod", "rmod", "pow", "rpow"),
)
_OPERATORS = (
    *ARITHMETIC,
    *("matmul", "rmatmul", "and", "rand", "or", "ror", "invert", "neg", "abs", "getitem"),
)

_METHODS: tuple[tuple[str, type, Callable[[World], Any]], ...] = (
    ("Variable", popsr.Variable, lambda w: w.x),
    ("Tensor", popsr.Tensor, lambda w: w.y),
    ("Constant", popsr.Constant, lambda w: w.constant),
    ("Graph", popsr.Graph, lambda w: w.graph),
    ("main graph", popsr.Graph, lambda w: w.ir.main_graph),
    ("Ir", popsr.Ir, lambda w: w.ir),
    ("RemoteBuffer", popsr.RemoteBuffer, lambda w: w.buffer),
    ("CallSiteInfo", CallSiteInfo, lambda w: w.call),
    ("Module", addons.Module, lambda w: w.module),
    ("GraphWithNamedArgs", addons.GraphWithNamedArgs, lambda w: w.net),
    ("BoundGraph", addons.BoundGraph, lambda w: w.net.bind(w.variables)),
    ("VariableFactory", addons.VariableFactory, lambda w: w.factory),
    ("NamedVariableFactories", addons.NamedVariableFactories, lambda w: w.factories),
    ("NamedTensors", addons.NamedTensors, lambda w: w.variables),
    ("GraphCache", addons.GraphCache, lambda w: addons.GraphCache()),
    ("Pipelining", pipelining.Pipelining, lambda w: pipelining.Pipelining(w.ir.main_graph, 4)),
    (
        "PipelineBoundGraph",
        pipelining.PipelineBoundGraph,
        lambda w: pipelining.PipelineBoundGraph(w.net.graph),
    ),
    ("StageContext", pipelining.StageContext, lambda w: pipelining.StageContext()),
)


def _functions(prefix: str, module: Any) -> Iterator[Target]:
    for name in module.__all__:
        found = getattr(module, name)
        if f"{prefix}.{name}" in _LEFT_OUT or not callable(found):
            continue
        is_enum = inspect.isclass(found) and not hasattr(found, "__init__")
        on_arrays = getattr(found, "__module__", "") == array_munging.__name__
        if (inspect.isfunction(found) or inspect.isclass(found)) and not is_enum and not on_arrays:
            op = name if prefix in ("ops", "collectives", "var_updates") and name in PUBLIC else None
            yield Target(f"{prefix}.{name}", lambda _, fn=found: fn, op)  # type: ignore[misc]


def _methods(name: str, kind: type, instance: Callable[[World], Any]) -> Iterator[Target]:
    names = [each for each in dir(kind) if not each.startswith("_")]
    names += [f"__{each}__" for each in _OPERATORS if f"__{each}__" in vars(kind)]
    for each in names:
        found = inspect.getattr_static(kind, each)
        if f"{name}.{each}" not in _LEFT_OUT and (
            callable(found) or isinstance(found, (classmethod, staticmethod))
        ):
            yield Target(f"{name}.{each}", lambda w, each=each: getattr(instance(w), each))  # type: ignore[misc]
    setters = [
        each for each, found in vars(kind).items() if isinstance(found, property) and found.fset is not None
    ]
    for each in setters:
        yield Target(
            f"{name}.{each} = ",
            lambda w, each=each: lambda value: setattr(instance(w), each, value),  # type: ignore[misc]
        )


def targets() -> list[Target]:
    """Every public function, method and constructor that takes part in writing programs."""
    modules = {
        "popsr": popsr,
        "ops": ops,
        "collectives": collectives,
        "var_updates": var_updates,
        "transforms": transforms,
        "addons": addons,
        "addons.ops": addons_ops,
        "addons.transforms": addons_transforms,
        "addons.layers": layers,
        "batch_serialisation": batch_serialisation,
        "debugging": debugging,
        "graph_cache": graph_cache,
        "named_replica_grouping": named_replica_grouping,
        "pipelining": pipelining,
        "remote": remote,
        "repeat_graph": repeat_graph,
        "route_tensor": route_tensor,
        "rts": rts,
        "serial_io": serial_io,
        "variable_factory": variable_factory,
    }
    found = [target for prefix, module in modules.items() for target in _functions(prefix, module)]
    for name, kind, instance in _METHODS:
        found += _methods(name, kind, instance)
    return found
