"""Checkpoints and a session that is in the middle of a run."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import popsr
from popsr import errors, ops
from tests_py.checkpoints.cases import FORMATS, Format, saved
from tests_py.support.helpers import make_variable
from tests_py.support.unchecked import unchecked

both_formats = pytest.mark.parametrize("format", FORMATS, ids=str)


class Printing:
    """A program that adds 1 to ``first``, prints, and adds 1 to ``second``; ``act`` is what printing does."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ir = popsr.Ir()
        self.act: Callable[[], Any] = lambda: None
        with self.ir.main_graph, popsr.in_sequence():
            one = popsr.constant(np.float32(1))
            self.first, self.second = (
                make_variable(unchecked(np.float32(0)), name) for name in ("first", "second")
            )
            ops.add_(self.first, one)
            ops.print_tensor(self.first)
            ops.add_(self.second, one)
        self.session = popsr.Session(self.ir)
        monkeypatch.setattr(sys, "stderr", self)

    def write(self, _: str) -> None:
        act, self.act = self.act, lambda: None
        act()

    def flush(self) -> None:
        pass

    def run(self) -> None:
        with self.session:
            self.session.run()


@both_formats
def test_a_half_run_state_cannot_be_saved(
    tmp_path: Path, format: Format, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, path = Printing(monkeypatch), tmp_path / f"w{format.suffix}"
    program.act = lambda: format.save(program.session, path)
    with pytest.raises(errors.SessionError, match=f"^{format.save.__name__}: the session is running"):
        program.run()
    assert not list(tmp_path.iterdir())
    program.run()
    format.save(program.session, path)


@both_formats
def test_an_old_checkpoint_survives_a_save_that_is_refused(
    tmp_path: Path, format: Format, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = Printing(monkeypatch)
    path = saved(tmp_path, format, program.session)
    before = path.read_bytes()
    program.act = lambda: format.save(program.session, path)
    with pytest.raises(errors.SessionError):
        program.run()
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@both_formats
def test_weights_cannot_be_reset_in_the_middle_of_a_run(
    tmp_path: Path, format: Format, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = Printing(monkeypatch)
    path = saved(tmp_path, format, program.session)
    program.act = lambda: program.session.reset_host_weights(path)
    with pytest.raises(errors.SessionError, match=r"^reset_host_weights: the session is running"):
        program.run()


@both_formats
def test_another_thread_saves_when_the_run_is_over(
    tmp_path: Path, format: Format, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, path = Printing(monkeypatch), tmp_path / f"w{format.suffix}"
    thread = threading.Thread(target=lambda: format.save(program.session, path))

    def start() -> None:
        thread.start()
        thread.join(0.05)
        assert thread.is_alive()
        assert not path.exists()

    program.act = start
    program.run()
    thread.join()
    found = format.load(path)
    assert found["first"] == found["second"] == 1


@both_formats
def test_the_program_itself_can_be_saved_at_any_time(
    tmp_path: Path, format: Format, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = Printing(monkeypatch)
    program.act = lambda: saved(tmp_path, format, program.ir)
    program.run()
    found = format.load(tmp_path / f"w{format.suffix}")
    assert found["first"] == found["second"] == 0
