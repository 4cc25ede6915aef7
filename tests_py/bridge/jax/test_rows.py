"""Each primitive beside JAX: the same bits for data movement and integers, else 1e-6 of the greatest number."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

pytest.importorskip("jax")
import jax

from popsr.bridge.jax import primitives
from tests_py.bridge.jax.compare import both, difference, primitives_of
from tests_py.bridge.jax.coverage import is_older, registry
from tests_py.bridge.jax.rows_of import ROWS, Row

TABLE = ROWS()
_SEEN: Counter[str] = Counter()


def name_of(row: Row) -> str:
    _SEEN[row.primitive] += 1
    return f"{row.primitive}-{_SEEN[row.primitive]}"


def trace(row: Row) -> Any:
    f = row.function
    if row.sizes is not None:
        in_specs, out_specs = row.specs
        mesh = jax.sharding.AbstractMesh(tuple(row.sizes.values()), tuple(row.sizes))
        check = row.options.get("check_vma", False)
        f = jax.shard_map(f, mesh=mesh, in_specs=in_specs, out_specs=out_specs, check_vma=check)
    return jax.make_jaxpr(f)(*row.args).jaxpr


@pytest.mark.share(4)
@pytest.mark.parametrize("row", TABLE, ids=name_of)
def test_primitive(row: Row) -> None:
    if is_older() and not _is_traced(row):
        pytest.skip("needs JAX with this primitive")
    assert row.primitive in {*primitives_of(trace(row))}
    step, want, got = both(row.function, row.args, row.sizes, row.specs, **row.options)
    assert not step.gaps
    for mine, its in zip(want, got, strict=True):
        assert difference(mine, its) <= row.tolerance


def _is_traced(row: Row) -> bool:
    try:
        return row.primitive in {*primitives_of(trace(row))}
    except (AttributeError, ImportError, TypeError):
        return False


@pytest.mark.skipif(is_older(), reason="needs JAX of the table on the page")
def test_each_rule_has_a_row() -> None:
    """Rules of primitives that older versions of JAX have, or newer ones, are not asked for."""
    assert {*primitives()} & {*registry()[1]} == {row.primitive for row in TABLE}
