"""``popsr.prove``: of a step in any form that popsr can read."""

from __future__ import annotations

import importlib
import sys
from typing import Any

from popsr._text.shown import shown
from popsr.bridge._arguments import Argument
from popsr.bridge._proof import Proof
from popsr.bridge._step import BridgedStep
from popsr.errors import ArgumentTypeError
from popsr.ir import Ir
from popsr.replicas import ReplicaGrouping
from popsr.streams import HostToDeviceStream

__all__ = ["prove", "read_step", "step_of"]

_FRAMEWORKS = ("jax", "torch", "onnx")


def prove(step: Any, *args: Any, stochastic_rounding: bool = False, **options: Any) -> Proof:
    """Prove which parts of a training step's state stay bitwise equal on which replicas, before it runs.

    The proof holds for all data, and for any number of steps.

    Args:
        step: a step that was read by ``popsr.bridge.jax`` or ``popsr.bridge.torch``; a function of JAX or PyTorch, a
            program of ``torch.export``, a graph of ``make_fx`` or a model of ONNX, which are read here; or an ``Ir``,
            whose variables are the state.
        args: arguments that a function is traced with; of a function of PyTorch the first is the model, and the next
            its optimiser or None.
        stochastic_rounding: with the seeds of a program whose narrow floats are rounded stochastically.
        options: of the reader: ``mesh``, ``in_specs``, ``out_specs``, ``unsupported`` and others.
    Returns:
        The states with declared and proved groups, those that drift with the cause at the user's line, and lints.
    Raises:
        ArgumentTypeError: ``step`` is nothing that can be read.
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
    return read_step("prove", step, *args, **options).prove(stochastic_rounding=stochastic_rounding)


def read_step(where: str, step: Any, *args: Any, **options: Any) -> BridgedStep:
    """The step in any form as one of popsr."""
    if isinstance(step, (BridgedStep, Ir)):
        if args or options:
            raise ArgumentTypeError(
                f"{where}: arguments beside a step that is read already, got {shown(args or options)}, expected none"
            )
        return step if isinstance(step, BridgedStep) else step_of(step)
    torch = sys.modules.get("torch")
    if torch is not None and args and isinstance(args[0], torch.nn.Module):
        traced: BridgedStep = importlib.import_module("popsr.bridge.torch").trace_step(step, *args, **options)
        return traced
    for name in _FRAMEWORKS:
        if name in sys.modules:
            importer = importlib.import_module(f"popsr.bridge.{name}")
            if importer.accepts(step):
                read: BridgedStep = importer.import_step(step, *args, **options)
                return read
    raise ArgumentTypeError(
        f"{where}: step cannot be read, got {shown(step)}, expected a BridgedStep, an Ir, a function of JAX, a program "
        "of torch.export, a graph of make_fx or a model of ONNX"
    )


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
