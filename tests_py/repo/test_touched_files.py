"""An op is added in few places: the files that were there and have to be edited, in the latest commits that add ops."""

import pytest

from tests_py.repo import touched_files


@pytest.fixture(scope="module")
def additions() -> list[touched_files.Addition]:
    try:
        return touched_files.additions()
    except RuntimeError as error:
        pytest.skip(f"needs the history: {error}")


def test_the_latest_ops_edit_few_files(additions: list[touched_files.Addition]) -> None:
    for addition in additions:
        assert len(addition.edited) <= touched_files.GOAL, addition


def test_each_op_is_found_where_it_was_added(additions: list[touched_files.Addition]) -> None:
    """A definition, its Python function and, in new or old files, what else spells it: else the count means nothing."""
    for addition in additions:
        files = (*addition.edited, *addition.new)
        assert any(file.startswith(touched_files.DEFINITIONS) for file in files), addition
        assert any(file.startswith("python/popsr/ops") for file in files), addition


@pytest.mark.parametrize(
    ("op", "word", "is_said"),
    [
        ("erf", "kErf", True),
        ("erf", "erf_grad", True),
        ("erf", "erfc", False),
        ("erf", "eval_erf_near", False),
        ("matmul_integer", "kMatmulInteger", True),
        ("matmul_integer", "matmul", False),
        ("accumulate_square_", "accumulate_square", True),
    ],
)
def test_spellings(op: str, word: str, is_said: bool) -> None:
    assert touched_files.says({touched_files.parts(word)}, op) is is_said
