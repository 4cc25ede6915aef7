"""Options of loading: names by function, tensors by pattern, casts, shards along an axis."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from popsr._session.protocol import Cast, Only, Rename, Reshard
from popsr._support.host.arguments import (
    is_a,
    read_call,
    read_choice,
    read_dtype,
    read_flag,
    read_int,
    read_items,
)
from popsr._support.host.files import shown_name
from popsr._support.text.shown import shown
from popsr.dtypes import dtype
from popsr.errors import ArgumentTypeError, AttributeValueError, UnknownNameError

__all__ = ["LoadOptions", "file_names", "loaded_names", "read_only"]

_GROUPS = ("replicas", "order")


@dataclass(frozen=True)
class LoadOptions:
    """Options of one call, checked.

    Attributes:
        chosen: true for names of variables to load; None for all.
        rename: the file's names, as a call got them.
        casts: dtypes of the file that may be cast; None for all of them, empty for none.
        axis: the axis that a variable is resharded along, or None.
        by_order: rows belong to groups in their order, whatever replicas these have.
    """

    chosen: Callable[[str], bool] | None
    rename: Rename
    casts: Collection[str] | None
    axis: Callable[[str], int | None]
    by_order: bool

    @staticmethod
    def read(
        where: str, only: Only, rename: Rename, cast: Cast, reshard: Reshard, regroup: str
    ) -> LoadOptions:
        """Options of arguments.

        Raises:
            ArgumentTypeError: one is an object of the wrong type.
            AttributeValueError: ``regroup`` is not one of the words.
            DTypeError: ``cast`` names what is not a dtype.
        """
        if rename is not None and not is_a(rename, Mapping):
            read_call(f"{where}: rename", rename)
        return LoadOptions(
            read_only(where, only),
            rename,
            _read_cast(where, cast),
            _read_reshard(where, reshard),
            read_choice(where, "regroup", regroup, _GROUPS) == "order",
        )

    def may_cast(self, name: str) -> bool:
        """True if tensors of that dtype may be cast."""
        return self.casts is None or name in self.casts


def read_only(where: str, only: Only) -> Callable[[str], bool] | None:
    """A predicate of names; None for all.

    Raises:
        ArgumentTypeError: it is neither a pattern, nor several, nor a function.
    """
    if only is None:
        return None
    if callable(only):
        predicate = only
        return lambda name: bool(predicate(name))
    items: Iterable[Any] = (
        (only,) if isinstance(only, str) else read_items(where, "only", only, kind="patterns")
    )
    patterns = tuple(items)
    for each in patterns:
        if not isinstance(each, str):
            raise ArgumentTypeError(f"{where}: only has no pattern, got {shown(each)}, expected a str")
    return lambda name: any(fnmatch.fnmatchcase(name, each) for each in patterns)


def _read_cast(where: str, cast: Cast) -> frozenset[str] | None:
    if cast is True or cast is False:
        return None if cast else frozenset()
    if is_a(cast, (dtype, str)):
        return frozenset([read_dtype(f"{where}: cast", cast).name])
    if not is_a(cast, Sequence):
        read_flag(f"{where}: cast", cast)
        raise ArgumentTypeError(f"{where}: cast is not a bool, got {shown(cast)}, expected it or dtypes")
    return frozenset(read_dtype(f"{where}: cast", each).name for each in read_items(where, "cast", cast))


def _read_reshard(where: str, reshard: Reshard) -> Callable[[str], int | None]:
    if reshard is None:
        return lambda _: None
    if not isinstance(reshard, Mapping):
        function = read_call(f"{where}: reshard", reshard)

        def ask(name: str) -> int | None:
            axis = function(name)
            return None if axis is None else read_int(f"{where}: reshard", axis)

        return ask
    axes: dict[str, int] = {}
    for pattern, axis in reshard.items():
        if not is_a(pattern, str):
            raise ArgumentTypeError(f"{where}: reshard has no pattern, got {shown(pattern)}, expected a str")
        axes[pattern] = read_int(f"{where}: reshard", axis)
    return lambda name: next((axis for each, axis in axes.items() if fnmatch.fnmatchcase(name, each)), None)


def file_names(where: str, rename: Rename, names: Iterable[str]) -> dict[str, str]:
    """The file's name by the name that a program has for it.

    Raises:
        ArgumentTypeError: the function returns something else than a name or None.
        AttributeValueError: two tensors get one name.
        UnknownNameError: a mapping has a name that the file lacks.
    """
    found: dict[str, str] = {}
    known = dict.fromkeys(names)
    if isinstance(rename, Mapping):
        lacking = next((each for each in rename if each not in known), None)
        if lacking is not None:
            raise UnknownNameError(
                f"{where}: rename has a name that is missing in the file, got {shown(lacking)}"
            )
    for name in known:
        new = name
        if rename is not None:
            new = rename.get(name, name) if isinstance(rename, Mapping) else rename(name)  # type: ignore[assignment]
        if is_a(new, type(None)):
            continue
        if not is_a(new, str):
            raise ArgumentTypeError(
                f"{where}: rename gives no name, got {shown(new)}, expected a str or None"
            )
        if new in found:
            raise AttributeValueError(
                f"{where}: rename gives one name to two tensors, got {shown_name(new)} for {shown_name(found[new])} "
                f"and {shown_name(name)}, expected names that differ"
            )
        found[new] = name
    return found


def loaded_names(where: str, only: Only, rename: Rename, names: Iterable[str]) -> dict[str, str]:
    """The file's name by the new one of tensors that a loader without a program takes.

    Raises:
        ArgumentTypeError: an option is an object of the wrong type.
        UnknownNameError: ``only`` matches nothing.
    """
    if rename is not None and not is_a(rename, Mapping):
        read_call(f"{where}: rename", rename)
    chosen = read_only(where, only)
    renamed = file_names(where, rename, names)
    found = {new: name for new, name in renamed.items() if chosen is None or chosen(new)}
    if renamed and not found:
        raise UnknownNameError(
            f"{where}: only matches no tensor, got none of {len(renamed)}, expected one such as "
            f"{shown_name(next(iter(renamed)))}"
        )
    return found
