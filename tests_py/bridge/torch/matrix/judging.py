"""Cells held against real ranks: each claim of a proof, and what "ok" says, bit by bit."""

from __future__ import annotations

import itertools
import logging
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402

from popsr.bridge.torch import trace_step  # noqa: E402
from popsr.errors import Error  # noqa: E402
from tests_py.bridge.torch import gloo  # noqa: E402
from tests_py.bridge.torch.matrix.cells import Cell  # noqa: E402

__all__ = ["STEPS", "Claims", "Outcome", "judge", "judged", "proved", "real", "summary"]

STEPS = 3
"""Steps that real ranks run."""

Rows = dict[str, tuple[Any, gloo.Bits]]
"""States of a rank: where it lies among the shards, so that ranks of one place hold one value, and its bits."""


def real(cell: Cell) -> tuple[list[Rows], str]:
    """States of this rank after each step, and what torch raises."""
    logging.getLogger("torch.distributed.tensor").setLevel(logging.ERROR)
    torch.manual_seed(0)
    rank = dist.get_rank()
    found: list[Rows] = []
    dist.barrier()
    try:
        model = cell.make()
        optimizer = cell.make_optimizer(model)
        torch.manual_seed(1000 + rank // cell.form.shared)
        for number in range(STEPS):
            cell.step(model, optimizer, *cell.batch(rank, number))
            found.append(_states(cell, model, optimizer))
        dist.barrier()
    except Exception as error:
        return found, f"{type(error).__name__}: {str(error).splitlines()[0]}"
    return found, ""


def _states(cell: Cell, model: Any, optimizer: Any) -> Rows:
    tensors = dict(model.named_parameters()) | dict(model.named_buffers())
    names = {p: name for name, p in model.named_parameters()}
    for p, values in optimizer.state.items():
        tensors |= {f"optimizer.{names[p]}.{key}": t for key, t in values.items() if torch.is_tensor(t)}
    tensors |= {f"average[{name!r}]": mean for name, mean in getattr(model, "average", {}).items()}
    if cell.rule.scaler:
        tensors["optimizer.scaler.scale"] = optimizer.scaler._scale
        tensors["optimizer.scaler.growth_tracker"] = optimizer.scaler._growth_tracker
    if cell.rule.scheduler:
        (group,) = optimizer.param_groups
        tensors["optimizer.param_groups[0].lr"] = torch.tensor(group["lr"], dtype=torch.float64)
    return {name: (_place(cell, name, t), gloo.bits(t)) for name, t in tensors.items()}


def _place(cell: Cell, name: str, t: Any) -> Any:
    """Place of this rank's part among the parts of a tensor."""
    if any(f"{each}." in name for each in cell.kind.owned):
        return dist.get_rank()
    if not hasattr(t, "placements"):
        return None
    place = t.device_mesh.get_coordinate()
    return tuple(place[k] for k, each in enumerate(t.placements) if not each.is_replicate())


@dataclass
class Claims:
    """Facts of a proof.

    Attributes:
        refused: the error of popsr, its type first; empty if the step is read.
        ok: True if no state may differ.
        labels: for each state a number for each rank, equal where it is proved equal.
        drifting: states that the proof names.
        suspicious: True if lints stand against a step that stays in step.
    """

    refused: str = ""
    ok: bool = False
    labels: dict[str, tuple[int, ...]] = field(default_factory=dict)
    drifting: list[str] = field(default_factory=list)
    suspicious: bool = False


def proved(cell: Cell) -> Claims:
    """Claims of popsr about a cell."""
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            made = trace_step(cell.step, cell.make, cell.make_optimizer, cell.batch, **cell.options())
        except Error as error:
            return Claims(f"{type(error).__name__}: {error}")
        proof = made.prove()
    labels = {each.path: tuple(each.proved.labels) for each in proof.states}
    named = [each.path for each in (*proof.drifting, *proof.undeclared)]
    return Claims("", not named, labels, named, not named and not proof.ok)


@dataclass
class Outcome:
    """A cell beside its ranks.

    Attributes:
        cell: the cell.
        claims: of popsr.
        raised: what torch raises on real ranks; then nothing is compared.
        false: claims that ranks refute.
        drifts: states that differ on ranks that ought to hold one value.
        alarms: states that the proof says may differ, and that are equal.
    """

    cell: Cell
    claims: Claims
    raised: str = ""
    false: list[str] = field(default_factory=list)
    drifts: list[str] = field(default_factory=list)
    alarms: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """One word, or the reason of a refusal."""
        if self.raised:
            return f"torch: {self.raised}"
        read = "suspicious" if self.claims.suspicious else "ok" if self.claims.ok else "drift"
        return self.claims.refused or read


def judge(cell: Cell, claims: Claims, ranks: list[tuple[list[Rows], str]]) -> Outcome:
    """Compare the claims with what ranks hold after each step."""
    outcome = Outcome(cell, claims, next((error for _, error in ranks if error), ""))
    if outcome.raised:
        return outcome
    unread = set(ranks[0][0][0]) - set(claims.labels)
    assert claims.refused or not unread, (cell, unread)
    for number, states in enumerate(zip(*(found for found, _ in ranks), strict=True)):
        for path in states[0]:
            rows = [each[path] for each in states]
            pairs = list(itertools.combinations(range(len(rows)), 2))
            expected = [(a, b) for a, b in pairs if rows[a][0] == rows[b][0]]
            if any(rows[a][1] != rows[b][1] for a, b in expected) and path not in outcome.drifts:
                outcome.drifts.append(path)
            labels = claims.labels.get(path, tuple(range(len(rows))))
            for a, b in pairs:
                if labels[a] == labels[b] and rows[a][1] != rows[b][1]:
                    outcome.false.append(f"{path} on ranks {a} and {b} after step {number + 1}")
    if claims.ok and outcome.drifts:
        outcome.false.append(f"ok, and {outcome.drifts[0]} differs")
    if not claims.refused:
        outcome.alarms = [path for path in claims.drifting if path not in outcome.drifts]
    return outcome


def judged(cells: Iterable[Cell]) -> list[Outcome]:
    """The outcomes of cells, each run on its ranks."""
    return [judge(cell, proved(cell), gloo.run(cell.form.world, real, cell)) for cell in cells]


def summary(outcomes: Iterable[Outcome]) -> str:
    """Cells and states that drift on ranks, and those of them that no proof names."""
    read = [each for each in outcomes if not each.raised and not each.claims.refused]
    drift = [each for each in read if each.drifts]
    states = [(path in each.claims.drifting) for each in drift for path in each.drifts]
    return (
        f"{len(read)} cells read; ranks drift in {len(drift)}, of which {sum(each.claims.ok for each in drift)} ok; "
        f"{len(states)} states drift, of which {len(states) - sum(states)} not named; "
        f"{sum(len(each.false) for each in read)} claims refuted"
    )
