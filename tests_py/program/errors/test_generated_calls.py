"""Calls that nobody wrote: of every public function that takes part in writing programs, with one argument spoiled, and
with Ctrl-C at any line. Whatever raises leaves all programs as they were.
"""

from __future__ import annotations

import enum
import re
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

import popsr
from tests_py.support.helpers import PUBLIC
from tests_py.support.hostile import generated as hostile
from tests_py.support.hostile import interrupts
from tests_py.support.hostile.values import HOSTILE
from tests_py.support.typed_errors import text_of, untyped
from tests_py.support.unchanged import assert_unchanged, difference, everything, forget

CALLS = 10  # of each function
TARGETS = hostile.targets()
PARTS = 8


@pytest.fixture(autouse=True)
def a_folder_and_no_warnings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Some of the calls write a file whose name is a hostile value."""
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def part_of(part: int) -> Iterator[tuple[hostile.Target, hostile.World]]:
    for target in TARGETS[part::PARTS]:
        forget()
        yield target, hostile.World()


@pytest.mark.parametrize("part", range(PARTS))
def test_bad_calls_leave_no_trace(part: int) -> None:
    made = failed = 0
    for target, world in part_of(part):
        with world.ir.main_graph:
            for call in hostile.hostile_calls(target, world, CALLS):
                made += 1
                before = everything()
                try:
                    call()
                except Exception:
                    failed += 1
                    assert_unchanged(before, str(call))
    assert made == CALLS * len(TARGETS[part::PARTS])
    assert failed > made / 2


def _is_of_python(call: hostile.Call, error: Exception) -> bool:
    """True if the call does not fit the parameters, the constructor is an enumeration's, or the value raised."""
    if isinstance(error, ZeroDivisionError):  # as hostile values do when they are asked
        return True
    if isinstance(error, TypeError) and re.search(r"\(\) (takes|missing|got) ", str(error)):
        return True
    return isinstance(call.fn, type) and issubclass(call.fn, enum.Enum)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_bad_calls_raise_typed_errors(part: int) -> None:
    made, found = 0, []
    hostile_values = {name: lambda w, make=make: make() for name, make in HOSTILE.items()}
    for target, world in part_of(part):
        with world.ir.main_graph:
            for call in hostile.hostile_calls(
                target, world, 4 * CALLS, 1, values={**hostile.VALUES, **hostile.EVIL, **hostile_values}
            ):
                made += 1
                try:
                    call()
                except (popsr.Error, MemoryError) as error:
                    wrong = untyped(error) if isinstance(error, popsr.Error) else not str(error)
                    if wrong:
                        found.append(f"{call}: {wrong}")
                except Exception as error:
                    if not _is_of_python(call, error):
                        found.append(f"{call}: {type(error).__name__}: {text_of(error)}")
    print(f"{made} calls with one hostile argument, {len(found)} errors without a type")
    assert made == 4 * CALLS * len(TARGETS[part::PARTS])
    assert not found, "\n".join(found[:20])


def test_every_public_function_of_ops_is_called() -> None:
    names = {target.name for target in TARGETS}
    assert {f"ops.{name}" for name in PUBLIC if f"ops.{name}" in names} != set()
    for name in PUBLIC:
        assert names & {f"{module}.{name}" for module in ("ops", "collectives", "var_updates")}, name


def test_calls_are_the_same_for_the_same_seed() -> None:
    def texts(seed: int) -> list[str]:
        world = hostile.World()
        with world.ir.main_graph:
            return [str(call) for call in hostile.hostile_calls(TARGETS[100], world, 20, seed)]

    assert texts(1) == texts(1) != texts(2)


@pytest.mark.parametrize("part", range(PARTS))
def test_ctrl_c_leaves_no_trace_wherever_it_comes(part: int) -> None:
    """A function that makes two things without being a transaction is interrupted between them."""
    interrupted = 0
    for target, world in part_of(part):
        with world.ir.main_graph:
            call = hostile.valid_call(target, world)
            before = everything()
            try:
                with call.inside:
                    lines = interrupts.lines_of(call.alone)
            except Exception:
                continue
            if not difference(before, everything()):
                continue  # it makes nothing
        world = hostile.World()
        with world.ir.main_graph:
            call = hostile.valid_call(target, world)
            for line in sorted({*range(1, lines, max(1, lines // 8)), lines - 1, lines}):
                before = everything()
                with call.inside:
                    if not interrupts.interrupted_at(call.alone, line):
                        break  # fewer lines than the first time
                interrupted += 1
                assert_unchanged(before, f"{target.name}, interrupted at line {line} of {lines},")
    assert interrupted > 200
