"""Each planted bug under the checks of its framework and under popsr."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from popsr.bridge import Proof
from tests_py.bridge.planted import of_dtensor, of_jax, of_torch
from tests_py.bridge.planted.cases import Case, load
from tests_py.bridge.planted.verdicts import Verdict, alarms, verdict_of

__all__ = ["Row", "all_cases", "line", "row", "table"]

Framework = Literal["JAX", "PyTorch", "DTensor"]
Variant = Literal["right", "wrong"]
NOT_APPLICABLE = "not applicable"


@dataclass(frozen=True)
class Row:
    """The verdicts about a case.

    Attributes:
        framework: of the step.
        case: the case.
        popsr: about the wrong step.
        false_alarms: of popsr, about the right step.
        vma: "error" or "silent" of JAX's check of varying axes, for the wrong and for the right step.
        dtensor: "error" or "silent" of torch when it runs a step of DTensors, for both steps.
    """

    framework: Framework
    case: Case
    popsr: Verdict
    false_alarms: list[str]
    vma: tuple[str, str]
    dtensor: tuple[str, str]


def all_cases() -> list[tuple[Framework, Case]]:
    """Every case with its framework."""
    jax: list[tuple[Framework, Case]] = [("JAX", case) for case in of_jax.CASES]
    torch: list[tuple[Framework, Case]] = [("PyTorch", case) for case in of_torch.CASES]
    return [*jax, *torch, *(("DTensor", case) for case in of_dtensor.CASES)]


@cache
def _prelude(framework: Framework) -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec({"JAX": of_jax, "PyTorch": of_torch, "DTensor": of_dtensor}[framework].PRELUDE, names)
    return names


def proof_of(framework: Framework, case: Case, variant: Variant) -> Proof:
    """The proof of the right or the wrong step, around ops that popsr lacks."""
    names = load(case, variant, _prelude(framework))
    if framework == "JAX":
        from popsr.bridge.jax import from_jax

        return from_jax(
            names["step"],
            *names["args"],
            mesh=names["mesh"],
            in_specs=names["specs"],
            out_specs=names["out_specs"],
            check_vma=False,
            unsupported="conservative",
        ).prove()
    from popsr.bridge.torch import trace_step

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # names of collectives that torch is about to change
        return trace_step(
            names["step"],
            names["model"],
            None,
            *names["batch"],
            replicas=4,
            unsupported="conservative",
            **names["options"],
        ).prove()


def _vma(case: Case, variant: Variant) -> str:
    """ "error" when JAX refuses the step under its check of varying axes."""
    import jax

    names = load(case, variant, _prelude("JAX"))
    step = jax.shard_map(
        names["step"],
        mesh=names["mesh"],
        in_specs=names["specs"],
        out_specs=names["out_specs"],
        check_vma=True,
    )
    try:
        jax.make_jaxpr(step)(*names["args"])
    except (ValueError, TypeError, NotImplementedError):
        return "error"
    return "silent"


def _dtensor(case: Case, variant: Variant) -> str:
    """ "error" when torch refuses the step as all ranks run it, with rows that differ where the case says so."""
    import torch

    from tests_py.bridge.torch.ranks import run_ranks

    names = load(case, variant, _prelude("DTensor"))
    groups = names["options"].get("groups", {}).get("x", [[rank] for rank in range(4)])

    def work(rank: int) -> None:
        shared = next(i for i, group in enumerate(groups) if rank in group)
        factor = 1 if "equal" in names["options"] else 1 + shared
        names["step"](names["model"](), *(factor * t for t in names["batch"]))

    try:
        with torch.random.fork_rng():
            run_ranks(4, work)
    except (RuntimeError, ValueError, TypeError, NotImplementedError, AssertionError):
        return "error"
    return "silent"


@cache
def row(framework: Framework, case: Case) -> Row:
    """All checks of a case."""
    wrong = verdict_of(proof_of(framework, case, "wrong"), f"{case.file('wrong')}:{case.line}")
    right = alarms(proof_of(framework, case, "right"))
    vma = (_vma(case, "wrong"), _vma(case, "right")) if framework == "JAX" else (NOT_APPLICABLE,) * 2
    dtensor = (
        (_dtensor(case, "wrong"), _dtensor(case, "right"))
        if framework == "DTensor"
        else (NOT_APPLICABLE,) * 2
    )
    return Row(framework, case, wrong, right, vma, dtensor)


def table() -> str:
    """The rows as a table of Markdown, and the totals."""
    rows = [row(framework, case) for framework, case in all_cases()]
    head = "| bug | kind | step of | JAX's vma | DTensor | popsr |\n| --- | --- | --- | --- | --- | --- |"
    lines = map(line, rows)
    found = [each for each in rows if each.popsr.found and each.popsr.names_line]
    wrong, right = ([_errors(rows, name, variant) for name in ("JAX", "DTensor")] for variant in (0, 1))
    totals = (
        f"| found, of {len(rows)} | | | {wrong[0]} | {wrong[1]} | {len(found)} with the line |\n"
        f"| alarms about {len(rows)} right steps | | | {right[0]} | {right[1]} | "
        f"{sum(bool(each.false_alarms) for each in rows)} |"
    )
    return "\n".join([head, *lines, totals])


def line(row: Row) -> str:
    """The row as a line of the table."""
    return f"| {row.case.name} | {row.case.kind} | {row.framework} | {row.vma[0]} | {row.dtensor[0]} | {_said(row)} |"


def _errors(rows: list[Row], framework: Framework, variant: int) -> str:
    """Errors of the framework's own check, of its steps."""
    said = [
        (each.vma if framework == "JAX" else each.dtensor)[variant]
        for each in rows
        if each.framework == framework
    ]
    return f"{said.count('error')} of {len(said)}"


def _said(each: Row) -> str:
    if not each.popsr.found or each.popsr.names_line:
        return each.popsr.words
    return f"{each.popsr.words}, at another line"
