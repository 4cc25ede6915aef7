"""``python -m popsr ops``: every op of the registry, and what the registry says of it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from popsr import __main__ as command
from popsr._tools.show.ops_table import op_rows
from tests_py import ROOT
from tests_py.support.helpers import PUBLIC, SCHEMAS, python_op
from tests_py.support.unchecked import unchecked

DOCS = ROOT / "docs"
ROWS = {row[0].rpartition(".")[2]: row for row in op_rows()}


def _printed(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    assert command.main(["ops", *args]) == 0
    return capsys.readouterr().out


def test_page_is_what_the_command_prints_before_its_table(capsys: pytest.CaptureFixture[str]) -> None:
    page, table = (DOCS / "ops.md").read_text(), _printed(capsys, "--markdown")
    assert table.startswith(f"{page}\n| op |")
    lines = table.removeprefix(page).split("\n")
    assert [line.split("`")[1] for line in lines if line.startswith("| `")] == [row[0] for row in op_rows()]


def test_every_op_is_in_a_row() -> None:
    forms = {row[4].partition(":")[0] for row in ROWS.values()} - {"", "itself"}
    assert {*ROWS, *forms} == set(PUBLIC)
    assert not set(ROWS) & forms
    for row in ROWS.values():
        assert unchecked(python_op(row[0].rpartition(".")[2]))


def test_every_op_says_who_agrees_on_it() -> None:
    """A partition rule of its own is an OpDef's `partition`; what it says in words is its `partition_says`."""
    assert [name for name in PUBLIC if not SCHEMAS[name]["partition"]] == []


def test_text_has_a_line_a_row(capsys: pytest.CaptureFixture[str]) -> None:
    head, rule, *lines = _printed(capsys).splitlines()
    assert head.split("|")[0].strip() == "op"
    assert set(rule) == {"-"}
    assert [line.split(" ")[0] for line in lines] == [row[0] for row in op_rows()]
    assert len({line.find("|") for line in lines}) == 1


@pytest.mark.parametrize(
    "row",
    [
        ("add", "numbers", "yes", "meet of inputs", "add_"),
        ("floor", "numbers", "zeros", "meet of inputs", ""),
        ("equal", "numbers, bool", "error", "meet of inputs", ""),
        ("gather", "t: all; indices: ints", "yes", "meet of inputs", ""),
        ("slice", "all", "yes", "meet of inputs", "slice_: a view"),
        ("repeat", "all", "none", "as in the graphs it runs", ""),
        ("var_updates.copy_var_update_", "all", "none", "meet of X", "itself"),
        ("var_updates.accumulator_zero_", "all", "none", "equal everywhere", "itself"),
        (
            "collectives.replicated_all_reduce",
            "numbers, bool",
            "none",
            "equal in a group, and in groups whose members agree in order",
            "replicated_all_reduce_",
        ),
    ],
    ids=lambda row: row[0],
)
def test_rows(row: tuple[str, ...]) -> None:
    assert ROWS[row[0].rpartition(".")[2]] == row


def test_unknown_options_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        command.main(["ops", "--html"])
    assert stopped.value.code == 2
    assert "unrecognized arguments: --html" in capsys.readouterr().err


def test_a_reader_that_has_enough_is_not_an_error() -> None:
    """As ``python -m popsr ops | head -n 1``."""
    reader, writer = os.pipe()
    os.close(reader)
    result = subprocess.run(
        [sys.executable, "-m", "popsr", "ops"], stdout=writer, stderr=subprocess.PIPE, text=True, check=False
    )
    os.close(writer)
    assert (result.stderr, result.returncode) == ("", 1)
