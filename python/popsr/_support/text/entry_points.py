"""Entry points: what users call, where errors lose the frames of popsr, so that tracebacks end at the user's line.

``@public`` stands above each function and class that users call, outermost; ``@public_call`` above the functions that
build a program, whose errors also say which call failed. Nothing else makes entry points: what you read is what runs.

An exception that CPython raises again by a bare ``raise`` gets no entry for that frame. So a function around each entry
point takes the frames of popsr out of the traceback of a typed error and lets it go on, and the next entry is the
caller's line. Frames of the user's own functions that popsr called stay. All frames are there with
``POPSR_FULL_TRACEBACK=1`` in the environment, and for all other exceptions: these are Ctrl-C, the user's own, and
defects of popsr.
"""

from __future__ import annotations

import contextlib
import inspect
import os
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any, TypeVar

from popsr._support.text.frames import frame_text, user_frame
from popsr._support.text.nearest import nearest
from popsr._support.text.raised import user_entries
from popsr.errors import ArgumentTypeError, Error, InternalError

__all__ = ["describe_calls_by", "entry_point", "leave", "mark", "public", "public_call"]

_F = TypeVar("_F", bound=Callable[..., Any])
_Note = Callable[[Callable[..., Any], Error], None]

_HELP = "help: "
_wrapped: dict[Callable[..., Any], Callable[..., Any]] = {}  # entry points by what they call
_entry_points: set[Callable[..., Any]] = set()

# Methods that raise nothing, are called too often, or are not called by name.
_NEVER = {
    *("__new__", "__init_subclass__", "__class_getitem__", "__set_name__", "__del__", "__bool__", "__hash__"),
    *("__repr__", "__str__", "__getattribute__", "__getnewargs__", "__getstate__", "__setstate__"),
    *("__reduce__", "__reduce_ex__"),
}


def public(target: _F) -> _F:
    """Decorate what users call, as the outermost decorator: typed errors leave it without frames of popsr.

    Their last line leads to their page of help; a keyword that is not a parameter is answered with the nearest one. A
    function becomes an ``entry_point``. A class stays the same object: its own public methods, special methods, class
    methods, static methods and properties become entry points, those of its bases do not.
    """
    if not isinstance(target, type):
        return entry_point(target)
    for name, member in list(vars(target).items()):
        is_special = name.startswith("__") and name not in _NEVER
        if is_special or not name.startswith("_"):
            found = _member(member)
            if found is not member:
                setattr(target, name, found)
    return target


def public_call(fn: _F) -> _F:
    """Decorate a public function that builds a program: its errors also say which call failed, and at which line.

    ``in softmax() at model.py:7``: the function that the user's line calls, where others call each other below it. An
    error that has a note about its place already keeps that one.
    """
    return entry_point(fn, _add_place)


def describe_calls_by(place: Callable[[], str]) -> None:
    """Let a function name the line of the user's program in the errors of ``public_call``."""
    global _place
    _place = place


def entry_point(fn: _F, note: _Note | None = None) -> _F:
    """A function around one that users call: typed errors leave it without frames of popsr, and with a line on help.

    A keyword that the function does not take is answered with the nearest parameter.

    Args:
        fn: the function.
        note: adds notes to an error of the call. Default: none.
    """
    if fn in _entry_points:
        return fn
    if fn not in _wrapped:
        _wrapped[fn] = _managed(fn) if _makes_context_manager(fn) else _around(fn, note)
        _entry_points.add(_wrapped[fn])
    return _wrapped[fn]  # type: ignore[return-value]


def mark(fn: _F) -> _F:
    """Decorate a function that calls ``leave`` itself, which takes less time than a function around it."""
    _entry_points.add(fn)
    return fn


def _user_line() -> str:
    return frame_text(user_frame(0))


_place = _user_line


def _add_place(fn: Callable[..., Any], error: Error) -> None:
    at = f"() at {_place()}"
    places = [note for note in getattr(error, "__notes__", ()) if not note.startswith(_HELP)]
    inner = next((note for note in places if note.startswith("in ") and note.endswith(at)), None)
    if inner is not None:
        error.__notes__.remove(inner)  # the function below, which this one called for the same line
    if inner is not None or not places:
        error.add_note(f"in {fn.__name__}{at}")


def _around(fn: Callable[..., Any], note: _Note | None = None) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return fn(*args, **kwargs) if kwargs else fn(*args)
        except Exception as error:
            other = _unknown_keyword(fn, kwargs) if kwargs and type(error) is TypeError else None
            if other is None:
                if note is not None and isinstance(error, Error):
                    note(fn, error)
                leave(error)
                raise
            try:
                raise other from None
            except Error:
                leave(other)
                raise

    _named(call, fn)
    return call


def _unknown_keyword(fn: Callable[..., Any], kwargs: dict[str, Any]) -> Error | None:
    """The error of popsr for Python's about a keyword that is not a parameter."""
    parameters = inspect.signature(fn).parameters
    if any(each.kind is each.VAR_KEYWORD for each in parameters.values()):
        return None
    known = [name for name in parameters if name != "self"]
    unknown = [name for name in kwargs if name not in parameters]
    if not unknown:
        return None
    expected = nearest(unknown[0], known) or (f"one of {', '.join(known)}" if known else "none")
    text = f"{fn.__qualname__}() got an unexpected keyword argument {unknown[0]!r}"  # of a function that it calls too
    return ArgumentTypeError(f"{text}, expected {expected}")


def _named(call: Any, fn: Any) -> None:
    """``functools.wraps`` in half the time, which importing popsr spends hundreds of times."""
    call.__module__, call.__name__, call.__qualname__ = fn.__module__, fn.__name__, fn.__qualname__
    call.__doc__, call.__annotations__ = fn.__doc__, fn.__annotations__
    if fn.__dict__:
        call.__dict__.update(fn.__dict__)
    call.__wrapped__ = fn


class _Manager(contextlib._GeneratorContextManager[Any]):
    """A context manager made of a generator; entering and leaving it are entry points."""

    __enter__ = _around(contextlib._GeneratorContextManager.__enter__)
    __exit__ = _around(contextlib._GeneratorContextManager.__exit__)


def _makes_context_manager(fn: Callable[..., Any]) -> bool:
    inner = getattr(fn, "__wrapped__", None)
    return inspect.isgeneratorfunction(inner) and fn.__code__.co_filename == contextlib.__file__


def _managed(fn: Callable[..., Any]) -> Callable[..., Any]:
    def make(*args: Any, **kwargs: Any) -> Any:
        manager = fn(*args, **kwargs)
        manager.__class__ = _Manager
        return manager

    _named(make, fn)
    return _around(make)


# Classes


def _member(member: Any) -> Any:
    """The entry point of a method or property; other attributes as they are."""
    if isinstance(member, FunctionType):
        return member if inspect.isgeneratorfunction(member) else entry_point(member)
    if isinstance(member, (classmethod, staticmethod)):
        return (
            type(member)(entry_point(member.__func__))
            if isinstance(member.__func__, FunctionType)
            else member
        )
    if type(member) is property:
        accessors = (member.fget, member.fset, member.fdel)
        found = tuple(_accessor(fn) for fn in accessors)
        return member if found == accessors else property(found[0], found[1], found[2], member.__doc__)
    return member


def _accessor(fn: Any) -> Any:
    return entry_point(fn) if isinstance(fn, FunctionType) and not _only_reads(fn) else fn


def _only_reads(fn: Callable[..., Any]) -> bool:
    """True for ``return self._name``, which raises nothing: more needs more than one place on the stack."""
    code = fn.__code__
    return code.co_stacksize == 1 and all(name.startswith("_") for name in code.co_names)


# Tracebacks


def leave(error: BaseException) -> None:
    """Let an error leave popsr: without frames of popsr, and with a note where there is help.

    It stays as it is with ``POPSR_FULL_TRACEBACK=1``, and if it is not a typed error.
    """
    if isinstance(error, InternalError) or os.environ.get("POPSR_FULL_TRACEBACK", "0") not in ("", "0"):
        return
    if isinstance(error, Error):
        note, notes = f"{_HELP}{error.help}", getattr(error, "__notes__", [])
        if note in notes:  # of an entry point inside; it stays the last one
            notes.remove(note)
        error.add_note(note)
    elif not _is_typed(error):
        return
    for each in _chain(error):
        each.__traceback__ = user_entries(each.__traceback__)


def _is_typed(error: BaseException) -> bool:
    """True for Python's errors that are about the call: arguments that the function does not take, and no memory."""
    traceback = error.__traceback__
    if type(error) is TypeError:
        return traceback is not None and traceback.tb_next is None
    return type(error) is MemoryError and bool(error.args)


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error, and what it was raised from."""
    seen: set[int] = set()
    found: BaseException | None = error
    while found is not None and id(found) not in seen:
        seen.add(id(found))
        yield found
        found = found.__cause__ or (None if found.__suppress_context__ else found.__context__)
