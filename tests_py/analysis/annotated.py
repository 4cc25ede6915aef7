"""Reads the programs of ``tests_py.analysis.programs``: functions with expectations in comments.

A program is a public function. It is called in the main graph, in sequence, and takes what it needs by the names of
its parameters: ``ir`` and what its test offers. A comment stands above the line that it is about, and goes on in
comments that are indented deeper:

- ``# lint L2, 48 bytes: text``: a lint of that code and cost is reported here, and ``text`` is part of what it says;
- ``# drifts: name``: the variable of that name drifts, and this line is the one that leaves it so;
- ``# expect name: {0,1}{2,3}``: when the program ends, the tensor is proved equal inside these blocks;
- ``# replicas 0 and 2 of 4: text``: the question, and the first line of its explanation;
- ``# step 1: text``: the first step of the explanation, which is at this line;
- ``# root stream: text``: its root, of that kind;
- ``# suggestion: text``: what would help;
- ``# line: name``: other comments call this line ``@name``. ``@here`` is the line that a comment is about.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import popsr

KINDS = ("lint", "drifts", "expect", "replicas", "step", "root", "suggestion", "line")


@dataclass(frozen=True)
class Expectation:
    """One comment: ``# kind argument: text``, about a line of its file."""

    kind: str
    argument: str
    text: str
    line: int


@dataclass(frozen=True)
class Program:
    """A function that makes a program, and what its comments say of it."""

    name: str
    function: Callable[..., Any]
    expectations: tuple[Expectation, ...] = field(repr=False)

    @property
    def file(self) -> str:
        """The path that locations of its ops begin with."""
        return self.function.__code__.co_filename

    @property
    def room(self) -> str:
        """The name of its file."""
        return self.function.__module__.rpartition(".")[2]

    def plain(self, text: str) -> str:
        """That text, but graphs are called as if their functions stood outside of the program's function."""
        return text.replace(f"{self.name}.", "")

    def of(self, kind: str) -> tuple[Expectation, ...]:
        """The expectations of that kind, in the order of the file."""
        return tuple(each for each in self.expectations if each.kind == kind)

    def build(
        self, replicas: int, given: Callable[[popsr.Ir], Mapping[str, Any]] | None = None
    ) -> tuple[popsr.Ir, Any]:
        """The program, and what the function returned."""
        ir = popsr.Ir(replication=replicas)
        with ir.main_graph, popsr.in_sequence():
            offered = {"ir": ir, **(given(ir) if given else {})}
            taken = {name: offered[name] for name in inspect.signature(self.function).parameters}
            return ir, self.function(**taken)


def programs_of(package: ModuleType) -> tuple[Program, ...]:
    """The programs of all files of a package."""
    files = [f"{package.__name__}.{each.name}" for each in pkgutil.iter_modules(package.__path__)]
    return tuple(program for file in files for program in programs(importlib.import_module(file)))


def programs(module: ModuleType) -> tuple[Program, ...]:
    """The programs of a file, in its order."""
    functions = inspect.getmembers(module, inspect.isfunction)
    return tuple(
        Program(name, function, tuple(_expectations(function)))
        for name, function in sorted(functions, key=lambda item: item[1].__code__.co_firstlineno)
        if not name.startswith("_") and function.__module__ == module.__name__
    )


def _expectations(function: Callable[..., Any]) -> Iterator[Expectation]:
    """Of the comments of a function, with names of lines replaced by what locations say."""
    found = [*_comments(function)]
    file = function.__code__.co_filename
    lines = {each.text: each.line for each in found if each.kind == "line"}
    for each in found:
        words = re.split(r"@(\w+)", each.text)  # every second one is a name
        words[1::2] = [f"{file}:{(lines | {'here': each.line})[name]}" for name in words[1::2]]
        yield Expectation(each.kind, each.argument, "".join(words), each.line)


def _comments(function: Callable[..., Any]) -> Iterator[Expectation]:
    source, first = inspect.getsourcelines(function)
    waiting: list[str] = []
    for number, line in enumerate(source, first):
        text = line.strip()
        if text.startswith("#     "):
            waiting[-1] += " " + text[1:].strip()
        elif text.startswith("#"):
            waiting.append(text[1:].strip())
        elif text:
            for comment in waiting:
                head, _, said = comment.partition(": ")
                kind, _, argument = head.partition(" ")
                if kind not in KINDS or not said:
                    raise ValueError(f"{function.__code__.co_filename}:{number}: unknown comment {comment!r}")
                yield Expectation(kind, argument, said, number)
            waiting = []
    if waiting:
        raise ValueError(f"{function.__qualname__}: nothing follows the comment {waiting[-1]!r}")
