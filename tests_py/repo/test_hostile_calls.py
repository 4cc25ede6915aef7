"""Whatever is called with whatever: the call works, or raises a typed error of one short line, without frames of popsr
in its traceback.

Another exception than popsr's is Python's TypeError about parameters that a function does not have, or about operands.
"""

from __future__ import annotations

import inspect
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import popsr
from popsr import addons
from popsr._program.context import _context
from popsr.addons import remote
from popsr.addons.ops import replicated_all_reduce_strided_graph
from popsr.addons.ops.cross_entropy_sharded_wr_loss import handle_ipus
from popsr.addons.transforms import pipelining
from tests_py.support.hostile.by_signature import Target, calls, targets
from tests_py.support.hostile.one_of_each import World
from tests_py.support.hostile.values import Liar, Raises
from tests_py.support.typed_errors import frames_of_popsr, text_of, untyped
from tests_py.support.unchecked import unchecked

CALLS = 5
_OF_A_CALL = re.compile(r"^[\w.<>]+\(\) (takes|missing|got) ")
CALLS_SLOW = 40


def _outcome(target: Target, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    """Fault in the end of a call; None if there is none."""
    given = args if target.owner is None else (target.owner, *args)
    try:
        result = target.function(*given, **kwargs)
        if hasattr(result, "gen"):  # a context manager
            with result:
                pass
    except popsr.Error as error:
        return untyped(error) or next((f"frame {each}" for each in frames_of_popsr(error)), None)
    except MemoryError as error:
        return None if text_of(error) else "MemoryError without a text"
    except TypeError as error:
        return None if _is_pythons(target, given, kwargs, error) else f"TypeError: {text_of(error)}"
    except Exception as error:
        return f"{type(error).__name__}: {text_of(error)}"
    return None


def _is_pythons(target: Target, args: tuple[Any, ...], kwargs: dict[str, Any], error: TypeError) -> bool:
    """True for what Python says of a call that does not fit the parameters, or of operands."""
    text = text_of(error)
    if "\n" in text:
        return False
    if text.startswith(
        ("unsupported operand", "can only concatenate", "'<' not supported", "unhashable type")
    ):
        return target.name.rpartition(".")[2].startswith("__")
    takes_any = any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in target.parameters or ())
    if takes_any and _OF_A_CALL.search(text):  # what was passed on does not fit
        return True
    try:
        inspect.signature(target.function).bind(*args, **kwargs)
    except TypeError:
        return True
    except ValueError:
        return False
    return False


@pytest.fixture
def make_world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], World]:
    monkeypatch.chdir(tmp_path)
    return lambda: World(tmp_path)


def _problems(make_world: Callable[[], World], count: int) -> tuple[int, int, list[str]]:
    """Targets, calls, and what went wrong."""
    world = make_world()
    threads = popsr.num_threads()
    found, made = [], 0
    todo = list(targets(world))
    for target in todo:
        for words, args, kwargs in calls(world, target, count):
            _context.__init__()  # type: ignore[misc]
            _context.push_graph(world.graph if made % 3 == 0 else world.ir.main_graph)
            made += 1
            problem = _outcome(target, args, kwargs)
            if problem is not None:
                found.append(f"{target.name}({words}): {problem[:200]}")
    _context.__init__()  # type: ignore[misc]
    popsr.set_num_threads(threads)
    return len(todo), made, found


def test_calls_with_what_does_not_fit(
    make_world: Callable[[], World], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("POPSR_FULL_TRACEBACK", raising=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        number, made, found = _problems(make_world, CALLS)
    print(f"{made} calls of {number} functions, constructors, methods and properties")
    assert number >= 400
    assert made >= 2000
    assert not found, "\n".join([f"{len(found)} of {made} calls:", *found[:40]])


# Calls that fit but for one argument, and ended in something else than a typed error.
ALMOST: dict[str, Callable[[World], Any]] = {
    "array of no dimensions as tensors": lambda w: w.net.autodiff(np.array(3)),
    "an __iter__ that returns 3": lambda w: popsr.transforms.autodiff(w.graph, grads_provided=Liar()),
    "keys that are not tensors": lambda w: pipelining.PipelineBoundGraph(w.graph, {"a": 1}),
    "no truth": lambda w: remote.store_remote_graph(
        remote.named_variable_buffers(w.net_factories, shard_over_dict=False),
        use_io_tiles=unchecked(Raises()),
    ),
    "no truth of another flag": lambda w: replicated_all_reduce_strided_graph(
        w.net_variables, use_io_tiles=unchecked(Raises())
    ),
    "no truth of an option": lambda w: unchecked(addons.Module().add_variable_input)(
        "v", lambda: 1.0, overwrite=Raises()
    ),
    "a list as code": lambda w: popsr.Session(w.ir, strict=unchecked([[]])),
    "no items": lambda w: handle_ipus([w.t], Raises()),
    "words for a number": lambda w: w.ir.embed_replication_factor(unchecked(np.array(["a", "b"]))),
    "more seeds than memory": lambda w: popsr.create_seeds(0, batches_per_step=2**40),
}


@pytest.mark.parametrize("name", ALMOST)
def test_calls_that_almost_fit(name: str, make_world: Callable[[], World]) -> None:
    world = make_world()
    with world.ir.main_graph, pytest.raises(popsr.Error) as caught:
        ALMOST[name](world)
    assert untyped(caught.value) is None


@pytest.mark.slow
def test_many_calls_with_what_does_not_fit(
    make_world: Callable[[], World], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("POPSR_FULL_TRACEBACK", raising=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        targets_called, made, found = _problems(make_world, CALLS_SLOW)
    print(
        f"{made} calls of {targets_called} functions, methods and constructors, {len(found)} errors without a type"
    )
    assert made >= 20_000
    assert not found, "\n".join([f"{len(found)} of {made} calls:", *found[:40]])
