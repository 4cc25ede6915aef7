"""Signs of life of long calls: lines in ``logging``, and a line on a terminal after a second."""

from __future__ import annotations

import io
import logging
import os
import subprocess
import sys
from collections.abc import Callable

import pytest

from popsr._support.text import phases
from popsr._support.text.phases import phase


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class _AtOnce:
    """A timer whose time is over when it starts."""

    def __init__(self, _seconds: float, call: Callable[[], None]) -> None:
        self._call, self.ident = call, None

    def start(self) -> None:
        self._call()

    def cancel(self) -> None:
        pass


def test_phases_are_lines_of_the_logger(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "popsr"), phase("prove", "trace"), phase("prove", "rank 1"):
        pass
    texts = [record.getMessage().rsplit(" took ", 1)[0] for record in caplog.records]
    assert texts == ["prove: rank 1", "prove: trace"]


def test_a_phase_that_fails_is_not_told_as_ended(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "popsr"), pytest.raises(ValueError, match="no"), phase("prove", "x"):
        raise ValueError("no")
    assert not caplog.records
    assert phases._bar.get() is None


def test_a_terminal_shows_the_innermost_phase(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tqdm")
    terminal = _Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr("popsr._support.text.phases.threading.Timer", _AtOnce)
    with phase("prove", "trace"), phase("prove", "rank 1"):
        assert "prove: rank 1" in terminal.getvalue()
    assert terminal.getvalue().endswith("\r")  # it is taken away


def test_nothing_is_shown_without_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr("popsr._support.text.phases.threading.Timer", _AtOnce)
    with phase("prove", "trace"):
        pass
    assert stream.getvalue() == ""


_PROGRAM = "from popsr._support.text.phases import phase\nwith phase('prove', 'trace'): pass"


@pytest.mark.parametrize(
    ("level", "code", "expected"),
    [
        ("info", 0, "popsr INFO: prove: trace took"),
        ("DEBUG", 0, "popsr DEBUG: prove: trace"),
        ("warning", 0, ""),
        ("", 0, ""),
        (
            "loud",
            1,
            "POPSR_LOG: no level of logging, got 'loud', expected one of debug, info, warning, error",
        ),
    ],
)
def test_the_environment_chooses_a_level(level: str, code: int, expected: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM],
        env={**os.environ, "POPSR_LOG": level},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code
    assert expected in done.stderr
    assert expected or not done.stderr


def test_a_trace_tells_its_ranks_and_none_of_torch_debug_lines(caplog: pytest.LogCaptureFixture) -> None:
    torch = pytest.importorskip("torch")
    bridge = pytest.importorskip("popsr.bridge.torch")
    with caplog.at_level(logging.DEBUG, "torch.__trace"), caplog.at_level(logging.INFO, "popsr"):
        bridge.trace_step(lambda m, x: m(x), torch.nn.Linear(2, 2), None, torch.ones(1, 2), replicas=2)
    texts = [record.getMessage().rsplit(" took ", 1)[0] for record in caplog.records]
    assert texts == ["trace_step: rank 1", "trace_step: rank 0", "trace_step: trace"]
