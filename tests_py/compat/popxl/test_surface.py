"""popsr has PopXL's modules, names and signatures, as the table in surface.txt lists them.

Parameters have PopXL's names, order, kinds and defaults; popsr adds parameters that are given by keyword only.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator

import pytest

from popsr import compat
from tests_py.support.surface import Table, problems

TABLE = Table("compat/popxl/surface.txt")
EXPORTS, MODULES = TABLE.exports, TABLE.modules


def test_the_table_is_complete() -> None:
    """Figures of the reference: 5 lists of exports and 121 modules."""
    assert {name: len(names) for name, names in EXPORTS.items()} == {
        "popxl": 57,
        "popxl.ops": 128,
        "popxl.ops.collectives": 11,
        "popxl.ops.var_updates": 13,
        "popxl.transforms": 7,
    }
    assert len(MODULES) == 121


@pytest.fixture(autouse=True, scope="module")
def _installed() -> Iterator[None]:
    compat.install()
    yield
    compat.uninstall()


@pytest.mark.parametrize("module", EXPORTS)
def test_exported_names_are_exported(module: str) -> None:
    found = importlib.import_module(module)
    assert [name for name in EXPORTS[module] if name not in found.__all__] == []
    assert [name for name in found.__all__ if not hasattr(found, name)] == []


@pytest.mark.parametrize("module", MODULES)
def test_names_and_signatures(module: str) -> None:
    found = importlib.import_module(module)
    wrong = problems(found, MODULES[module])
    assert not wrong, "\n".join(wrong)
