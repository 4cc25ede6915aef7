"""An addition touches few files: what a new op, reduction, collective or dtype is, stands in as few places."""

import pytest

from tests_py.repo import touched_files


@pytest.fixture(scope="module")
def additions() -> list[touched_files.Addition]:
    try:
        return touched_files.additions()
    except RuntimeError as error:
        pytest.skip(f"needs the history: {error}")


def test_additions_touch_no_more_files_than_their_goal(additions: list[touched_files.Addition]) -> None:
    for addition in additions:
        assert addition.kind in touched_files.GOALS, addition.subject
        assert len(addition.files) <= touched_files.GOALS[addition.kind], addition


def test_every_kind_of_addition_has_an_example(additions: list[touched_files.Addition]) -> None:
    assert {addition.kind for addition in additions} == set(touched_files.GOALS)
