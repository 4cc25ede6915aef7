"""Comparison of checkpoints of all ranks, byte by byte, in bounded memory."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable
from functools import partial
from typing import Any

from popsr._support.host.arguments import read_bool, read_path
from popsr._support.host.files import shown_name, shown_path
from popsr._support.text.entry_points import public
from popsr.bridge.audit._collected import WHERE, Collected
from popsr.bridge.audit._findings import AuditReport
from popsr.bridge.audit._groups import DeclaredGroups
from popsr.bridge.audit._held import Held
from popsr.bridge.audit._mesh import Mesh
from popsr.bridge.audit._places import Place, families_of, find_places, refusal
from popsr.bridge.audit._rank_groups import NO_PAIR, Present, absent_ranks, has_pair
from popsr.bridge.audit._whole import assemble
from popsr.errors import AttributeValueError, CheckpointError

__all__ = ["audit"]


@public
def audit(
    source: str | os.PathLike[str], groups: Any = None, *, ranks: int | None = None, whole: bool = False
) -> AuditReport:
    """Compare the checkpoints of all ranks of a job with the groups that should hold equal bits.

    The files are mapped and compared in chunks, so memory is bounded whatever their size; tensors of
    torch.distributed.checkpoint and Orbax are read whole, two at a time. Objects that are no tensors are counted, and
    none is made. A file that is damaged is listed, and the others are compared.

    Args:
        source: a folder, whose files say their rank and step in their path, as ``step_10/rank_3.safetensors`` or as
            DeepSpeed, Megatron, NeMo and Trainer name them; or a pattern with ``{rank}`` and maybe ``{step}``, as
            ``"run/{step}/model-{rank}.pt"``. Files of safetensors and popsr end in ``.safetensors``, those of PyTorch
            in ``.pt``, ``.pth``, ``.bin`` or ``.ckpt``; of torch.distributed.checkpoint each rank has a folder with
            ``.metadata``, or its own ``__3.metadata`` in one; those of Orbax have ``_METADATA``, for each job.
        groups: which ranks should be equal, see ``DeclaredGroups``. Default: all ranks, and of files whose names
            have axes those that differ in the data rank alone.
        ranks: number of ranks. Default: one more than the largest that is found, of each axis.
        whole: of a pattern whose ``{rank}`` is of jobs or replicas, join the shards in the folder of each, as
            ``between`` does.
    Returns:
        Findings; ``ok`` is true if nothing drifts, nothing was missing or damaged, and something was compared.
    Raises:
        FileError: there are no such files, or none that tell of drift.
        CheckpointError: no file can be read.
        ReplicaError: the groups are of another number of ranks.
    """
    declared = None if groups is None else _declared(groups)
    path = read_path(WHERE, source)
    is_whole = read_bool(f"{WHERE}: whole", whole)
    if is_whole and "{rank}" not in str(path):
        raise AttributeValueError(
            f"{WHERE}: whole needs folders of several jobs, got {shown_path(path)}, expected a pattern with {{rank}}, "
            "or between"
        )
    families = families_of(find_places(WHERE, path))
    chosen = [each for each in families if (each.is_compared if declared is None else each.has_ranks)]
    if not chosen:
        raise refusal(WHERE, path, families)
    findings = Collected()
    for family in chosen:
        coordinates = [dict(each.named.place) for each in family.places]
        mesh = Mesh.of(WHERE, coordinates, ranks)
        of_family = declared or DeclaredGroups(family.places[0].named.layout.equal)
        job = _Job(of_family, mesh, findings, is_whole=is_whole)
        steps: dict[int | None, list[Place]] = {}
        for each in family.places:
            steps.setdefault(each.step, []).append(each)
        for step, found in steps.items():
            job.compare(step, found)
        job.finish(str(family.places[0].named.layout.name))
    for family in families:
        if family not in chosen:
            findings.note(f"{family}, were not compared")
    for note in () if declared is None else declared.notes(findings.names):
        findings.note(note)
    return findings.report()


def _declared(groups: Any) -> DeclaredGroups:
    return groups if isinstance(groups, DeclaredGroups) else DeclaredGroups(groups)


class _Job:
    """Comparison of the files of one mesh."""

    def __init__(self, declared: DeclaredGroups, mesh: Mesh, findings: Collected, *, is_whole: bool) -> None:
        self._declared, self._mesh, self._findings = declared, mesh, findings
        self._is_compared, self._is_whole = False, is_whole
        findings.ranks = max(findings.ranks, mesh.ranks)

    def compare(self, step: int | None, places: Iterable[Place]) -> None:
        """Compare the files of one step."""
        self._findings.begin(step)
        at = "" if step is None else f"step {step}: "
        held: dict[int, dict[str, Held]] = {}
        broken: set[int] = set()
        of_ranks: dict[int, list[Place]] = {}
        for place in places:
            of_ranks.setdefault(self._mesh.rank(dict(place.named.place)), []).append(place)
        read = self._assembled if self._is_whole else self._read
        for rank, mine in of_ranks.items():
            held[rank], is_broken = read(at, rank, mine)
            if is_broken:
                broken.add(rank)
        there = {*held, *broken}
        absent = absent_ranks(self._mesh.ranks, there)
        if absent:
            self._findings.note(f"{at}no file of rank {absent}")
        tensors: dict[str, dict[int, Held]] = {}
        for rank in sorted(held):
            for name, each in held[rank].items():
                tensors.setdefault(name, {})[rank] = each
        present = Present(there)
        for name, holders in tensors.items():
            self._compare(step, at, name, holders, present, broken)

    def _read(self, at: str, rank: int, places: list[Place]) -> tuple[dict[str, Held], bool]:
        """Tensors of a rank, and whether some could not be read."""
        mine: dict[str, Held] = {}
        is_broken = False
        for place in places:
            found = self._findings.read(at, place.path)
            if found is None:
                is_broken = True
                continue
            part = place.named.part
            tensors = {f"{part}.{name}" if part else name: each for name, each in found.tensors.items()}
            twice = next((name for name in tensors if name in mine), None)
            if twice is not None:
                self._findings.damage(
                    CheckpointError(
                        f"{WHERE}: two files of rank {rank} have one tensor, got {shown_name(twice)} twice, the second "
                        f"in {shown_path(place.path)}, expected each once (or a pattern with {{step}})"
                    )
                )
            mine = tensors | mine
        return mine, is_broken

    def _assembled(self, at: str, _: int, places: list[Place]) -> tuple[dict[str, Held], bool]:
        """Tensors of a job, whose shards are joined."""
        whole = assemble(
            WHERE,
            [each.path for each in places],
            partial(self._findings.read, at),
            self._findings.damage,
        )
        return whole.tensors, whole.is_damaged

    def _compare(
        self,
        step: int | None,
        at: str,
        name: str,
        tensors: dict[int, Held],
        present: Present,
        broken: set[int],
    ) -> None:
        declared = self._declared._find(name, self._mesh.ranks, self._mesh)
        if declared is None:
            self._findings.note(f"no groups are declared for {shown_name(name)}")
            return
        self._findings.names.add(name)
        lacking = present.first_lacking(declared, {**dict.fromkeys(broken), **tensors})
        if lacking is not None:
            self._findings.note(
                f"{at}rank {lacking} lacks {shown_name(name)}, which others of its group have"
            )
        self._findings.nbytes += sum(each.nbytes for each in tensors.values())
        self._is_compared = self._is_compared or has_pair(declared, tensors)
        found = self._findings.drift(step, name, declared, tensors)
        if found is not None:
            places = (self._mesh.text(found.ranks[0]), self._mesh.text(found.ranks[1]))
            self._findings.add(dataclasses.replace(found, places=places if all(places) else ()))

    def finish(self, name: str) -> None:
        """Note that no two ranks were compared."""
        if not self._is_compared:
            self._findings.note(f"nothing of {name} was compared, {NO_PAIR}")
