"""``popsr.prove``: of a step in any form that popsr can read."""

from __future__ import annotations

import functools
import importlib
import sys
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Unpack, overload

from popsr._program.ir import Ir
from popsr._program.streams import HostToDeviceStream
from popsr._support.text.entry_points import public
from popsr._support.text.shown import shown
from popsr.bridge._proof.proof import Proof
from popsr.bridge._step.arguments import Argument
from popsr.bridge._step.options import (
    Graph,
    GraphOptions,
    JaxOptions,
    Model,
    ModelOptions,
    Read,
    TorchOptions,
)
from popsr.bridge._step.step import BridgedStep
from popsr.errors import ArgumentTypeError
from popsr.replicas import ReplicaGrouping

__all__ = ["prove", "read_step", "step_of"]


@overload
def prove(
    step: Ir | Read, *, stochastic_rounding: bool = ..., like: Any = ..., exact: bool = ...
) -> Proof: ...
@overload
def prove(step: Model, **options: Unpack[ModelOptions]) -> Proof: ...
@overload
def prove(step: Graph, *inputs: Any, **options: Unpack[GraphOptions]) -> Proof: ...
@overload
def prove(
    step: Callable[..., Any], model: Any, optimizer: Any = ..., *batch: Any, **options: Unpack[TorchOptions]
) -> Proof: ...
@overload
def prove(step: Callable[..., Any], *args: Any, **options: Unpack[JaxOptions]) -> Proof: ...
@public
def prove(
    step: Any,
    *args: Any,
    stochastic_rounding: bool = False,
    like: Any = None,
    exact: bool = True,
    **options: Any,
) -> Proof:
    """Prove which parts of a training step's state stay bitwise equal on which replicas, before it runs.

    The proof holds for all data, and for any number of steps.

    Args:
        step: a step that was read by ``popsr.bridge.jax`` or ``popsr.bridge.torch``; a function of JAX or PyTorch, a
            program of ``torch.export``, a graph of ``make_fx`` or a model of ONNX, which are read here; or an ``Ir``,
            whose variables are the state.
        args: arguments that a function is traced with; of a function of PyTorch the first is the model or a function
            that makes it, and the next its optimiser, a function of the model that makes it, or None.
        stochastic_rounding: with the seeds of a program whose narrow floats are rounded stochastically.
        like: of a step of JAX or PyTorch. "one device": the proof is ok only if the step also trains as it would on a
            mesh of one device, which it is compared with; a function: as this step for one device does. ``proof.same``
            says which states and results are the same.
        exact: with ``like``, whether it is compared by exact arithmetic; else in float64, up to rounding.
        options: of the reader, ``popsr.bridge.jax.from_jax``, ``popsr.bridge.torch.trace_step``, ``from_export``,
            ``from_fx`` or ``popsr.bridge.onnx.load``: ``mesh``, ``in_specs``, ``replicas``, ``groups`` and others.
    Returns:
        The states with declared and proved groups, those that drift with the cause at the user's line, and lints.
    Raises:
        ArgumentTypeError: ``step`` is nothing that can be read, or arguments are of two frameworks.
        MissingPackageError: the framework is not installed, or too old.
        UnsupportedOpsError: it has ops that popsr lacks, unless ``unsupported="conservative"``.
        Error: as the reader raises.
    Example:
        >>> ir = popsr.Ir(replication=4)
        >>> with ir.main_graph, popsr.in_sequence():
        ...     w = popsr.variable(1.0, name="w")
        ...     x = ops.host_load(popsr.h2d_stream((), popsr.float32, "x"))
        ...     _ = ops.var_updates.accumulate_(w, w * x, -0.1)
        >>> proof = popsr.prove(ir)
        >>> proof
        Proof[not ok: 1 state on 4 replicas, 1 drifts]
        >>> proof.drifting[0].cause.text
        "stream 'x' gives each replica data of its own"
    """
    read = read_step("prove", step, *args, **options)
    return read.prove(stochastic_rounding=stochastic_rounding, like=like, exact=exact)


def read_step(where: str, step: Any, *args: Any, **options: Any) -> BridgedStep:
    """The step in any form as one of popsr."""
    if isinstance(step, (BridgedStep, Ir)):
        if args or options:
            raise ArgumentTypeError(
                f"{where}: arguments beside a step that is read already, got {shown(args or options)}, expected none"
            )
        return step if isinstance(step, BridgedStep) else step_of(step)
    for name in ("torch", "onnx"):
        if name in sys.modules:
            importer = importlib.import_module(f"popsr.bridge.{name}")
            if importer.accepts(step):
                return _imported(importer.import_step, step, args, options)
    of_torch, of_jax = list(_signs_of_torch(args, options)), list(_signs_of_jax(step, args, options))
    if of_torch and of_jax:
        raise ArgumentTypeError(
            f"{where}: arguments are of two frameworks, got {of_torch[0]} of PyTorch and {of_jax[0]} of JAX, expected "
            f"{_OF_TORCH} or {_OF_JAX}"
        )
    if of_torch and callable(step):
        return _traced(where, step, args, options)
    jax = importlib.import_module("popsr.bridge.jax") if of_jax or "jax" in sys.modules else None
    if jax is not None and jax.accepts(step):
        return _imported(jax.from_jax, step, args, options)
    if callable(step):
        raise ArgumentTypeError(
            f"{where}: no sign of a framework in a function and its arguments, got {shown(step)}, expected {_OF_TORCH} "
            f"or {_OF_JAX}"
        )
    raise ArgumentTypeError(
        f"{where}: step cannot be read, got {shown(step)}, expected a BridgedStep, an Ir, a function of JAX or "
        "PyTorch, a program of torch.export, a graph of make_fx or a model of ONNX"
    )


_OF_TORCH = "step, model, optimizer, *batch, replicas=N as of popsr.bridge.torch.trace_step"
_OF_JAX = "step, *arrays, mesh=, in_specs=, out_specs= as of popsr.bridge.jax.from_jax"

_TORCH_ALONE = TorchOptions.__annotations__.keys() - JaxOptions.__annotations__.keys()
_JAX_ALONE = JaxOptions.__annotations__.keys() - TorchOptions.__annotations__.keys()


def _imported(reader: Any, step: Any, args: Sequence[Any], options: Mapping[str, Any]) -> BridgedStep:
    read: BridgedStep = reader(step, *args, **options)
    return read


def _traced(where: str, step: Any, args: Sequence[Any], options: Mapping[str, Any]) -> BridgedStep:
    """A step of PyTorch."""
    if not args or not (_is_module(args[0]) or _makes_model(args[0])):
        raise ArgumentTypeError(
            f"{where}: no model, got {shown(args[0]) if args else 'no arguments'}, expected {_OF_TORCH}, with a module "
            "or a function that makes it"
        )
    if "replicas" not in options:
        raise ArgumentTypeError(
            f"{where}: no number of replicas, got {_listed(options)}, expected replicas=N"
        )
    return _imported(importlib.import_module("popsr.bridge.torch").trace_step, step, args, options)


def _listed(options: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}=" for name in options) or "no options"


def _signs_of_torch(args: Sequence[Any], options: Mapping[str, Any]) -> Iterator[str]:
    """Words for what only a step of PyTorch has; a function for an argument is none of JAX."""
    torch = sys.modules.get("torch")
    yield from (f"{name}=" for name in options if name in _TORCH_ALONE)
    if args and (_is_module(args[0]) or _makes_model(args[0])):
        yield shown(args[0])
    yield from (shown(each) for each in args if torch is not None and isinstance(each, torch.Tensor))


def _signs_of_jax(step: Any, args: Sequence[Any], options: Mapping[str, Any]) -> Iterator[str]:
    """Words for what only a step of JAX has."""
    yield from (f"{name}=" for name in options if name in _JAX_ALONE)
    yield from (shown(each) for each in (step, *_leaves(args)) if _is_of_jax(each))


def _is_module(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.nn.Module)


_FUNCTIONS = (types.FunctionType, types.MethodType, types.BuiltinFunctionType, functools.partial, type)


def _makes_model(value: Any) -> bool:
    """True for functions and classes, but for functions of JAX, which can be trees of arrays."""
    return isinstance(value, _FUNCTIONS) and not _is_of_jax(value)


def _is_of_jax(value: Any) -> bool:
    return type(value).__module__.partition(".")[0] in ("jax", "jaxlib")


def _leaves(value: Any) -> Iterator[Any]:
    """The values in lists, tuples and dictionaries, however deep; each of these is looked into once."""
    waiting, seen = [value], set[int]()
    while waiting:
        each = waiting.pop()
        if not isinstance(each, (dict, list, tuple)):
            yield each
        elif id(each) not in seen:
            seen.add(id(each))
            waiting += reversed(each.values() if isinstance(each, dict) else each)


def step_of(ir: Ir) -> BridgedStep:
    """A program of popsr as a step: its variables are states, the streams that it loads data."""
    states = [
        Argument(v.id, "state", v.shape, v.dtype, v.replica_grouping, v, v) for v in ir.main_graph.variables
    ]
    loaded = sorted(ir.get_all_h2d_streams(), key=lambda stream: stream._id)
    data = [
        Argument(each.tensor_id, "data", each.shape, each.dtype, _groups(ir, each), None, each)
        for each in loaded
    ]
    return BridgedStep(ir, (*states, *data), (), (), "Ir")


def _groups(ir: Ir, stream: HostToDeviceStream) -> ReplicaGrouping:
    """The replicas that a stream gives equal data."""
    mode = stream.replicated_stream_mode
    if isinstance(mode, ReplicaGrouping):
        return mode
    return ir.replica_grouping(group_size=1 if mode == "replicate" else None)
