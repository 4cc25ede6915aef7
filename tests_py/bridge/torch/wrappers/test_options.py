"""Options and communication hooks of ``DistributedDataParallel``: what is proved equal is so on ranks of gloo."""

from __future__ import annotations

import functools
from typing import Any

import pytest

torch = pytest.importorskip("torch")


from tests_py.bridge.torch.wrappers import wrapped  # noqa: E402
from tests_py.bridge.torch.wrappers.options import ROWS  # noqa: E402
from tests_py.bridge.torch.wrappers.wrapped import outcome  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")  # of torch, about broadcast_buffers=

REFUSED = {
    "static, accumulated": "no forward pass of the wrapper expects",
    "static, two backward passes": "no forward pass of the wrapper expects",
    "static, two forward and backward passes": "no forward pass of the wrapper expects",
    "static, loss of the module": "no forward pass of the wrapper expects",
}
"""Rows that torch runs, or fails in its first step, and popsr refuses."""


def all_outcomes() -> dict[str, Any]:
    return {name: outcome(name, ROWS) for name in ROWS}


@functools.cache
def real() -> dict[str, set[str] | str]:
    return wrapped.real_outcomes(all_outcomes)


@pytest.mark.parametrize("name", ROWS)
def test_equal_where_ranks_are(name: str) -> None:
    found, expected = wrapped.proved_outcome(ROWS[name]), real()[name]
    if name in REFUSED or isinstance(expected, str):
        assert isinstance(found, str), expected
        assert found.startswith("UnsupportedError: trace_step: DistributedDataParallel ")
        assert REFUSED.get(name, "") in found
    else:
        assert found == expected
