"""Forms of sharded steps against gloo: states after two steps, and bits where popsr says that ranks are equal."""

from __future__ import annotations

import functools
import importlib
from typing import Any

import numpy as np
import pytest

import popsr.bridge.torch as bridge
from popsr.bridge import Proof

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402

from tests_py.bridge.torch import gloo  # noqa: E402

__all__ = ["check_form", "proof_of"]

_STEPS = 2


def _states(table: str, names: list[str]) -> dict[str, dict[str, gloo.Bits]]:
    """The states of one rank after some steps of each form."""
    found = {}
    for name in names:
        form = importlib.import_module(table).FORMS[name]
        model = form.model()
        optimizer = form.optimizer(model)
        for _ in range(_STEPS):
            form.step(model, optimizer, *form.batch(dist.get_rank()))
        found[name] = gloo.states(model, optimizer)
    return found


@functools.cache
def _real(table: str, world: int) -> list[dict[str, dict[str, gloo.Bits]]]:
    """The states of all forms of a number of ranks, on each of them."""
    forms = importlib.import_module(table).FORMS
    return gloo.run(world, _states, table, [name for name, form in forms.items() if form.world == world])


def proof_of(form: Any) -> Proof:
    """The proof of a form."""
    made = bridge.trace_step(
        form.step, form.model, form.optimizer, form.batch, replicas=form.world, **form.options
    )
    return made.prove()


def check_form(table: str, name: str) -> Proof:
    """Two steps of popsr give what gloo gives, and what is proved equal has the same bits on its ranks.

    Args:
        table: the module whose ``FORMS`` has the form.
        name: its name.
    """
    form = importlib.import_module(table).FORMS[name]
    proof = proof_of(form)
    for _ in range(_STEPS):
        got = proof.run()
    rows = [states[name] for states in _real(table, form.world)]
    for path in rows[0]:
        seen: dict[int, gloo.Bits] = {}
        for rank, label in enumerate(proof.value(path).proved.labels):
            kind, shape, raw = rows[rank][path]
            wanted = torch.frombuffer(bytearray(raw), dtype=getattr(torch, kind[6:])).reshape(shape).double()
            scale = max(float(wanted.abs().max()), 1e-3)
            difference = np.abs(got[path][rank].astype(np.float64) - wanted.numpy()).max()
            assert difference <= form.tolerance * scale, (path, rank, difference / scale)
            assert seen.setdefault(label, rows[rank][path]) == rows[rank][path], path
    return proof
