"""The page of steps of PyTorch says what is followed and what is refused, as the code does."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from tests_py.bridge.torch.traced.followed import ON_PAGE, table


def test_the_table_of_the_docs_is_fresh() -> None:
    assert ON_PAGE.written() == table(), "run python -m tests_py.bridge.torch.traced.followed"
