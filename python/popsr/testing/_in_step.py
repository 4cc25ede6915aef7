"""Steps whose replicas stay in step, as an assertion."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Unpack, overload

from popsr._host.arguments import read_choice, read_items
from popsr.bridge import Proof
from popsr.bridge._options import Graph, GraphOptions, JaxOptions, Model, ModelOptions, Read, TorchOptions
from popsr.bridge._prove import read_step
from popsr.bridge._suspicion import SUSPICIOUS
from popsr.errors import OutOfStepError
from popsr.ir import Ir

__all__ = ["assert_in_step"]

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
def assert_in_step(
    step: Any, *args: Any, allow: Iterable[str] = (), stochastic_rounding: bool = False, **options: Any
) -> Proof:
    """Assert that a training step keeps its state equal on the replicas that are declared to share it.

    It is proved, for all data and any number of steps, without running anything; see :func:`popsr.prove`. A step that
    keeps in step and is suspicious fails, too.

    Args:
        step: as for ``popsr.prove``: a function of JAX or PyTorch, a program of PyTorch, or an ``Ir``.
        args: as for ``popsr.prove``.
        allow: codes of lints that are accepted, of "L6", "L7", "L10" and "L11": what they say is meant.
        stochastic_rounding: as for ``popsr.prove``.
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
    where = "assert_in_step"
    codes = [read_choice(where, "allow", each, SUSPICIOUS) for each in read_items(where, "allow", allow)]
    proof = read_step(where, step, *args, **options).prove(stochastic_rounding=stochastic_rounding)
    problems = proof.problems_without(codes)
    if not problems:
        return proof
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    error = OutOfStepError(f"{where}: {problems[0]}{more}")
    error.proof = proof
    for line in _lines(proof):
        error.add_note(f"  {line}")
    for text in problems[1:]:
        error.add_note(text)
    for advice in proof.advice:
        error.add_note(f"advice, tried: {advice}")
    error.add_note("all causes, states and lints as a page: error.proof.save_html('proof.html')")
    raise error


def _lines(proof: Proof) -> list[str]:
    """The user's lines of the first cause, from the value back to it."""
    first = (*proof.drifting, *proof.unequal)[:1]
    lines = [str(line) for each in first for line in proof.lines(each.path)]
    return lines if len(lines) <= _MAX_LINES else [*lines[: _MAX_LINES - 2], "…", lines[-1]]
