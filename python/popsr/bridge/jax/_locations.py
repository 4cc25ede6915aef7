"""Lines of the user's model, from the tracebacks that jax keeps with equations."""

from __future__ import annotations

import functools
import importlib
import os
import sysconfig
from typing import Any

from popsr._text.frames import absolute_path
from popsr.bridge.jax._framework import the_jax

__all__ = ["is_of_jax", "is_transposed", "rank_of_file", "user_line"]

_LIBRARIES = tuple(
    os.path.abspath(path) + os.sep
    for path in {sysconfig.get_paths()[kind] for kind in ("stdlib", "purelib", "platlib")}
)
_SITE = f"{os.sep}site-packages{os.sep}"
_PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))) + os.sep


@functools.cache
def rank_of_file(file: str) -> int:
    """0 for files of the user, 1 for libraries, 2 for jax itself and this package."""
    path = absolute_path(file)
    if path.startswith((_PACKAGE, _folder_of_jax(), _folder_of_jaxlib())) or file.startswith("<frozen"):
        return 2
    return 1 if _SITE in path or path.startswith(_LIBRARIES) else 0


@functools.cache
def _folder_of_jax() -> str:
    jax = the_jax()

    return os.path.dirname(os.path.abspath(str(jax.__file__))) + os.sep


@functools.cache
def _folder_of_jaxlib() -> str:
    return os.path.dirname(os.path.abspath(str(importlib.import_module("jaxlib").__file__))) + os.sep


def user_line(equation: Any) -> tuple[str, int] | None:
    """File and line that made an equation: the innermost of the user's files, else of a library that is not jax."""
    traceback = equation.source_info.traceback
    if traceback is None:
        return None
    library = None
    for frame in traceback.frames:
        rank = rank_of_file(frame.file_name)
        if rank == 0:
            return frame.file_name, int(frame.line_num)
        if rank == 1 and library is None:
            library = frame.file_name, int(frame.line_num)
    return library


def is_transposed(equation: Any) -> bool:
    """True for equations of a backward pass: JAX notes with each the transformations that made it."""
    stack = equation.source_info.name_stack.stack
    return any(type(each).__name__ == "Transform" and each.name == "transpose" for each in stack)


def is_of_jax(jaxpr: Any) -> bool:
    """True if the function that was traced is defined in jax: each of its calls is at the caller's line.

    A jaxpr is traced once for all calls, so its equations know only the first caller.
    """
    info = getattr(jaxpr, "debug_info", None)
    source = getattr(info, "func_src_info", None) or ""
    file = source.rpartition(" at ")[2].rpartition(":")[0]
    return bool(file) and rank_of_file(file) == 2
