"""The header of a test run: what was built, with what, and which optional peers are missing; fixtures of several
folders.
"""

import gc
import importlib.metadata
import importlib.util
import platform
import signal
from collections.abc import Iterator
from typing import Any

import hypothesis
import numpy as np
import pytest

import popsr
from tests_py.support import unchanged
from tests_py.support.sessions import pytest_addoption as pytest_addoption
from tests_py.support.sessions import pytest_collection_modifyitems as pytest_collection_modifyitems
from tests_py.support.sessions import pytest_configure as pytest_configure
from tests_py.support.sessions import pytest_ignore_collect as pytest_ignore_collect

# Hypothesis has other settings where a variable of the environment says CI: examples are the same everywhere.
hypothesis.settings.register_profile(
    "everywhere",
    derandomize=True,
    deadline=None,
    database=None,
    print_blob=True,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("everywhere")


def pytest_collection_finish() -> None:
    """Modules and tests stay to the end: of their millions of objects each collection of garbage would look at all."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module", autouse=True)
def later_files_do_not_look_at_what_stays() -> Iterator[None]:
    """Objects that a file of tests leaves alive, caches of PyTorch and JAX above all, are in no later collection.

    A worker has millions of such objects in the end, and a collection of all takes seconds.
    """
    yield
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def failed_calls_leave_no_trace(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Each ``with pytest.raises(...)``: the call that raised left all programs, and the context, as they were.

    Tracebacks have all frames there, since the watch finds the call in them.
    """
    raises: Any = pytest.raises

    def watched(*args: Any, **kwargs: Any) -> Any:
        inner = raises(*args, **kwargs)
        return unchanged.WatchedRaises(inner) if hasattr(inner, "__enter__") else inner

    unchanged.forget()
    monkeypatch.setattr(pytest, "raises", watched)
    yield
    unchanged.forget()


def pytest_report_header() -> list[str]:
    lines = [
        f"popsr {popsr.__version__}: {', '.join(f'{k} {v}' for k, v in popsr.build_info().items())}",
        f"numpy {np.__version__}, ml_dtypes {importlib.metadata.version('ml_dtypes')}, {platform.machine()}",
    ]
    missing = [peer for peer in ("torch", "jax") if importlib.util.find_spec(peer) is None]
    if missing:
        lines.append(f"not installed, their tests are skipped: {', '.join(missing)}")
    return lines


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """SIGINT raises KeyboardInterrupt, also where it is inherited as ignored: in a shell's background job, by nohup."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
