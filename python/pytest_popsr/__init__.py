"""The plugin of pytest: proofs of training steps as tests.

pytest imports this package at each start. It is beside popsr, not in it, so that nothing of popsr is imported before a
test asks for a proof.
"""

from __future__ import annotations

import importlib
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pytest_popsr._in_step import InStep

PROVED = pytest.StashKey[bool]()
"""True of an item that proved a step."""


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    """Add the options."""
    _keep_popsr_as_compiled(pluginmanager)
    group = parser.getgroup("popsr", "proofs of training steps")
    group.addoption(
        "--popsr-prove",
        action="append",
        default=[],
        metavar="TARGET",
        help="collect steps as items: of a module, package or file, or one, as train.py::step; may be given again",
    )
    group.addoption(
        "--popsr-report",
        metavar="DIR",
        help="write a page and JSON of each proof, and an index of them",
    )
    parser.addini(
        "popsr_steps", "collect steps as items, as --popsr-prove does: a TARGET a line", "linelist", []
    )


def _keep_popsr_as_compiled(pluginmanager: pytest.PytestPluginManager) -> None:
    """Take back that pytest rewrites the assertions of all of popsr, as the plugin is of the same distribution.

    That costs time and finds nothing: docs/ci.md has the measurement. Where pytest keeps its list elsewhere, it stays.
    """
    hook = getattr(pluginmanager, "rewrite_hook", None)
    marked, known = (getattr(hook, name, None) for name in ("_must_rewrite", "_marked_for_rewrite_cache"))
    if isinstance(marked, set) and isinstance(known, dict):
        marked.discard("popsr")
        known.clear()


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker, and the writer of reports."""
    config.addinivalue_line(
        "markers",
        "in_step(**options): the test returns a step, or a tuple of one and its arguments, and passes if it is proved; "
        "the options are those of popsr.testing.assert_in_step, for the fixture in_step too",
    )
    folder = config.getoption("popsr_report")
    if folder:
        reports = importlib.import_module("pytest_popsr._reports")
        path = config.invocation_params.dir / Path(folder)
        config.pluginmanager.register(reports.Reports(config, path), reports.NAME)


@pytest.fixture
def in_step(request: pytest.FixtureRequest) -> InStep:
    """Prove a step: ``in_step(step, *args, **options)`` as popsr.testing.assert_in_step; gives the proof."""
    found: InStep = importlib.import_module("pytest_popsr._in_step").InStep(request.node)
    return found


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, Any, Any]:
    """Prove the step that a marked test returns."""
    __tracebackhide__ = True
    if pyfuncitem.get_closest_marker("in_step") is None:
        return (yield)
    with importlib.import_module("pytest_popsr._in_step").proving_result(pyfuncitem):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Let a marked test fail that proved nothing."""
    __tracebackhide__ = True
    result = yield
    if item.get_closest_marker("in_step") is not None and not item.stash.get(PROVED, False):
        raise importlib.import_module("pytest_popsr._in_step").proved_nothing(item)
    return result


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(
    session: pytest.Session, config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Add the steps of targets; options that choose among items choose among them too."""
    here, there = config.invocation_params.dir, config.rootpath
    targets = [
        *((target, here) for target in config.getoption("popsr_prove")),
        *((target, there) for target in config.getini("popsr_steps")),
    ]
    if targets:
        items.extend(importlib.import_module("pytest_popsr._steps").collected(session, targets))
