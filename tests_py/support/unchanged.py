"""A call that fails leaves every program as it was: what "as it was" is, and a watch on the calls of a block.

``Watch`` records the state of all programs whenever code outside popsr calls popsr. If one of these calls raises, and
the exception leaves the block, the state when it was called and the state afterwards must be the same.
"""

from __future__ import annotations

import difflib
import inspect
import os
import sys
import weakref
from types import CodeType, FrameType, TracebackType
from typing import Any

import popsr
from popsr._program.context import _context
from popsr.addons import module

PACKAGE = os.path.dirname(os.path.abspath(popsr.__file__)) + os.sep

_FULL = "POPSR_FULL_TRACEBACK"
_ENTRY_POINTS = {popsr.variable.__code__}

_irs: weakref.WeakSet[popsr.Ir] = weakref.WeakSet()
_make_ir = popsr.Ir.__init__


def _register(self: popsr.Ir, *args: Any, **kwargs: Any) -> None:
    _make_ir(self, *args, **kwargs)
    _irs.add(self)


_register.__wrapped__ = _make_ir  # type: ignore[attr-defined] # the signature is looked at
popsr.Ir.__init__ = _register  # type: ignore[method-assign]


def forget() -> None:
    """Leave out the programs that there are."""
    _irs.clear()


def state_of(ir: popsr.Ir) -> list[str]:
    """All that a program is, a line each: equal lists mean equal programs, also in what they number next."""
    core = ir._core
    counts = {"graph": core.num_graphs, "tensor": core.num_tensors, "stream": core.num_streams}
    caches: dict[str, dict[int, Any]] = {
        "graph": ir._graph_cache,
        "tensor": ir._tensor_cache,
        "stream": ir._stream_cache,
    }
    stale = {kind: [id_ for id_ in cache if id_ >= counts[kind]] for kind, cache in caches.items()}
    return [
        *core.print_state().splitlines(),
        f"epoch {core.epoch}",
        f"handles without anything {stale}",
        f"remote buffers {list(ir._remote_cache)}, over {ir._shard_over}, with {ir._residents}",
        f"mapped {list(ir._mapped)}",
        f"transfers {ir.num_host_transfers}, prepared {ir._prepared}, seeds {ir._rules_by_hand}",
        f"replication {ir.replication_factor}, embedded {ir._embeds_replication}, {ir.options}",
    ]


def context_state() -> list[str]:
    """All that is current."""
    context = _context
    return [
        f"graphs {[f'{graph._ir.id} {graph._id}' for graph in context._graphs]}",
        f"scopes {context._name_scopes}, places {context._ipu_id} {context._io_tile_set}",
        f"sequence {context._sequence} of {sorted(f'{g._ir.id} {g._id}' for g in context._sequenced)}",
        f"rounding {context._stochastic}, debug names {context._debug_names} {context._frame_offset}",
        f"hooks {list(context._op_hooks.hooks)}, next {context._op_hooks.next}",
        f"modules that are built {[[type(each).__name__ for each in level] for level in module._stateful]}",
    ]


def everything() -> dict[str, list[str]]:
    """The state of all programs that there are, and the context."""
    states = {f"Ir {ir.id}": state_of(ir) for ir in sorted(_irs, key=lambda ir: ir.id)}
    return {**states, "context": context_state()}


def difference(before: dict[str, list[str]], after: dict[str, list[str]]) -> str:
    """Lines that are not in both, of what is in both."""
    lines = []
    for name in before.keys() & after.keys():
        lines += list(
            difflib.unified_diff(before[name], after[name], name, "after the call", lineterm="", n=0)
        )
    return "\n".join(lines)


def assert_unchanged(
    before: dict[str, list[str]], what: str = "the call", *, but_order: bool = False
) -> None:
    """Programs made since do not count. With ``but_order`` neither does the record of the order of ops."""
    after = everything()
    if but_order:
        before, after = _without_order(before), _without_order(after)
    changes = difference(before, after)
    assert not changes, f"{what} failed and left traces:\n{changes}"


def _without_order(states: dict[str, list[str]]) -> dict[str, list[str]]:
    return {name: [line.partition(" sequence ")[0] for line in lines] for name, lines in states.items()}


def _is_ours(frame: FrameType | None) -> bool:
    return frame is not None and frame.f_code.co_filename.startswith(PACKAGE)


def _called(frame: FrameType) -> CodeType:
    """The function of a frame; of an entry point the function that it calls."""
    function = frame.f_locals.get("fn") if frame.f_code in _ENTRY_POINTS else None
    return inspect.unwrap(function).__code__ if function else frame.f_code


class Watch:
    """Records what programs were when popsr was called last from outside."""

    def __init__(self) -> None:
        self._frame: FrameType | None = None  # of the outermost call
        self._before: dict[str, list[str]] = {}
        self._busy = False
        self._outer: Any = None
        self._full = os.environ.get(_FULL)

    def start(self) -> None:
        os.environ[_FULL] = "1"
        self._outer = sys.getprofile()
        sys.setprofile(self._note)

    def stop(self) -> None:
        sys.setprofile(self._outer)
        if self._full is None:
            del os.environ[_FULL]
        else:
            os.environ[_FULL] = self._full

    def _note(self, frame: FrameType, event: str, arg: object) -> None:
        if event != "call" or not _is_ours(frame) or self._busy or self._is_inside(frame.f_back):
            return
        self._busy = True
        try:
            self._before = everything()
        finally:
            self._busy = False
        self._frame = frame

    @staticmethod
    def _is_inside(frame: FrameType | None) -> bool:
        while frame is not None and not _is_ours(frame):
            frame = frame.f_back
        return frame is not None

    def check(self, traceback: TracebackType | None) -> None:
        """An exception with this traceback left the block."""
        while traceback is not None:
            code = _called(traceback.tb_frame)
            if traceback.tb_frame is self._frame:
                if code.co_flags & inspect.CO_GENERATOR or code.co_name == "__exit__":
                    self._before.pop("context", None)  # it was left, whatever leaving it raised
                    assert_unchanged(self._before, code.co_qualname, but_order=True)
                else:
                    assert_unchanged(self._before, code.co_qualname)
            traceback = traceback.tb_next


class WatchedRaises:
    """``pytest.raises`` whose block leaves no traces."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self._watch = Watch()

    def __enter__(self) -> Any:
        caught = self._inner.__enter__()
        self._watch.start()
        return caught

    def __exit__(self, kind: Any, value: Any, traceback: Any) -> bool:
        self._watch.stop()
        is_expected: bool = self._inner.__exit__(kind, value, traceback)
        if is_expected:
            self._watch.check(traceback)
        return is_expected
