"""Each planted bug under the checks of its framework and under popsr."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from popsr.bridge import Proof
from tests_py.bridge.planted import of_jax, of_torch
from tests_py.bridge.planted.cases import Case, load
from tests_py.bridge.planted.verdicts import Verdict, alarms, verdict_of

__all__ = ["Row", "all_cases", "row", "table"]

Framework = Literal["JAX", "PyTorch"]
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
        dtensor: of DTensor.
    """

    framework: Framework
    case: Case
    popsr: Verdict
    false_alarms: list[str]
    vma: tuple[str, str]
    dtensor: str


def all_cases() -> list[tuple[Framework, Case]]:
    """Every case with its framework."""
    jax: list[tuple[Framework, Case]] = [("JAX", case) for case in of_jax.CASES]
    return [*jax, *(("PyTorch", case) for case in of_torch.CASES)]


@cache
def _prelude(framework: Framework) -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec(of_jax.PRELUDE if framework == "JAX" else of_torch.PRELUDE, names)
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


@cache
def row(framework: Framework, case: Case) -> Row:
    """All checks of a case."""
    wrong = verdict_of(proof_of(framework, case, "wrong"), f"{case.file('wrong')}:{case.line}")
    right = alarms(proof_of(framework, case, "right"))
    vma = (_vma(case, "wrong"), _vma(case, "right")) if framework == "JAX" else (NOT_APPLICABLE,) * 2
    return Row(framework, case, wrong, right, vma, NOT_APPLICABLE)


def table() -> str:
    """The rows as a table of Markdown, and the totals."""
    rows = [row(framework, case) for framework, case in all_cases()]
    head = "| bug | kind | step of | JAX's vma | DTensor | popsr |\n| --- | --- | --- | --- | --- | --- |"
    lines = [
        f"| {each.case.name} | {each.case.kind} | {each.framework} | {each.vma[0]} | {each.dtensor} | {_said(each)} |"
        for each in rows
    ]
    of_jax_steps = [each for each in rows if each.framework == "JAX"]
    found = [each for each in rows if each.popsr.found and each.popsr.names_line]
    totals = (
        f"| found, of {len(rows)} | | | {sum(each.vma[0] == 'error' for each in of_jax_steps)} of "
        f"{len(of_jax_steps)} | - | {len(found)} with the line |\n"
        f"| alarms about {len(rows)} right steps | | | {sum(each.vma[1] == 'error' for each in of_jax_steps)} of "
        f"{len(of_jax_steps)} | - | {sum(bool(each.false_alarms) for each in rows)} |"
    )
    return "\n".join([head, *lines, totals])


def _said(each: Row) -> str:
    if not each.popsr.found:
        return "nothing"
    return each.popsr.words if each.popsr.names_line else f"{each.popsr.words}, at another line"
