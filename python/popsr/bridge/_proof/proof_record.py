"""Proofs as plain values, for JSON: ``proof.as_dict()`` and ``python -m popsr prove --json``."""

from __future__ import annotations

import importlib
from typing import Any

from popsr._support.text.answers import FORMAT, plain
from popsr.analysis import Lint
from popsr.bridge._same import Sameness
from popsr.bridge._step.values import ProvedValue
from popsr.replicas import Partition

__all__ = ["record_of"]


def record_of(proof: Any) -> dict[str, Any]:
    """Content of a ``Proof`` in lists, dictionaries, texts and numbers; places are ``file:line``, of whole paths."""
    suspicious = {id(each) for each in proof.suspicious}
    axes = proof.step.axes
    return {
        "format": FORMAT,
        "popsr": importlib.import_module("popsr").__version__,
        "ok": proof.ok,
        "verdict": proof.verdict,
        "summary": repr(proof),
        "replicas": proof.step.ir.replication_factor,
        "axes": None if axes is None else axes.sizes,
        "problems": [*proof.problems],
        "advice": [str(each) for each in proof.advice],
        "notes": [*proof.step.notes],
        "states": [_value(each) for each in proof.states],
        "results": [_value(each) for each in proof.results],
        "lints": [_lint(each, id(each) in suspicious) for each in proof.lints],
        "unsupported": [
            {"op": each.op, "location": each.location, "times": each.count, "exact": each.is_exact}
            for each in proof.gaps
        ],
        "same": None if proof.same is None else _same(proof.same),
    }


def _value(each: ProvedValue) -> dict[str, Any]:
    cause = each.cause
    return {
        "path": each.path,
        "dtype": each.dtype.name,
        "shape": [*each.shape],
        "declared": _groups(each.declared),
        "proved": _groups(each.proved),
        "drifts": each.drifting,
        "undeclared": each.undeclared,
        "held": None if each.held is None else [*each.held],
        "cause": None if cause is None else {"location": cause.location, "text": cause.text},
    }


def _groups(partition: Partition) -> list[list[int]]:
    """The replicas of each group."""
    return [[*map(int, block)] for block in partition.blocks]


def _lint(lint: Lint, suspicious: bool) -> dict[str, Any]:
    return {"code": lint.code, "location": lint.location, "text": lint.text, "suspicious": suspicious}


def _same(same: Sameness) -> dict[str, Any]:
    return {
        "like": same.like,
        "engine": same.engine,
        "ok": same.ok,
        "verdict": same.verdict,
        "steps": same.steps,
        "place": None if same.place is None else plain(same.place),
        "repair": None if same.repair is None else plain(same.repair),
        "values": [plain(each) for each in same.values],
        "notes": [*same.notes],
    }
