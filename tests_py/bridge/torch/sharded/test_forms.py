"""Ways to shard a module, and to run it, against gloo."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")

from tests_py.bridge.torch.sharded import forms, other_forms, parallel_forms
from tests_py.bridge.torch.sharded.judging import check_form, proof_of

pytestmark = pytest.mark.filterwarnings("ignore:FSDP2-wrapped module")  # torch's own, of a Linear with a bias

ALWAYS = {"hybrid", "hybrid, accumulating both"}
"""Forms of four ranks that are tried in each run; of two ranks each third one is, and the nightly set tries all.

The matrix of models has a cell of layers that are split and sharded.
"""


def _names(table: dict[str, Any]) -> list[Any]:
    slow = pytest.mark.slow
    return [
        pytest.param(name, marks=() if (form.world == 2 and number % 3 == 0) or name in ALWAYS else slow)
        for number, (name, form) in enumerate(table.items())
    ]


@pytest.mark.share(6)
@pytest.mark.parametrize("name", _names(forms.FORMS))
def test_fully_shard(name: str) -> None:
    assert check_form(forms.__name__, name).ok


@pytest.mark.share(2)
@pytest.mark.parametrize("name", _names(parallel_forms.FORMS))
def test_parallel(name: str) -> None:
    assert check_form(parallel_forms.__name__, name).ok


@pytest.mark.share(5)
@pytest.mark.parametrize("name", _names(other_forms.FORMS))
def test_other(name: str) -> None:
    assert check_form(other_forms.__name__, name).ok


def test_pinned_memory_without_an_accelerator() -> None:
    """Memory is not pinned where nothing reads it, and torch refuses to."""
    assert proof_of(forms.Form(other_forms.pinned)).ok
