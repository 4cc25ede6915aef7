"""Arguments are read, and values put into texts of errors, by one module each; both take anything."""

from __future__ import annotations

import ast
import contextlib
import functools
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import popsr
from popsr import errors
from popsr._program.building import operands
from popsr._support.host import arguments
from popsr._support.text.one_line import MAX_TEXT, one_line
from popsr._support.text.shown import shown
from popsr.errors import ArgumentTypeError, AttributeValueError, DTypeError, OutOfRangeError, ShapeError
from tests_py.support.hostile.values import HOSTILE, Liar, Raises

PACKAGE = Path(popsr.__file__).parent
Type, Value = ArgumentTypeError, AttributeValueError

# One home


@functools.cache
def sources() -> dict[str, ast.Module]:
    return {
        str(file.relative_to(PACKAGE)): ast.parse(file.read_text()) for file in sorted(PACKAGE.rglob("*.py"))
    }


def test_errors_show_values_by_one_function() -> None:
    """``{value!r}`` in the text of an error runs the user's ``__repr__``, of any length."""
    shows = [
        f"{file}:{node.lineno}"
        for file, tree in sources().items()
        for each in ast.walk(tree)
        if isinstance(each, ast.Raise)
        for node in ast.walk(each)
        if isinstance(node, ast.FormattedValue) and node.conversion == ord("r")
    ]
    assert not shows, f"values are shown by !r in errors, got {shows}, expected shown(value)"


def test_integers_are_read_in_one_place() -> None:
    asking = {
        file
        for file, tree in sources().items()
        for node in ast.walk(tree)
        if (isinstance(node, ast.Attribute) and node.attr in ("index", "__index__"))
        and isinstance(node.value, ast.Name)
        and (node.value.id == "operator" or node.attr == "__index__")
    }
    assert asking == {"_support/host/arguments.py"}


def test_readers_have_one_definition() -> None:
    homes: dict[str, set[str]] = {}
    for file, tree in sources().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and node.name in (*arguments.__all__, *operands.__all__):
                homes.setdefault(node.name, set()).add(file)
    allowed = ({"_support/host/arguments.py"}, {"_program/building/operands.py"})
    assert {name: files for name, files in homes.items() if files not in allowed} == {}


# Texts


@pytest.mark.parametrize("name", HOSTILE)
def test_any_value_is_shown_on_a_short_line(name: str) -> None:
    text = shown(HOSTILE[name]())
    assert text.isprintable()
    assert 0 < len(text) <= 200


SHOWN: list[tuple[Any, str]] = [
    (3, "3"),
    (True, "True"),
    (2.5, "2.5"),
    ("a\nb", r"'a\nb'"),
    ("\ud800", r"'\ud800'"),
    (b"ab", "b'ab'"),
    (None, "None"),
    ([1, "x"], "[1, 'x']"),
    ((1,), "(1,)"),
    (list(range(20)), "[0, 1, 2, 3, 4, 5, 6, 7, … 20 in all]"),
    ([[[[1]]]], "[[[[…]]]]"),
    ({"a": [1]}, "{'a': [1]}"),
    (set(), "set()"),
    (2**9000, "<int of 9001 bits>"),
    (np.float32(1.5), "np.float32(1.5)"),
    (np.arange(3), "array([0, 1, 2])"),
    (np.ones((2, 3), np.float32), "float32[2, 3] array"),
    (range(10**12), "range(0, 1000000000000)"),
    (int, "<class 'int'>"),
    (Raises(), "<Raises object>"),
    ([Raises()], "[<Raises object>]"),
    (object(), "<object object>"),
    ("x" * 300, f"'{'x' * 160}…' of length 300"),
]


@pytest.mark.parametrize("at", range(len(SHOWN)))
def test_values_are_shown_as_they_are(at: int) -> None:
    value, text = SHOWN[at]
    assert shown(value) == text


def test_addresses_are_not_shown() -> None:
    assert shown(test_addresses_are_not_shown) == "<function test_addresses_are_not_shown>"


@pytest.mark.parametrize("name", errors.__all__)
def test_texts_of_errors_are_bounded(name: str) -> None:
    error = getattr(errors, name)("first\n" + "x" * 10_000 + "\tlast")
    assert len(str(error)) == MAX_TEXT
    assert str(error).isprintable()
    assert str(error).startswith(r"first\nxxx")
    assert " … xxx" in str(error)
    assert str(error).endswith(r"xxx\tlast")
    error.add_note("note\n" * 1000)
    assert len(error.__notes__[0]) <= MAX_TEXT
    assert "\n" not in error.__notes__[0]


def test_short_texts_stay() -> None:
    assert one_line("op: got 'ä', expected 1 … 2") == "op: got 'ä', expected 1 … 2"
    assert len(one_line("\n" * 400)) == MAX_TEXT


# Readers

REFUSED: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "int of float": (
        lambda: arguments.read_int("f: n", 1.0),
        Type,
        "f: n is not an int, got 1.0, expected an int",
    ),
    "int of bool": (
        lambda: arguments.read_int("f: n", True),
        Type,
        "f: n is not an int, got True, expected an int",
    ),
    "int of text": (
        lambda: arguments.read_int("f: n", "1"),
        Type,
        "f: n is not an int, got '1', expected an int",
    ),
    "int of array": (
        lambda: arguments.read_int("f: n", np.array([1, 2])),
        Type,
        "f: n is not an int, got array([1, 2]), expected an int",
    ),
    "int that raises": (
        lambda: arguments.read_int("f: n", Raises()),
        Type,
        "f: n is not an int, got <Raises object>, expected an int",
    ),
    "int that lies": (
        lambda: arguments.read_int("f: n", Liar()),
        Type,
        "f: n is not an int, got <Liar object>, expected an int",
    ),
    "low": (lambda: arguments.read_int("f: n", 0, 1), Value, "f: n: got 0, expected an int from 1"),
    "high": (lambda: arguments.read_int("f: n", 5, 1, 4), Value, "f: n: got 5, expected an int from 1 to 4"),
    "64 bits": (
        lambda: arguments.read_int("f: n", 2**63),
        Value,
        "f: n: got 9223372036854775808, expected an int from -9223372036854775808 to 9223372036854775807",
    ),
    "index": (
        lambda: arguments.read_index("f: index", 3, 3),
        OutOfRangeError,
        "f: index out of range, got 3, expected 0 <= index < 3",
    ),
    "number of text": (
        lambda: arguments.read_number("f: p", "1"),
        Type,
        "f: p is not a number, got str '1', expected a float",
    ),
    "number too large": (
        lambda: arguments.read_number("f: p", 2**9000),
        Type,
        "f: p is not a number, got <int of 9001 bits>, expected a float",
    ),
    "bool of int": (
        lambda: arguments.read_bool("f: b", 1),
        Type,
        "f: b is not a bool, got 1, expected True or False",
    ),
    "flag of array": (
        lambda: arguments.read_flag("f: b", np.ones(2)),
        Type,
        "f: b is not a bool, got array([1., 1.]), expected True or False",
    ),
    "name": (lambda: arguments.read_name("f", 3), Type, "f: name is not a str, got 3, expected a str"),
    "surrogate": (
        lambda: arguments.read_name("f", "a\ud800"),
        Value,
        r"f: name is not a text, got 'a\ud800', expected Unicode",
    ),
    "choice": (
        lambda: arguments.read_choice("f", "mode", "c", ("a", "b")),
        Value,
        "f: unknown mode, got 'c', expected one of 'a', 'b'",
    ),
    "choice of array": (
        lambda: arguments.read_choice("f", "mode", np.array(["a", "b"]), ("a", "b")),
        Value,
        "f: unknown mode, got <U1[2] array, expected one of 'a', 'b'",
    ),
    "choice of bools": (
        lambda: arguments.read_choice("f", "mode", 1, (True, False)),
        Value,
        "f: unknown mode, got 1, expected one of True, False",
    ),
    "path": (
        lambda: arguments.read_path("f", 3),
        Type,
        "f: not the path of a file, got 3, expected a str or os.PathLike",
    ),
    "items of text": (
        lambda: arguments.read_items("f", "ts", "abc", kind="tensors"),
        Type,
        "f: ts is not a sequence of tensors, got 'abc'",
    ),
    "long items": (
        lambda: arguments.read_items("f", "ts", range(10**12)),
        Value,
        "f: ts has too many items, got 1000000000000, expected at most 4194304",
    ),
    "endless items": (
        lambda: arguments.read_items("f", "ts", itertools.count(), most=10),
        Value,
        "f: ts has too many items, got no end of them, expected at most 10",
    ),
    "items that raise": (
        lambda: arguments.read_items("f", "ts", Raises()),
        Type,
        r"f: ts is not a sequence of values, got <Raises object> that raises ZeroDivisionError: asked\nin vain",
    ),
    "ints": (
        lambda: arguments.read_int64s("f", "axes", [0, "1"]),
        Type,
        "f: axes is not an int, got '1', expected an int",
    ),
    "shape of int": (lambda: arguments.read_shape("f", 3), Type, "f: shape is not a sequence of ints, got 3"),
    "shape of floats": (
        lambda: arguments.read_shape("f", (1.0,)),
        Type,
        "f: shape is not a sequence of ints, got (1.0,)",
    ),
    "long shape": (
        lambda: arguments.read_shape("f", range(10**12)),
        ShapeError,
        "f: shape has too many dimensions, got 1000000000000, expected at most 64",
    ),
    "negative extent": (
        lambda: arguments.read_shape("f", (2, -1)),
        ShapeError,
        "f: negative extent, got (2, -1), expected 0 or more",
    ),
    "huge extent": (
        lambda: arguments.read_shape("f", (2**63,)),
        ShapeError,
        "f: extent is too large, got (9223372036854775808,), expected at most 9223372036854775807",
    ),
    "mapping": (lambda: arguments.read_mapping("f", "args", [1]), Type, "f: args is not a mapping, got [1]"),
    "complex": (
        lambda: arguments.read_dtype("f", popsr.complex64),
        DTypeError,
        f"f: tensors are not complex, got complex64, expected one of {', '.join(popsr.dtypes.dtype._all)}",
    ),
    "class": (
        lambda: arguments.read_a("f: graph", 3, popsr.Graph),
        Type,
        "f: graph is not a Graph, got int 3, expected a Graph",
    ),
    "classes": (
        lambda: arguments.read_a("f: x", None, (int, str)),
        Type,
        "f: x is not a int or str, got None, expected a int or str",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    read, error, text = REFUSED[name]
    with pytest.raises(error) as caught:
        read()
    assert type(caught.value) is error
    assert str(caught.value) == text


@pytest.mark.parametrize("name", HOSTILE)
def test_readers_take_anything(name: str) -> None:
    """They return plain values or raise errors of popsr."""
    readers: list[tuple[Callable[[Any], Any], type | tuple[type, ...]]] = [
        (lambda v: arguments.read_int("f: n", v), int),
        (lambda v: arguments.read_number("f: n", v), float),
        (lambda v: arguments.read_flag("f: n", v), bool),
        (lambda v: arguments.read_text("f: n", v), str),
        (lambda v: arguments.read_shape("f", v), tuple),
        (lambda v: arguments.read_int64s("f", "n", v), tuple),
        (lambda v: arguments.read_items("f", "n", v), tuple),
        (lambda v: arguments.read_path("f", v), Path),
        (lambda v: arguments.read_dtype("f", v), popsr.dtype),
        (lambda v: arguments.read_choice("f", "n", v, ("sum", 1, None)), (str, int, type(None))),
    ]
    for read, result in readers:
        with contextlib.suppress(errors.Error):
            assert isinstance(read(HOSTILE[name]()), result)


def test_integers_of_other_packages_are_read() -> None:
    assert [arguments.read_int("f: n", each) for each in (3, np.int8(3), np.uint64(3), np.array(3))] == [
        3
    ] * 4
    assert type(arguments.read_int("f: n", np.int8(3))) is int
    assert arguments.read_shape("f", np.array([2, 3])) == (2, 3)
    assert arguments.read_shape("f", (each for each in (2, 3))) == (2, 3)
    assert arguments.read_number("f: n", np.float32(0.5)) == 0.5
    assert arguments.read_choice("f", "n", np.int64(1), (0, 1)) == 1


def test_data_larger_than_the_memory_is_refused_before_it_is_made() -> None:
    with (
        popsr.Ir().main_graph,
        pytest.raises(errors.OutOfMemoryError, match="data does not fit into memory, got"),
    ):
        popsr.variable(np.broadcast_to(np.float32(1), (2**44,)))
    with pytest.raises(
        MemoryError, match=r"data does not fit into memory, got 8e\+12 bytes, expected at most"
    ):
        popsr.utils.to_numpy(range(10**12))
