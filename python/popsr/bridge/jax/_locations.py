"""Lines of the user's model, from the tracebacks that jax keeps with equations."""

from __future__ import annotations

import functools
import importlib
import itertools
import os
from collections.abc import Iterable, Iterator
from typing import Any

from popsr._support.text.frames import PACKAGE, absolute_path, library_path
from popsr.bridge._step.places import Place, nearest_place
from popsr.bridge._step.reading import callers_are_kept
from popsr.bridge.jax._framework import the_jax

__all__ = ["is_of_jax", "is_transposed", "rank_of_file", "scope_of", "user_line"]


@functools.cache
def rank_of_file(file: str) -> int:
    """0 for files of the user, 1 for libraries, 2 for jax itself and this package."""
    path = absolute_path(file)
    if path.startswith((PACKAGE, _folder_of_jax(), _folder_of_jaxlib())) or file.startswith("<frozen"):
        return 2
    return 1 if library_path(file) else 0


@functools.cache
def _folder_of_jax() -> str:
    jax = the_jax()

    return os.path.dirname(os.path.abspath(str(jax.__file__))) + os.sep


@functools.cache
def _folder_of_jaxlib() -> str:
    return os.path.dirname(os.path.abspath(str(importlib.import_module("jaxlib").__file__))) + os.sep


def user_line(equation: Any) -> Place | None:
    """File and line that made an equation: the innermost of the user's files, else of a library that is not jax."""
    traceback = equation.source_info.traceback
    if traceback is None:
        return None
    frames = [(each.file_name, int(each.line_num)) for each in traceback.frames]
    place = nearest_place(frames, _is_of_jax)
    if place is None or not callers_are_kept() or rank_of_file(place.file):
        return place
    lines = [line for line, _ in itertools.groupby(_user_lines(frames))]
    return place._replace(callers=tuple(lines[1:]))


def _user_lines(frames: Iterable[tuple[str, int]]) -> Iterator[str]:
    """Lines of the user inside of the step, the innermost first: popsr calls it."""
    for file, line in frames:
        if absolute_path(file).startswith(PACKAGE):
            return
        if not rank_of_file(file):
            yield f"{file}:{line}"


def scope_of(equation: Any) -> tuple[str, ...]:
    """Names of ``jax.named_scope`` around an equation, in the function that it is in, outermost first."""
    stack = equation.source_info.name_stack.stack
    return tuple(each.name for each in stack if type(each).__name__ == "Scope")


def _is_of_jax(file: str) -> bool:
    return rank_of_file(file) == 2


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
