"""Steps whose replicas stay in step, as an assertion."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Unpack, overload

from popsr._program.ir import Ir
from popsr._support.host.arguments import read_choice, read_items
from popsr._support.text.entry_points import public
from popsr.bridge import BridgedStep, Proof
from popsr.bridge._proof.prove import read_step
from popsr.bridge._proof.suspicion import SUSPICIOUS
from popsr.bridge._step.options import (
    Graph,
    GraphOptions,
    JaxOptions,
    JaxReading,
    Model,
    ModelOptions,
    Read,
    TorchOptions,
    TorchReading,
)
from popsr.errors import OutOfStepError

__all__ = ["allowed", "assert_in_step", "assert_same_training", "out_of_step"]

_MAX_LINES = 8


@overload
def assert_in_step(
    step: Ir | Read, *, allow: Iterable[str] = ..., stochastic_rounding: bool = ...
) -> Proof: ...
@overload
def assert_in_step(step: Model, *, allow: Iterable[str] = ..., **options: Unpack[ModelOptions]) -> Proof: ...
@overload
def assert_in_step(
    step: Graph, *inputs: Any, allow: Iterable[str] = ..., **options: Unpack[GraphOptions]
) -> Proof: ...
@overload
def assert_in_step(
    step: Callable[..., Any],
    model: Any,
    optimizer: Any = ...,
    *batch: Any,
    allow: Iterable[str] = ...,
    **options: Unpack[TorchOptions],
) -> Proof: ...
@overload
def assert_in_step(
    step: Callable[..., Any], *args: Any, allow: Iterable[str] = ..., **options: Unpack[JaxOptions]
) -> Proof: ...
@public
def assert_in_step(
    step: Any,
    *args: Any,
    allow: Iterable[str] = (),
    stochastic_rounding: bool = False,
    like: Any = None,
    exact: bool = True,
    **options: Any,
) -> Proof:
    """Assert that a training step keeps its state equal on the replicas that are declared to share it.

    It is proved, for all data and any number of steps, without running anything; see :func:`popsr.prove`. A step that
    keeps in step and is suspicious fails, too.

    Args:
        step: as for ``popsr.prove``: a function of JAX or PyTorch, a program of PyTorch, or an ``Ir``.
        args: as for ``popsr.prove``.
        allow: codes of lints that are accepted, of "L6", "L7", "L10" and "L11": what they say is meant.
        stochastic_rounding: as for ``popsr.prove``.
        like: as for ``popsr.prove``: the step must train as one device does, too.
        exact: as for ``popsr.prove``.
        options: as for ``popsr.prove``.
    Returns:
        The proof, which is ``ok`` but for lints that are allowed.
    Raises:
        OutOfStepError: it is not; also an AssertionError. The text names the first cause, the notes its lines,
            the other causes and advice that was tried, and ``proof`` has the rest.
        Error: as ``popsr.prove`` raises.
    Example:
        >>> ir = popsr.Ir(replication=2)
        >>> with ir.main_graph, popsr.in_sequence():
        ...     w = popsr.variable(1.0, name="w")
        ...     x = ops.host_load(popsr.h2d_stream((), popsr.float32, "x"))
        ...     dw = ops.collectives.replicated_all_reduce(w * x, "mean")
        ...     _ = ops.var_updates.accumulate_(w, dw, -0.1)
        >>> popsr.testing.assert_in_step(ir)
        Proof[ok: 1 state on 2 replicas, none drifts]
    """
    given = {"stochastic_rounding": stochastic_rounding, "like": like, "exact": exact}
    return _proved("assert_in_step", allow, read_step("assert_in_step", step, *args, **options), given)


@overload
def assert_same_training(
    step: Callable[..., Any],
    model: Any,
    optimizer: Any = ...,
    *batch: Any,
    like: Any = ...,
    exact: bool = ...,
    allow: Iterable[str] = ...,
    **options: Unpack[TorchReading],
) -> Proof: ...
@overload
def assert_same_training(
    step: Callable[..., Any],
    *args: Any,
    like: Any = ...,
    exact: bool = ...,
    allow: Iterable[str] = ...,
    **options: Unpack[JaxReading],
) -> Proof: ...
@public
def assert_same_training(
    step: Any,
    *args: Any,
    like: Any = "one device",
    exact: bool = True,
    allow: Iterable[str] = (),
    **options: Any,
) -> Proof:
    """Assert that a training step of JAX or PyTorch is in step, and trains as one device would.

    The step is compared with itself on a mesh of ones, or with a step for one device; see :func:`popsr.prove`.

    Args:
        step: a function of JAX or PyTorch.
        args: as for ``popsr.prove``.
        like: "one device", or a step for one device.
        exact: by exact arithmetic; else in float64.
        allow: codes of lints that are accepted, as for ``assert_in_step``.
        options: as for ``popsr.prove``.
    Returns:
        The proof, whose ``same`` is true.
    Raises:
        OutOfStepError: it is not in step, a state or result differs from that of one device, or it is not known
            whether one does; also an AssertionError.
        Error: as ``popsr.prove`` raises.
    Example:
        >>> popsr.testing.assert_same_training(step, w, x, mesh=mesh, in_specs=i, out_specs=o)  # doctest: +SKIP
    """
    where = "assert_same_training"
    rounding = options.pop("stochastic_rounding", False)
    given = {"stochastic_rounding": rounding, "like": like, "exact": exact}
    return _proved(where, allow, read_step(where, step, *args, **options), given)


def _proved(where: str, allow: Iterable[str], step: BridgedStep, options: Mapping[str, Any]) -> Proof:
    """The proof of a step.

    Raises:
        OutOfStepError: it is not ok.
    """
    codes = allowed(where, allow)
    proof = step.prove(**options)
    error = out_of_step(where, proof, codes)
    if error is not None:
        raise error
    return proof


def allowed(where: str, allow: Iterable[str]) -> list[str]:
    """Codes of lints that are accepted."""
    return [read_choice(where, "allow", each, SUSPICIOUS) for each in read_items(where, "allow", allow)]


def out_of_step(where: str, proof: Proof, codes: Collection[str]) -> OutOfStepError | None:
    """The error about a proof, at the line of its first cause; None if it is ok but for lints of some codes."""
    findings = [each for each in proof._findings(codes) if each.level != "note"]
    problems = proof.problems_without(codes)
    if not problems:
        return None
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    error = OutOfStepError(f"{where}: {problems[0]}{more}")
    error.proof = proof
    error.location = next((each.location for each in findings if each.location), "")
    for line in _lines(proof):
        error.add_note(f"  {line}")
    for text in problems[1:]:
        error.add_note(text)
    for advice in proof.advice:
        error.add_note(f"advice, tried: {advice}")
    error.add_note("all causes, states and lints as a page: error.proof.save_html('proof.html')")
    return error


def _lines(proof: Proof) -> list[str]:
    """The user's lines of the first cause, from the value back to it."""
    first = (*proof.drifting, *proof.unequal)[:1]
    lines = [str(line) for each in first for line in proof.lines(each.path)]
    return lines if len(lines) <= _MAX_LINES else [*lines[: _MAX_LINES - 2], "…", lines[-1]]
