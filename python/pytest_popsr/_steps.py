"""Steps of modules, packages and files, collected as items of pytest."""

from __future__ import annotations

import functools
import inspect
import os
import traceback
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from popsr._support.text.raised import place_of, without_frames_of_popsr
from popsr.bridge._proof.named import (
    Named,
    modules_of,
    named_step,
    options_of,
    proof_of_named,
    steps_in,
)
from popsr.errors import Error
from pytest_popsr._in_step import judge
from pytest_popsr._lines import entry_at

__all__ = ["collected", "identity"]


def collected(session: pytest.Session, targets: Iterable[tuple[str, Path]]) -> Iterator[pytest.Item]:
    """Items of targets; of those that cannot be imported pytest gets an error of collection.

    Args:
        session: of pytest.
        targets: names, and the folders to which paths among them are relative.
    """
    for target, folder in dict.fromkeys(targets):
        where, mark, path = target.partition("::")
        if where.endswith(".py") or os.sep in where:
            where = str(folder / where)
        node = _Target.from_parent(session, name=target, nodeid=target, target=f"{where}{mark}{path}")
        yield from session.genitems(node)


class _Target(pytest.Collector):
    """A target: its children are steps."""

    def __init__(self, *, target: str, **options: Any) -> None:
        super().__init__(**options)
        self._target = target

    def collect(self) -> Iterator[pytest.Item]:
        """The steps.

        Raises:
            CollectError: there is none.
        """
        try:
            found = {identity(named): (label, named) for label, named in self._named()}
        except SystemExit as error:  # pytest would end with its code, and 0 is a success
            raise self.CollectError(
                f"popsr: {self.name} raised SystemExit ({error.code}) at {place_of(error)}, expected a module"
            ) from error
        if not found:
            raise self.CollectError(
                f"popsr: no step in {self.name}, expected functions with their example arguments beside them, as step "
                "and step_args, or programs; `TARGET::step` names any other"
            )
        for label, named in found.values():
            yield _Step.from_parent(self, name=named.name, nodeid=f"{label}::{named.name}", named=named)

    def _named(self) -> Iterator[tuple[str, Named]]:
        where, mark, path = self._target.partition("::")
        if mark:
            yield self._label(where), named_step(self._target)._replace(name=path)
            return
        for module in modules_of(where):
            label = self._label(where if where.endswith(".py") else module.__name__)
            yield from ((label, named) for named in steps_in(module))

    def _label(self, where: str) -> str:
        """A module's name, or a file below the root folder, as pytest names files."""
        root = self.config.rootpath
        return Path(where).relative_to(root).as_posix() if where.startswith(f"{root}{os.sep}") else where

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:  # noqa: ARG002
        """The failure, without frames of pytest and popsr."""
        return _shown(excinfo, super().repr_failure)


def identity(named: Named) -> tuple[int, ...]:
    """Alike for two names of one step with the same arguments and options: where another module imports it."""
    beside = (getattr(named.owner, f"{named.name}_{each}", None) for each in ("args", "options"))
    return id(named.value), *map(id, beside)


class _Step(pytest.Item):
    """A step; it passes if it is proved."""

    def __init__(self, *, named: Named, **options: Any) -> None:
        super().__init__(**options)
        self._step = named
        self.add_marker("in_step")

    def runtest(self) -> None:
        """Prove the step."""
        owner = self._step._replace(name=self._step.name.rpartition(".")[2])
        judge(self, self.nodeid, lambda: proof_of_named(owner, options_of(owner)))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """The failure at the line that is to blame."""
        return _shown(excinfo, functools.partial(super().repr_failure, style=style))

    def reportinfo(self) -> tuple[str, int | None, str]:
        """File, line and name of the step."""
        code = getattr(inspect.unwrap(self._step.value), "__code__", None)
        if code is None:
            return str(getattr(self._step.module, "__file__", self.path)), None, self.nodeid
        return code.co_filename, code.co_firstlineno - 1, self.nodeid


def _shown(excinfo: pytest.ExceptionInfo[BaseException], otherwise: Any) -> Any:
    """The failure as pytest shows it, its traceback one entry at the user's line, or the user's entries."""
    error = excinfo.value
    if isinstance(error, pytest.Collector.CollectError):
        return otherwise(excinfo)
    entry = entry_at(error, place_of(error))
    if isinstance(error, Error):
        if entry is None:
            return "".join(traceback.format_exception_only(error)).rstrip()
        return otherwise(pytest.ExceptionInfo.from_exception(error.with_traceback(entry)))
    without_frames_of_popsr(error)
    while error.__traceback__ is not None and _is_of_pytest(error.__traceback__):
        if error.__traceback__.tb_next is None:
            break
        error.__traceback__ = error.__traceback__.tb_next
    if isinstance(error, SyntaxError) and entry is not None:
        error.__traceback__ = entry
    return otherwise(pytest.ExceptionInfo.from_exception(error))


def _is_of_pytest(entry: Any) -> bool:
    name = str(entry.tb_frame.f_globals.get("__name__"))
    return name.partition(".")[0] in ("_pytest", "pluggy", "pytest_popsr", "importlib") or name.startswith(
        "<"
    )
