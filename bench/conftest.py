"""The recorder of a benchmark's rows, written into its file of results when the module is done."""

from collections.abc import Iterator

import pytest

from bench.record import Recorder


@pytest.fixture(scope="module")
def record(request: pytest.FixtureRequest) -> Iterator[Recorder]:
    """Function of a table's title, a case, a side and cells; what was measured is kept if a later test fails."""
    recorder = Recorder(request.path)
    yield recorder
    recorder.save()
