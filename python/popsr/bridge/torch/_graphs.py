"""``from_export`` and ``from_fx``: programs of ``torch.export`` and graphs of ATen ops."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from popsr import _core
from popsr._support.host.arguments import read_int, read_mapping
from popsr._support.host.frameworks import framework
from popsr._support.text.entry_points import public
from popsr._support.text.shown import shown
from popsr.bridge._step.builder import StepBuilder, Unsupported
from popsr.bridge._step.step import BridgedStep
from popsr.bridge.torch._control import is_dynamic
from popsr.bridge.torch._dtypes import dtype_of
from popsr.bridge.torch._importer import Importer, array_of
from popsr.bridge.torch._ranks.job import grouping_of_one, grouping_of_ranks, is_running
from popsr.bridge.torch._states.storage import overlaps
from popsr.bridge.torch._step_of import Groups, RandomSeeds, Values, add_results
from popsr.bridge.torch._tracing.capture import functional, primitive
from popsr.bridge.torch._tracing.decompositions import decompositions
from popsr.bridge.torch._tracing.simplify import simplify
from popsr.errors import ArgumentTypeError, ReplicaError, UnsupportedError
from popsr.replicas import ReplicaGrouping

__all__ = ["from_export", "from_fx"]

_WORLD = "0"  # torch's name of the group of all ranks


@public
def from_export(
    program: Any,
    *,
    replicas: int,
    groups: Mapping[str, Any] | None = None,
    equal: Iterable[str] = (),
    process_groups: Mapping[str, Any] | None = None,
    unsupported: Unsupported = "error",
) -> BridgedStep:
    """Read a program of ``torch.export.export``, with functional collectives or without.

    Parameters and buffers are states under their names, buffers that the program writes are updated; inputs of the
    user are data under their names, and what it returns is ``result[0]`` and so on.

    Args:
        program: the exported program, of fixed shapes.
        replicas: number of replicas that run it.
        groups: replicas that hold equal values, by patterns of paths, as for ``trace_step``. Default: all for states,
            none for data.
        equal: patterns of paths of what all replicas share.
        process_groups: groups of ranks by the name of a process group in the graph. Groups of the job that the user
            has started are known, where they are regular; the name of the group of all ranks is ``"0"``.
        unsupported: "conservative" lets a program with ops that popsr lacks be proved.
    Raises:
        UnsupportedOpsError: the program has ops that popsr lacks; all of them are named, with lines.
        UnsupportedError: it has dynamic shapes.
        ReplicaError: the ranks of a process group are unknown.
    """
    where = "from_export"
    torch = framework(where, "torch")
    if not isinstance(program, torch.export.ExportedProgram):
        raise ArgumentTypeError(
            f"{where}: program is not one of torch.export, got {shown(program)}, expected an ExportedProgram"
        )
    if program.range_constraints and is_dynamic(program.graph_module):
        raise UnsupportedError(
            f"{where}: the program has dynamic shapes, got {sorted(map(str, program.range_constraints))}, expected "
            "an export without dynamic_shapes"
        )
    with warnings.catch_warnings():
        for kind in (FutureWarning, UserWarning):
            warnings.simplefilter("ignore", kind)  # of torch about its own calls
        program = program.run_decompositions(decompositions())
    module, signature = program.graph_module, program.graph_signature
    simplify(module)
    written = [s.target for s in signature.output_specs if s.kind.name == "BUFFER_MUTATION"]
    _check_memory(where, {**program.constants, **program.state_dict}, written)
    builder, importer, patterns, seeds = _reader(where, replicas, groups, equal, process_groups, unsupported)
    examples = iter(torch.utils._pytree.tree_leaves(program.example_inputs))
    with builder:
        inputs = [
            _exported_input(builder, program, spec, patterns, examples) for spec in signature.input_specs
        ]
        made = importer.run(module, inputs)
        results = []
        for spec, value in zip(signature.output_specs, made, strict=True):
            if spec.kind.name == "BUFFER_MUTATION":
                builder.update(spec.target, value)
            elif spec.kind.name in ("USER_OUTPUT", "LOSS_OUTPUT"):
                results.append(value)
        add_results(builder, {f"result[{i}]": {} for i in range(len(results))}, results)
        seeds.finish()
        found = builder.finish()
    patterns.require_used_in(found)
    return found


def _check_memory(where: str, given: Mapping[str, Any], written: Iterable[str]) -> None:
    """Refuse writes of a tensor that shares memory with another one: a graph has them apart.

    Raises:
        UnsupportedError: with both names.
    """
    import torch

    tensors = {name: t for name, t in given.items() if isinstance(t, torch.Tensor)}
    names, changed = list(tensors), set(written)
    for i, j in sorted(overlaps(list(tensors.values()))):
        if changed & {names[i], names[j]}:
            raise UnsupportedError(
                f"{where}: tensors that share memory are written, got {shown(names[i])} and {shown(names[j])}, "
                "expected memory of their own"
            )


def _exported_input(builder: StepBuilder, program: Any, spec: Any, patterns: Groups, examples: Any) -> Any:
    kind = spec.kind.name
    if kind in ("PARAMETER", "BUFFER"):
        lasting = spec.target in program.state_dict
        return _state(
            builder,
            spec.target,
            (program.state_dict if lasting else program.constants)[spec.target],
            patterns,
        )
    if kind == "CONSTANT_TENSOR":
        t = program.constants[spec.target]
        return builder.constant(spec.target, array_of(t), dtype_of(t.dtype))
    if kind == "USER_INPUT":
        value = next(examples)
        return _data(builder, spec.arg.name, value, patterns) if hasattr(value, "dtype") else value
    raise UnsupportedError(f"from_export: input of another kind, got {kind} {spec.target}, expected tensors")


def _state(builder: StepBuilder, path: str, t: Any, patterns: Groups) -> Any:
    return builder.state(path, *_of_groups(t, patterns.of(path) or builder.all()), dtype=dtype_of(t.dtype))


def _of_groups(t: Any, grouping: ReplicaGrouping) -> tuple[Any, ReplicaGrouping]:
    return Values([array_of(t)], grouping.num_replicas).of_groups(grouping), grouping


def _data(builder: StepBuilder, path: str, t: Any, patterns: Groups) -> Any:
    grouping = patterns.of(path) or builder.each()
    values = Values([array_of(t)], grouping.num_replicas)
    rows = values.of_groups(grouping)
    return builder.data(path, tuple(t.shape), dtype_of(t.dtype), grouping, example=rows)


@public
def from_fx(
    module: Any,
    *inputs: Any,
    replicas: int,
    states: Mapping[str, int] | None = None,
    groups: Mapping[str, Any] | None = None,
    equal: Iterable[str] = (),
    process_groups: Mapping[str, Any] | None = None,
    unsupported: Unsupported = "error",
) -> BridgedStep:
    """Read a graph of ATen ops, such as one of ``make_fx``. Writes and views are resolved first.

    Placeholders are data under their names, except for states: those that the graph writes in place, and those of
    ``states``. What the graph returns is ``result[0]`` and so on.

    Args:
        module: the graph module.
        inputs: a tensor or number for each placeholder, in order: the initial value of a state, an example of data.
        replicas: number of replicas that run it.
        states: number of the result that is a placeholder's new value, by the placeholder's name.
        groups: replicas that hold equal values, by patterns of paths, as for ``trace_step``. Default: all for states,
            none for data.
        equal: patterns of paths of what all replicas share.
        process_groups: groups of ranks by the name of a process group, as for ``from_export``.
        unsupported: "conservative" lets a graph with ops that popsr lacks be proved.
    Raises:
        UnsupportedOpsError: the graph has ops that popsr lacks; all of them are named, with lines.
        UnsupportedError: a shape depends on the data.
        ReplicaError: the ranks of a process group are unknown.
    """
    where = "from_fx"
    torch = framework(where, "torch")
    if not isinstance(module, torch.fx.GraphModule):
        raise ArgumentTypeError(
            f"{where}: module is not a graph, got {shown(module)}, expected a GraphModule"
        )
    names = [node.target for node in module.graph.nodes if node.op == "placeholder"]
    if len(names) != len(inputs):
        raise ArgumentTypeError(
            f"{where}: another number of inputs, got {len(inputs)}, expected {len(names)}"
        )
    traced = functional(primitive(module, inputs), inputs, keep_writes=True)
    written: dict[int, int] = traced.meta["written"]
    _check_memory(where, dict(zip(names, inputs, strict=True)), [names[i] for i in written])
    new = {names[i]: number for i, number in written.items()} | dict(states or {})
    builder, importer, patterns, seeds = _reader(where, replicas, groups, equal, process_groups, unsupported)
    with builder:
        given: list[Any] = []
        for name, value in zip(names, inputs, strict=True):
            is_tensor = isinstance(value, torch.Tensor)
            read = _state if name in new else _data
            given.append(read(builder, name, value, patterns) if is_tensor else value)
        made = importer.run(traced, given)
        made = list(made) if isinstance(made, list | tuple) else [made]
        for name, number in new.items():
            builder.update(name, made[number])
        results = made[: traced.meta["returned"]]
        add_results(builder, {f"result[{i}]": {} for i in range(len(results))}, results)
        seeds.finish()
        found = builder.finish()
    patterns.require_used_in(found)
    return found


def _reader(
    where: str,
    replicas: int,
    groups: Mapping[str, Any] | None,
    equal: Iterable[str],
    process_groups: Mapping[str, Any] | None,
    unsupported: Unsupported,
) -> tuple[StepBuilder, Importer, Groups, RandomSeeds]:
    """A builder, and what reads a graph into it."""
    world = read_int(f"{where}: replicas", replicas, 1, _core.MAX_REPLICAS)
    builder = StepBuilder(world, where=where, unsupported=unsupported)
    patterns = Groups(groups, equal, world, where)
    seeds = RandomSeeds(builder, patterns, world)
    return (
        builder,
        Importer(
            builder, _known_groups(read_mapping(where, "process_groups", process_groups), world, where), seeds
        ),
        patterns,
        seeds,
    )


def _known_groups(given: Mapping[str, Any], world: int, where: str) -> Callable[[str], ReplicaGrouping]:
    """Groupings of process groups: those that the user says, those of the running job, and the group of all ranks."""
    named = {name: grouping_of_ranks(value, world, where) for name, value in given.items()}

    def grouping(name: str) -> ReplicaGrouping:
        if name not in named:
            named[name] = grouping_of_one(name, _members(name, world, where), world, where)
        return named[name]

    return grouping


def _members(name: str, world: int, where: str) -> tuple[int, ...]:
    """Ranks of the group of that name that this process is in."""
    if is_running():
        import torch.distributed as dist
        from torch.distributed import distributed_c10d as module

        try:
            group = getattr(module, "_resolve_process_group")(name)  # noqa: B009
            return tuple(dist.get_process_group_ranks(group))
        except (RuntimeError, ValueError, KeyError):
            pass
    elif name == _WORLD:
        return tuple(range(world))
    raise ReplicaError(
        f"{where}: unknown process group, got {shown(name)}, expected process_groups={{{shown(name)}: [[...], ...]}}"
    )
