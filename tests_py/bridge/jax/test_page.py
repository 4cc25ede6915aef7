"""The page of the bridge has every primitive of the installed JAX: executed, analysed, left out or unknown."""

from __future__ import annotations

import re

import pytest

pytest.importorskip("jax")

from popsr.bridge.jax import primitives
from popsr.bridge.jax._opaque import LOCAL, SILENT
from tests_py.bridge.jax.coverage import ON_PAGE, registry, table

OF_OTHER_VERSIONS = {"custom_vjp_call_jaxpr", "mesh_cast", "pjit"}


def release(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)[:3]))


def test_the_table_of_the_docs_is_fresh() -> None:
    """Of the newest JAX that it was written for; an older one has other primitives."""
    page = re.search(r"primitives of JAX ([\d.]+)", ON_PAGE.written())
    assert page is not None
    if release(registry()[0]) < release(page[1]):
        pytest.skip(f"needs JAX {page[1]}")
    assert ON_PAGE.written() == table(), "run python -m tests_py.bridge.jax.coverage"


def test_the_registry_of_jax_is_listed() -> None:
    """All that has a rule, and what comes from other modules than jax.lax."""
    names = set(registry()[1])
    assert {*primitives()} - names <= OF_OTHER_VERSIONS
    assert names >= {"random_bits", "pure_callback", "io_callback", "custom_linear_solve", "ffi_call"}


def test_kinds_do_not_overlap() -> None:
    assert not SILENT & (LOCAL | {*primitives()})
