"""Base of PopART's objects: camelCase names, and errors about names that they do not have."""

from __future__ import annotations

import builtins
import re
from collections.abc import Callable
from typing import Any, ClassVar

from popsr._support.text.entry_points import public
from popsr._support.text.nearest import nearest
from popsr._support.text.shown import shown
from popsr.errors import AttributeAccessError

__all__ = ["CallableText", "PopartObject", "camel_case", "register_view", "view_class", "view_of"]

_views: dict[type, Callable[[Any], Any]] = {}


def register_view(cls: type, view: Callable[[Any], Any]) -> None:
    """Let ``view_of`` an object of a class of popsr be made by a function or a class of PopART's objects."""
    _views[cls] = view


def view_of(value: Any) -> Any:
    """The object of PopART that stands for a graph, tensor, op or program."""
    return next(_views[cls] for cls in type(value).__mro__ if cls in _views)(value)


def view_class(cls: type) -> Any:
    """The class of PopART's objects that stand for objects of a class of popsr."""
    return _views[cls]


def camel_case(name: str) -> str:
    """``get_op_schedule`` as ``getOpSchedule``."""
    return re.sub("_([a-z])", lambda match: match[1].upper(), name)


class CallableText(str):
    """A text that programs may also call: some of PopART's names are methods in one version and fields in another."""

    __slots__ = ()

    def __call__(self) -> str:
        """The text."""
        return str(self)


@public
class PopartObject:
    """Base of objects that programs reach by private names of PopXL; their methods have PopART's names too."""

    __slots__ = ()

    fixed_names: ClassVar[bool] = True
    """``__getattr__`` knows no further names: ``popsr check`` lists others as missing."""
    _where: ClassVar[builtins.str] = "object"

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Give public members their spelling in camelCase."""
        super().__init_subclass__(**kwargs)
        for name, member in list(vars(cls).items()):
            if not name.startswith("_") and camel_case(name) != name:
                setattr(cls, camel_case(name), member)

    def str(self) -> builtins.str:
        """The object as text."""
        return builtins.str(self)

    def __getattr__(self, name: builtins.str) -> Any:
        """Refuse an unknown name.

        Raises:
            AttributeAccessError: always; the message has the nearest name.
        """
        raise self._unknown(name)

    def _unknown(self, name: builtins.str) -> AttributeAccessError:
        known = [each for each in dir(type(self)) if not each.startswith("_") and camel_case(each) == each]
        expected = nearest(name, known) or f"one of {', '.join(known)}"
        return AttributeAccessError(f"{self._where}: unknown name, got {shown(name)}, expected {expected}")
