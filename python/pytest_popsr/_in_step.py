"""The fixture ``in_step``, and tests with the marker of that name."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from popsr._support.text.entry_points import leave
from popsr._support.text.raised import without_frames_of_popsr
from popsr.bridge import Proof
from popsr.bridge._proof.prove import read_step
from popsr.errors import Error, OutOfStepError
from popsr.testing._in_step import allowed, out_of_step
from pytest_popsr import PROVED
from pytest_popsr._lines import entry_at
from pytest_popsr._reports import report

__all__ = ["InStep", "judge", "proved_nothing", "proving_result"]


class InStep:
    """The value of the fixture: proves a step."""

    def __init__(self, item: pytest.Item) -> None:
        """A function for one test."""
        self._item = item

    def __repr__(self) -> str:
        return "in_step"

    def __call__(self, step: Any, *args: Any, **options: Any) -> Proof:
        """Prove a step; arguments and result are those of ``popsr.testing.assert_in_step``."""
        __tracebackhide__ = True
        return _prove(self._item, step, args, options)


def _prove(item: pytest.Item, step: Any, args: tuple[Any, ...], options: dict[str, Any]) -> Proof:
    __tracebackhide__ = True
    for marker in item.iter_markers("in_step"):  # the closest first
        options = {**marker.kwargs, **options}
        if marker.args:
            raise pytest.UsageError(
                f"{item.nodeid}: the marker in_step takes options, got {marker.args[0]!r}, expected replicas=2"
            )
    allow = options.pop("allow", ())
    ways = {"stochastic_rounding": False, "like": None, "exact": True}
    given = {name: options.pop(name, default) for name, default in ways.items()}

    def made() -> Proof:
        __tracebackhide__ = True
        return read_step("in_step", step, *args, **options).prove(**given)

    return judge(item, "in_step", made if not isinstance(step, Proof) else lambda: step, allow)


def judge(item: pytest.Item, where: str, made: Any, allow: Iterable[str] = ()) -> Proof:
    """The proof, which is ok.

    Args:
        item: the test, which has proved something then, whatever came out.
        where: begin of the error's text.
        made: makes the proof.
        allow: codes of lints that are accepted.
    Raises:
        OutOfStepError: it is not.
    """
    __tracebackhide__ = True
    item.stash[PROVED] = True
    proof: Proof | None = None
    error: Exception | None = None
    try:
        codes = allowed(where, allow)
        proof = made()
        error = out_of_step(where, proof, codes)
        report(item, proof, error, codes)
        if error is not None:
            raise error
        return proof
    except Exception as raised:
        if error is None:
            report(item, None, raised)
        leave(raised) if isinstance(raised, Error) else without_frames_of_popsr(raised)
        raise


def proved_nothing(item: pytest.Item) -> BaseException:
    """The failure of a marked test that made no proof, at its first line."""
    error = pytest.fail.Exception(
        f"{item.name} is marked in_step and proved nothing, expected a step that it returns, as `return step, model, "
        "optimizer, batch`, or a call of the fixture in_step"
    )
    path, line, _ = item.reportinfo()
    return error.with_traceback(entry_at(error, f"{path}:{(line or 0) + 1}"))


@contextlib.contextmanager
def proving_result(item: pytest.Function) -> Iterator[None]:
    """While the test runs, what it returns is proved."""
    test = item.obj

    @functools.wraps(test)
    def call(**arguments: Any) -> None:
        __tracebackhide__ = True
        found = test(**arguments)
        if found is None:
            return
        step, *args = found if isinstance(found, tuple) else (found,)
        try:
            _prove(item, step, tuple(args), {})
        except OutOfStepError as error:
            entry = entry_at(error, error.location)
            if entry is None:
                raise
            raise error.with_traceback(entry) from None

    item.obj = call
    try:
        yield
    finally:
        item.obj = test
