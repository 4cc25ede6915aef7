"""Checkpoints are files of safetensors, which popsr reads by itself, and of ONNX, for which it needs onnx."""

import importlib.util
from collections.abc import Iterator

import pytest

HAS_ONNX = importlib.util.find_spec("onnx") is not None


def skipped_without_onnx() -> Iterator[None]:
    """A test that meets files of ONNX is skipped where they cannot be read."""
    try:
        return (yield)
    except ImportError as error:
        if HAS_ONNX or "onnx" not in str(error).lower():
            raise
    pytest.skip("needs onnx")


@pytest.fixture(autouse=True)
def files_that_can_be_read(request: pytest.FixtureRequest) -> None:
    """A test whose parameters say ONNX is skipped at once: it may write its files in a thread or a process."""
    given = getattr(request.node, "callspec", None)
    if given and any("onnx" in str(value) for value in given.params.values()):
        pytest.importorskip("onnx")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup() -> Iterator[None]:
    return (yield from skipped_without_onnx())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Iterator[None]:
    return (yield from skipped_without_onnx())
