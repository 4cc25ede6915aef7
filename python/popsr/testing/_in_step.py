"""Steps whose replicas stay in step, as an assertion."""

from __future__ import annotations

from typing import Any

from popsr._host.arguments import read_flag
from popsr.bridge import Proof, prove
from popsr.errors import OutOfStepError

__all__ = ["assert_in_step"]

_MAX_LINES = 8


def assert_in_step(step: Any, *args: Any, allow_redundant: bool = True, **options: Any) -> Proof:
    """Assert that a training step keeps its state equal on the replicas that are declared to share it.

    It is proved, for all data and any number of steps, without running anything; see :func:`popsr.prove`.

    Args:
        step: as for ``popsr.prove``: a function of JAX, a program of PyTorch, or an ``Ir``.
        args: as for ``popsr.prove``.
        allow_redundant: accept collectives of values that are equal already (lint L6), whose sums are too large.
        options: as for ``popsr.prove``.
    Returns:
        The proof, which is ``ok``.
    Raises:
        OutOfStepError: it is not; also an AssertionError. The text names the first cause, the notes its lines and
            the other causes, and ``proof`` has the rest.
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
    redundant = read_flag("assert_in_step: allow_redundant", allow_redundant)
    proof = prove(step, *args, **options)
    problems = [*proof.problems, *(() if redundant else map(str, proof.redundant))]
    if not problems:
        return proof
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    error = OutOfStepError(f"assert_in_step: {problems[0]}{more}")
    error.proof = proof
    for line in _lines(proof):
        error.add_note(f"  {line}")
    for text in problems[1:]:
        error.add_note(text)
    raise error


def _lines(proof: Proof) -> list[str]:
    """The user's lines of the first cause, from the value back to it."""
    first = (*proof.drifting, *proof.unequal)[:1]
    lines = [str(line) for each in first for line in proof.lines(each.path)]
    return lines if len(lines) <= _MAX_LINES else [*lines[: _MAX_LINES - 2], "…", lines[-1]]
