"""Each optimiser and format in each way of running it: the bits are those of one process, as the page says."""

from __future__ import annotations

import itertools

import pytest

from tests_py.sr.optimisers import matrix


def test_the_table_of_the_docs_says_what_is_tested() -> None:
    assert matrix.PAGE.written() == matrix.table(lambda *_: True)


@pytest.mark.share(7)
@pytest.mark.parametrize("way", ["each", "compiled"])
@pytest.mark.parametrize("form", matrix.TORCH_FORMATS)
@pytest.mark.parametrize("kind", matrix.TORCH)
def test_torch(kind: str, form: str, way: str) -> None:
    pytest.importorskip("torch")
    assert matrix.torch_cell(kind, form, way)


def test_parts_on_ranks() -> None:
    pytest.importorskip("torch")
    from tests_py.bridge.torch import gloo

    assert gloo.run(2, matrix.on_ranks, 2) == [{}, {}]


ROWS = [
    (kind, form, way)
    for kind, form, way in itertools.product(matrix.JAX, matrix.JAX_FORMATS, ("jit", "portable", "shard_map"))
    if not matrix.needs_whole(kind, way)
]


@pytest.mark.share(11)
@pytest.mark.parametrize(("kind", "form", "way"), ROWS)
def test_jax(kind: str, form: str, way: str) -> None:
    pytest.importorskip("jax")
    pytest.importorskip("optax")
    assert matrix.jax_cell(kind, form, way)
