"""The page of the bridge has every primitive of the installed JAX: executed, analysed, left out or unknown."""

from __future__ import annotations

import pytest

pytest.importorskip("jax")

import jax

from popsr.bridge.jax import primitives
from popsr.bridge.jax._rules.opaque import LOCAL, SILENT
from tests_py.bridge.jax import followed
from tests_py.bridge.jax.coverage import ON_PAGE, is_older, registry, table

OF_OTHER_VERSIONS = {"custom_vjp_call_jaxpr"}


def test_the_table_of_the_docs_is_fresh() -> None:
    """Of the newest JAX that it was written for; an older one has other primitives."""
    if is_older():
        pytest.skip("needs JAX of the table on the page")
    assert ON_PAGE.written() == table(), "run python -m tests_py.bridge.jax.coverage"


def test_the_registry_of_jax_is_listed() -> None:
    """All that has a rule, and what comes from other modules than jax.lax."""
    names = set(registry()[1])
    assert is_older() or {*primitives()} - names <= OF_OTHER_VERSIONS
    assert names >= {"random_bits", "pure_callback", "io_callback", "custom_linear_solve", "ffi_call"}


def test_kinds_do_not_overlap() -> None:
    assert not SILENT & (LOCAL | {*primitives()})


@pytest.mark.skipif(not hasattr(jax, "new_ref"), reason="needs JAX with new_ref")
def test_what_is_followed_and_refused_is_so() -> None:
    assert followed.ON_PAGE.written() == followed.table(), "run python -m tests_py.bridge.jax.followed"
