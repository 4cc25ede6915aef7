"""Every path of arrays with every dtype, and the table of the documentation."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests_py.arrays.paths import DTYPES, PATHS

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "arrays.md"


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("path", PATHS)
def test_cell(path: str, name: str, tmp_path: Path) -> None:
    PATHS[path](name, tmp_path)


def test_table_of_the_page_has_the_cells_of_the_matrix() -> None:
    assert len(PATHS) * len(DTYPES) == 90
    rows = [f"| path | {' | '.join(f'`{name}`' for name in DTYPES)} |", f"| --- |{' --- |' * len(DTYPES)}"]
    rows += [f"| {path} |{' yes |' * len(DTYPES)}" for path in PATHS]
    assert "\n".join(rows) in PAGE.read_text()
