"""Reads of what each process has of its own: a trace would make them constants of all replicas."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import os
import sys
import threading
import types
from collections.abc import Callable, Iterator
from typing import Any

from popsr._support.text.shown import shown
from popsr.bridge._step import elsewhere as _elsewhere
from popsr.bridge._step.elsewhere import other_values
from popsr.bridge.jax._locations import rank_of_file
from popsr.errors import UnsupportedError

__all__ = ["Watched"]

_OF_PROCESSES = (
    "process_index",
    "process_count",
    "process_indices",
    "host_id",
    "host_count",
    "host_ids",
    "local_devices",
    "local_device_count",
)
_OF_ALL = ("devices", "device_count")
"""Functions that are equal in all processes. A step may call them on a machine with as many devices as replicas."""

_VARIABLES = frozenset(
    [
        "CLOUD_TPU_TASK_ID",
        "HOSTNAME",
        "JAX_LOCAL_PROCESS_ID",
        "JAX_PROCESS_ID",
        "JOB_COMPLETION_INDEX",
        "LOCAL_RANK",
        "NODE_RANK",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_RANK",
        "PMIX_RANK",
        "PMI_RANK",
        "RANK",
        "SLURM_LOCALID",
        "SLURM_NODEID",
        "SLURM_PROCID",
        "TPU_WORKER_ID",
    ]
)
"""Variables of the environment by which launchers tell processes apart."""


_LOCK = threading.RLock()
"""Held while a step is traced: what is replaced is so for all threads."""


class Watched:
    """Reads of the user's code on this thread while it is active.

    Reads of what tells processes apart are refused. JAX's own reads are let through.

    Numbers and names that a step may well print are others for it while ``elsewhere`` is true: as in another process,
    on another day.

    Attributes:
        devices: line of the first call that lists or counts all devices; empty without one.
        elsewhere: whether they are others now.
    """

    def __init__(self) -> None:
        """Without any read."""
        self.devices, self.elsewhere = "", False
        self._thread = threading.get_ident()

    @contextlib.contextmanager
    def active(self) -> Iterator[None]:
        """Inside, reads are seen."""
        bridge = importlib.import_module("jax._src.xla_bridge")
        with _LOCK, contextlib.ExitStack() as stack:
            for name in (*_OF_PROCESSES, *_OF_ALL):
                if hasattr(bridge, name):
                    stack.enter_context(self._function(bridge, name))
            stack.enter_context(other_values(lambda: self.elsewhere and bool(self._line_of_user())))
            stack.enter_context(self._environment())
            yield

    @contextlib.contextmanager
    def _function(self, module: Any, name: str) -> Iterator[None]:
        """A function of JAX, whichever names the user has for it: its code is another one for a while."""
        known = getattr(module, name)
        plain = inspect.unwrap(known)
        genuine = types.FunctionType(plain.__code__, plain.__globals__, name, plain.__defaults__)
        clear = getattr(known, "cache_clear", None)

        def called(*args: Any, **options: Any) -> Any:
            if (line := self._line_of_user()) and name in _OF_ALL:
                self.devices = self.devices or f"jax.{name}() at {line}"
            elif line:
                raise _refused(f"jax.{name}()", line)
            return genuine(*args, **options)

        before = plain.__code__, plain.__defaults__, plain.__kwdefaults__
        if clear is not None:
            clear()  # what is known already would be given without a call
            setattr(module, name, called)  # JAX's own calls leave nothing in the cache
        plain.__code__, plain.__defaults__ = _stand_in.__code__, None
        plain.__kwdefaults__ = {"_called": called}
        try:
            yield
        finally:
            plain.__code__, plain.__defaults__, plain.__kwdefaults__ = before
            if clear is not None:
                setattr(module, name, known)
                clear()

    @contextlib.contextmanager
    def _environment(self) -> Iterator[None]:
        kind = type(os.environ)
        known: Callable[[Any, Any], Any] = kind.__getitem__

        def read(environ: Any, key: Any) -> Any:
            if key in _VARIABLES and (line := self._line_of_user()):
                raise _refused(f"os.environ[{shown(key)}]", line)
            return known(environ, key)

        kind.__getitem__ = read  # type: ignore[method-assign]
        try:
            yield
        finally:
            kind.__getitem__ = known  # type: ignore[method-assign]

    def _line_of_user(self) -> str:
        """The line that reads; empty where that is JAX, the standard library, or another thread."""
        if threading.get_ident() != self._thread:
            return ""
        frame: Any = sys._getframe(2)
        while frame is not None and _is_between(frame.f_code.co_filename):
            frame = frame.f_back
        if frame is None or rank_of_file(frame.f_code.co_filename) == 2:
            return ""
        return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def _refused(what: str, line: str) -> UnsupportedError:
    return UnsupportedError(
        f"from_jax: the step reads what each process has of its own, got {what} at {line}, expected lax.axis_index of "
        "an axis, or an argument that is cut over the replicas"
    )


def _stand_in(*args: Any, _called: Any = None, **options: Any) -> Any:
    """Code that calls what its keyword default says: it has no variables of an outer function."""
    return _called(*args, **options)


def _is_between(file: str) -> bool:
    """True for files between a reader and what it reads: popsr's, of the environment, of devices and of caches."""
    return (
        file in (__file__, _elsewhere.__file__)
        or file.startswith("<frozen")
        or file.endswith(("xla_bridge.py", "_collections_abc.py", os.path.join("jax", "_src", "util.py")))
    )
