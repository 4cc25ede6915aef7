"""Trees with dotted keys: ``tree["layer.weight"]`` is ``tree.layer.weight``."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import deepcopy
from typing import Any, ClassVar, Generic, TypeVar

from popsr._program.building.transaction import transactional
from popsr._program.handles import Handle
from popsr._support.host.arguments import (
    integer_of,
    read_a,
    read_call,
    read_flag,
    read_int,
    read_items,
    read_text,
)
from popsr._support.text.entry_points import public
from popsr._support.text.shown import shown
from popsr._support.text.summary import line_of_items
from popsr.addons.utils import OrderedDict, duplicate_items
from popsr.errors import ArgumentTypeError, AttributeAccessError, AttributeValueError, UnknownNameError

__all__ = ["DotTree", "read_key", "sanitise", "to_mapping"]

L = TypeVar("L")
V = TypeVar("V")
Tree = TypeVar("Tree", bound="DotTree[Any]")
_MAX_DEPTH = 64  # levels of a tree


@public
def sanitise(name: str) -> str:
    """The name as one element of a key: other characters than letters, digits and ``_`` become ``_``.

    Args:
        name: the name; a leading digit gets a ``_`` before it.
    """
    read_text("sanitise: name", name)
    name = re.sub(r"\W", "_", name)
    return f"_{name}" if name[:1].isdigit() else name


@public
def to_mapping(key: DotTree[L], value: DotTree[V]) -> dict[L, V]:
    """Leaves of one tree to leaves of another, for the keys that both have.

    Args:
        key: a tree with hashable leaves.
        value: a tree of any class.
    """
    read_a("to_mapping: key", key, DotTree)
    read_a("to_mapping: value", value, DotTree)
    leaves, others = key.to_dict(), value.to_dict()
    return {leaf: others[name] for name, leaf in leaves.items() if name in others}


@public
def read_key(where: str, key: Any) -> str:
    """A dotted key.

    Args:
        where: the call, for messages.
        key: the argument.
    Raises:
        ArgumentTypeError: it is not a str or int.
        AttributeValueError: it is not a key: identifiers or numbers, with dots between.
    """
    if integer_of(key) is not None:
        return str(read_int(f"{where}: key", key, 0))
    if not isinstance(key, str):
        raise ArgumentTypeError(f"{where}: key is not a str or int, got {shown(key)}")
    path = str(key).split(".", _MAX_DEPTH)
    for element in path:
        if not (element.isidentifier() or (element.isascii() and element.isdigit() and len(element) < 19)):
            raise AttributeValueError(
                f"{where}: {shown(key)} is not a key, got {shown(element)}, expected identifiers or numbers with "
                "dots between"
            )
    return ".".join(path)


@public
class DotTree(Generic[L]):
    """Ordered tree of leaves and of trees of the same class; named trees of PopXL are branches of one another.

    The elements of a key are identifiers or numbers; a number may be given as int. In reads a negative int counts back
    from the largest number: of 0, 1 and 3, ``[-1]`` is 3. Every tree is true, and trees are not iterable.
    """

    _map: dict[str, L | DotTree[L]]

    _is_named: ClassVar[bool] = False
    """Trees of classes that are may be branches of one another."""

    def __init__(self: Tree, **kwargs: L | Tree) -> None:
        """A tree of the keywords.

        Raises:
            ValueError: a key that is not an identifier or number.
        """
        self._map = {}
        for key, value in kwargs.items():
            self.insert(key, value)

    # Reading

    def __getattr__(self, key: str) -> Any:
        found = self.__dict__.get("_map", {})
        if key not in found:
            kind = type(self).__name__
            raise AttributeAccessError(
                f"{kind}: no such key, got {shown(key)}, expected one of {shown(list(found))}"
            )
        return found[key]

    def __setattr__(self, key: str, value: Any) -> None:
        """Keys are not set as attributes: the tree would keep what it has.

        Raises:
            AttributeError: ``key`` is one of this level.
        """
        if key in self.__dict__.get("_map", {}):
            raise AttributeAccessError(
                f"{type(self).__name__}: a key is not set as attribute, got {shown(key)}, expected "
                f"insert({shown(key)}, ..., overwrite=True)"
            )
        super().__setattr__(key, value)

    def __getitem__(self: Tree, key: str | int) -> Any:
        at: Any = self
        for element in self._path(key, "get"):
            if not isinstance(at, DotTree) or element not in at._map:
                raise self._unknown(key)
            at = at._map[element]
        return at

    def get(self: Tree, key: str | int) -> Any:
        """The leaf or subtree of a dotted key.

        Args:
            key: the key.
        Raises:
            KeyError: there is none.
        """
        return self[key]

    def __contains__(self, key: str | int) -> bool:
        try:
            self[key]
        except UnknownNameError:
            return False
        return True

    def keys(self) -> list[str]:
        """Keys of this level."""
        return list(self._map)

    def values(self) -> list[L | DotTree[L]]:
        """Leaves and subtrees of this level."""
        return list(self._map.values())

    def len(self) -> int:
        """Number of entries of this level."""
        return len(self._map)

    def keys_flat(self) -> list[str]:
        """Dotted keys of all leaves."""
        return [key for key, _ in self._leaves()]

    def values_flat(self) -> list[L]:
        """All leaves."""
        return [leaf for _, leaf in self._leaves()]

    def len_flat(self) -> int:
        """Number of leaves."""
        return sum(1 for _ in self._leaves())

    def to_dict(self) -> OrderedDict[str, L]:
        """Leaves by dotted key."""
        return OrderedDict(self._leaves())

    def to_mapping(self, values: DotTree[V]) -> dict[L, V]:
        """Leaves to the leaves of the same keys in another tree; other keys are left out.

        Args:
            values: the other tree.
        """
        return to_mapping(self, values)

    def unpack(self) -> tuple[tuple[str, ...], tuple[L, ...]]:
        """Dotted keys and leaves, both sorted by key as text, so that "10" comes before "9"."""
        leaves = sorted(self._leaves(), key=lambda leaf: leaf[0])
        return tuple(key for key, _ in leaves), tuple(leaf for _, leaf in leaves)

    def __repr__(self) -> str:
        leaves = (f"{key}: {leaf!r}" for key, leaf in self._leaves())
        return line_of_items(f"{type(self).__name__}({{", leaves, self.len_flat(), "})")

    def __str__(self) -> str:
        return f"{type(self).__name__}({self.to_dict()!r})"

    # Changing

    def insert(self: Tree, key: str | int, value: L | Tree, overwrite: bool = False) -> None:
        """Add a leaf or subtree.

        Args:
            key: where; subtrees on the way are made.
            value: the leaf, or a tree of this class; NamedTensors, NamedVariableFactories and NamedReplicaGrouping take
                each other.
            overwrite: replace what has the key; subtrees on the way keep their other entries.
        Raises:
            ValueError: the first element of the key is there and ``overwrite`` is False, or the key is not a key.
            TypeError: ``value`` is a tree of another class.
        """
        overwrite = read_flag("insert: overwrite", overwrite)
        self._insert(self._path(key, "insert"), value, overwrite)

    def _insert(self: Tree, path: list[str], value: Any, overwrite: bool) -> None:
        first, *rest = path
        self._check_class("insert", ".".join(path), value)
        there = self._map.get(first)
        if first in self._map and not overwrite:
            raise AttributeValueError(
                f"insert: {shown(first)} already exists, got {shown('.'.join(path))}, expected a new key or "
                "overwrite=True"
            )
        if rest:
            subtree = there.copy() if isinstance(there, DotTree) else self._empty()
            subtree._insert(rest, value, overwrite)
            value = subtree
        self._map[first] = value

    def update(self: Tree, values: Tree, overwrite: bool = False) -> None:
        """Insert each entry of this level of another tree, with copies of its subtrees.

        Args:
            values: the other tree.
            overwrite: replace entries; subtrees are replaced as a whole, not merged.
        Raises:
            ValueError: an entry exists and ``overwrite`` is False.
            TypeError: ``values`` is not a tree, or has a subtree of another class. Nothing is changed then.
        """
        overwrite = read_flag("update: overwrite", overwrite)
        if not isinstance(values, DotTree):
            raise ArgumentTypeError(f"update: not a DotTree, got {shown(values)}")
        taken = [key for key in values._map if key in self._map]
        if taken and not overwrite:
            raise AttributeValueError(
                f"update: {shown(taken[0])} already exists, got {shown(values.keys())}, expected new keys or "
                "overwrite=True"
            )
        for key, value in values._map.items():
            self._check_class("update", key, value)
        self._map.update(values.copy()._map)

    def pop(self, key: str) -> Any:
        """Remove and return a leaf or subtree; a subtree that becomes empty stays.

        Args:
            key: the dotted key.
        Raises:
            KeyError: there is none.
        """
        value = self[key]
        *above, last = self._path(key, "pop")
        tree: Any = self[".".join(above)] if above else self
        del tree._map[last]
        return value

    def _clear(self) -> None:
        """Remove all leaves; subtrees stay, as those who hold them expect."""
        self._map = {key: value for key, value in self._map.items() if isinstance(value, DotTree)}
        for value in self._map.values():
            assert isinstance(value, DotTree)
            value._clear()

    # New trees

    def copy(self: Tree) -> Tree:
        """The tree again, with the same leaves."""
        return self._mapped(lambda leaf: leaf)

    def __deepcopy__(self: Tree, memo: dict[int, object]) -> Tree:
        return self._mapped(lambda leaf: leaf if isinstance(leaf, Handle) else deepcopy(leaf, memo))

    @transactional
    def map(self: Tree, fn: Callable[[L], Any]) -> Tree:
        """A tree of the same keys.

        Args:
            fn: makes its leaves of this tree's.
        """
        read_call("map: fn", fn)
        return self._mapped(fn)

    def _mapped(self: Tree, fn: Callable[[L], Any]) -> Tree:
        result = self._empty()
        for key, value in self._map.items():
            result._map[key] = value._mapped(fn) if isinstance(value, DotTree) else fn(value)
        return result

    def filter_keys(self: Tree, keys: Iterable[str | int]) -> Tree:
        """A tree of the given entries.

        Args:
            keys: dotted keys of leaves or subtrees.
        Raises:
            ValueError: a key is there twice.
            KeyError: there is no such key.
        """
        names = [
            ".".join(self._path(key, "filter_keys"))
            for key in read_items("filter_keys", "keys", keys, kind="keys")
        ]
        twice = duplicate_items(names)
        if twice:
            raise AttributeValueError(
                f"filter_keys: keys are given twice, got {shown(twice)}, expected each key once"
            )
        result = self._empty()
        for name in names:
            value = self[name]
            result._insert(name.split("."), value.copy() if isinstance(value, DotTree) else value, True)
        return result

    @classmethod
    def from_dict(cls: type[Tree], d: Mapping[Any, Any]) -> Tree:
        """A tree from leaves or copies of trees by dotted key; entries of one subtree are put together.

        Args:
            d: the entries.
        Raises:
            ValueError: a key lies below a leaf, is there twice, or is not a key.
            TypeError: a tree is of another class.
        """
        tree = cls()
        for key, value in read_a("from_dict: d", d, (Mapping,)).items():
            path = tree._path(key, "from_dict")
            at: Any = tree
            for element in path[:-1]:
                at = at._map.setdefault(element, tree._empty())
                if not isinstance(at, DotTree):
                    raise AttributeValueError(
                        f"from_dict: {shown(element)} is a leaf, got a key below it, {shown(key)}, "
                        "expected keys that end at leaves"
                    )
            at._insert([path[-1]], value.copy() if isinstance(value, DotTree) else value, False)
        return tree

    @classmethod
    def pack(cls: type[Tree], keys: Iterable[str | int], values: Iterable[Any]) -> Tree:
        """A tree from keys and leaves, as ``unpack`` returns them.

        Args:
            keys: dotted keys.
            values: leaves; keys or leaves without a partner are left out.
        """
        names = [read_key("pack", key) for key in read_items("pack", "keys", keys, kind="keys")]
        return cls.from_dict(dict(zip(names, read_items("pack", "values", values), strict=False)))

    # Keys

    def _empty(self: Tree) -> Tree:
        return type(self)()

    def _check_class(self, where: str, key: str, value: Any) -> None:
        if not isinstance(value, DotTree) or isinstance(value, type(self)):
            return
        if not (self._is_named and value._is_named):
            raise ArgumentTypeError(
                f"{where}: a tree of another class, got {type(value).__name__} for {shown(key)}, "
                f"expected {type(self).__name__}"
            )

    def _leaves(self) -> Iterator[tuple[str, L]]:
        for key, value in self._map.items():
            if isinstance(value, DotTree):
                yield from ((f"{key}.{name}", leaf) for name, leaf in value._leaves())
            else:
                yield key, value

    def _path(self, key: str | int, where: str) -> list[str]:
        if integer_of(key) is not None:
            return [self._number(read_int(f"{where}: key", key), where)]
        return read_key(where, key).split(".")

    def _number(self, key: int, where: str) -> str:
        if key >= 0:
            return str(key)
        if where in ("insert", "from_dict"):
            raise AttributeValueError(
                f"{where}: a negative number is not a key, got {key}, expected 0 or more"
            )
        numbers = [int(name) for name in self._map if name.isdigit()]
        found = max(numbers, default=-1) + 1 + key
        if found < 0:
            raise self._unknown(key)
        return str(found)

    def _unknown(self, key: str | int) -> UnknownNameError:
        return UnknownNameError(
            f"{type(self).__name__}: no such key, got {shown(key)}, expected one of {shown(self.keys_flat())}"
        )
