"""Trees with dotted keys."""

from __future__ import annotations

import keyword
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import popsr
from popsr import errors
from popsr.addons.dot_tree import DotTree, sanitise, to_mapping

Tree = DotTree[Any]
Value, Key, Kind = errors.AttributeValueError, errors.UnknownNameError, errors.ArgumentTypeError


class Other(DotTree[Any]):
    """A tree of another class."""


def tree(**entries: Any) -> Tree:
    """``a`` is a leaf, ``b`` a subtree, and "0", "1" and "3" are leaves."""
    return Tree.from_dict({"a": 1, "b.c": 2, "b.d.e": 3, 0: "zero", "1": "one", 3: "three", **entries})


# Reading

READS: dict[str, tuple[Any, Any]] = {
    "leaf": ("a", 1),
    "dotted": ("b.c", 2),
    "deeper": ("b.d.e", 3),
    "int": (0, "zero"),
    "digits": ("0", "zero"),
    "-1 is the largest number": (-1, "three"),
    "-3": (-3, "one"),
    "-4": (-4, "zero"),
}


@pytest.mark.parametrize("name", READS)
def test_reads(name: str) -> None:
    key, value = READS[name]
    found = tree()
    assert found[key] == found.get(key) == value
    assert key in found


def test_reads_of_attributes() -> None:
    found = tree()
    assert (found.a, found.b.c, found.b.d.e) == (1, 2, 3)
    assert isinstance(found.b, DotTree)
    assert hasattr(found, "b")
    assert not hasattr(found, "z")
    with pytest.raises(AttributeError, match=r"'z'.*'a', 'b', '0', '1', '3'"):
        _ = found.z


@pytest.mark.parametrize("key", ["z", "b.z", "a.z", "b.c.z", "7", 7, -2, -5], ids=str)
def test_missing_keys(key: Any) -> None:
    found = tree()
    assert key not in found
    for read in (found.get, found.__getitem__, found.pop):
        with pytest.raises(Key, match="no such key") as caught:
            read(key)
        assert isinstance(caught.value, KeyError)
        assert repr(key) in str(caught.value)
        assert "b.d.e" in str(caught.value)
    assert found.to_dict() == tree().to_dict()


def test_negative_reads_without_numbers() -> None:
    with pytest.raises(KeyError, match="no such key, got -1"):
        _ = Tree(a=1)[-1]


def test_trees_are_not_sequences() -> None:
    with pytest.raises(KeyError):
        list(Tree(a=1))
    with pytest.raises(TypeError):
        len(Tree(a=1))
    assert bool(Tree()) is True


# Keys


@pytest.mark.parametrize(
    "key", ["a", "_", "a1", "class", "é", "12", 12, 0, "a.b.c", "0.a", "map", "007"], ids=str
)
def test_keys(key: Any) -> None:
    found = Tree()
    found.insert(key, 5)
    assert found[key] == found[str(key)] == 5
    assert found.keys_flat() == [str(key)]


BAD_KEYS: dict[str, tuple[Any, type[Exception], str]] = {
    "empty": ("", Value, "is not a key.*identifiers or numbers"),
    "space": ("a b", Value, "'a b' is not a key"),
    "dash": ("a-b", Value, "is not a key"),
    "digit first": ("1a", Value, "got '1a'"),
    "empty element": ("a..b", Value, "got ''"),
    "dot last": ("a.", Value, "is not a key"),
    "superscript": ("²", Value, "is not a key"),
    "negative": (-1, Value, "negative number is not a key, got -1"),
    "negative digits": ("-1", Value, "is not a key"),
    "float": (1.0, Kind, "key is not a str or int, got 1.0"),
    "bool": (True, Kind, "key is not a str or int, got True"),
    "None": (None, Kind, "got None"),
}


@pytest.mark.parametrize("name", BAD_KEYS)
def test_refused_keys(name: str) -> None:
    key, error, match = BAD_KEYS[name]
    found = tree()
    for insert in (lambda: found.insert(key, 1), lambda: found.from_dict({"x": 0, key: 1})):
        with pytest.raises(error, match=match) as caught:
            insert()
        assert isinstance(caught.value, popsr.Error)
    assert found.to_dict() == tree().to_dict()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("fc1/weight", "fc1_weight"),
        ("0", "_0"),
        ("a.b-c", "a_b_c"),
        ("good_1", "good_1"),
        ("x:0/1", "x_0_1"),
        ("", ""),
    ],
)
def test_sanitise(name: str, expected: str) -> None:
    assert sanitise(name) == expected


@given(st.text(min_size=1))
def test_sanitised_names_are_keys(name: str) -> None:
    clean = sanitise(name)
    assert len(clean) - len(name) in (0, 1)
    if clean.isidentifier():  # some word characters are not letters
        assert Tree.from_dict({clean: 1})[clean] == 1
    if re.fullmatch(r"\w+", name) and not name[0].isdigit():
        assert clean == name


# Insert and update

INSERTS: dict[str, tuple[Any, Any, bool, dict[str, Any]]] = {
    "new": ("z", 9, False, {"z": 9}),
    "new subtree": ("z.y.x", 9, False, {"z.y.x": 9}),
    "a tree": ("z", Tree(y=9), False, {"z.y": 9}),
    "leaf for leaf": ("a", 9, True, {"a": 9}),
    "leaf for tree": ("b", 9, True, {"b": 9, "b.c": None, "b.d.e": None}),
    "tree for leaf": ("a", Tree(y=9), True, {"a": None, "a.y": 9}),
    "tree for tree": ("b", Tree(y=9), True, {"b.c": None, "b.d.e": None, "b.y": 9}),
    "new leaf of a subtree": ("b.d.f", 9, True, {"b.d.f": 9}),
    "leaf becomes a subtree": ("a.y", 9, True, {"a": None, "a.y": 9}),
    "number": (2, 9, False, {"2": 9}),
}


@pytest.mark.parametrize("name", INSERTS)
def test_inserts(name: str) -> None:
    key, value, overwrite, changes = INSERTS[name]
    found = tree()
    found.insert(key, value, overwrite)
    expected = {**tree().to_dict(), **changes}
    assert dict(found.to_dict()) == {k: v for k, v in expected.items() if v is not None}


def test_a_leaf_of_none_is_there() -> None:
    found = Tree(a=None)
    assert "a" in found
    with pytest.raises(Value, match="'a' already exists"):
        found.insert("a", 1)


def test_subtrees_are_inserted_themselves_and_swapped_for_copies() -> None:
    part = Tree(c=1)
    found = Tree(b=part)
    assert found.b is part
    found.insert("b.d", 2, overwrite=True)
    assert found.b is not part
    assert part.keys() == ["c"]


BAD_INSERTS: dict[str, tuple[Callable[[Tree], Any], type[Exception], str]] = {
    "leaf": (lambda t: t.insert("a", 9), Value, "'a' already exists.*overwrite=True"),
    "subtree": (lambda t: t.insert("b", 9), Value, "'b' already exists"),
    "new leaf of a subtree": (lambda t: t.insert("b.z", 9), Value, "'b' already exists, got 'b.z'"),
    "below a leaf": (lambda t: t.insert("a.z", 9), Value, "'a' already exists"),
    "int of a key": (lambda t: t.insert(0, 9), Value, "'0' already exists"),
    "other class": (
        lambda t: Other(a=1).insert("b", t),
        Kind,
        "tree of another class, got DotTree for 'b'.*Other",
    ),
    "other class below": (
        lambda t: Other().insert("a.b.c", t),
        Kind,
        "another class, got DotTree for 'a.b.c'",
    ),
    "bad part": (lambda t: t.insert("b.d.e!", 9, True), Value, "is not a key"),
    "update": (lambda t: t.update(Tree(z=1, b=2)), Value, "update: 'b' already exists, got.*'z', 'b'"),
    "update of no tree": (lambda t: t.update({"z": 1}), Kind, "update: not a DotTree"),  # type: ignore[arg-type]
    "update of another class": (lambda t: Other(z=1).update(t), Kind, "update: .*another class"),  # type: ignore[arg-type]
    "from_dict below a leaf": (lambda t: t.from_dict({"a": 1, "a.b": 2}), Value, "'a' is a leaf.*'a.b'"),
    "from_dict above a leaf": (lambda t: t.from_dict({"a.b": 1, "a": 2}), Value, "'a' already exists"),
    "from_dict twice": (lambda t: t.from_dict({0: 1, "0": 2}), Value, "'0' already exists"),
    "from_dict of another class": (lambda t: Other.from_dict({"a": t}), Kind, "another class"),
    "keyword": (lambda t: Tree(**{"a b": 1}), Value, "is not a key"),
}


@pytest.mark.parametrize("name", BAD_INSERTS)
def test_refused_inserts_change_nothing(name: str) -> None:
    build, error, match = BAD_INSERTS[name]
    found = tree()
    with pytest.raises(error, match=match) as caught:
        build(found)
    assert isinstance(caught.value, popsr.Error)
    assert found.to_dict() == tree().to_dict()


def test_a_failing_update_leaves_the_tree() -> None:
    found = Other(a=1)
    with pytest.raises(Kind):
        found.update(Tree(b=2, c=Tree(d=3)), overwrite=True)  # type: ignore[arg-type]
    assert found.keys() == ["a"]


def test_update() -> None:
    found, more = tree(), Tree.from_dict({"z": 9, "b.new": 4})
    found.update(more, overwrite=True)
    expected = {**tree().to_dict(), "z": 9, "b.new": 4}
    del expected["b.c"], expected["b.d.e"]  # subtrees are replaced, not merged
    assert dict(found.to_dict()) == expected
    more.b.insert("later", 5)
    assert "b.later" not in found
    found.update(Tree(y=1))
    assert found.y == 1


def test_pop() -> None:
    found = tree()
    assert found.pop("b.c") == 2
    assert found.pop("b.d.e") == 3
    assert found.b.d.keys() == []
    assert found.pop("a") == 1
    assert found.pop("b").to_dict() == {}
    assert found.pop("3") == "three"
    assert found.keys() == ["0", "1"]


def test_clear_keeps_subtrees_and_who_holds_them() -> None:
    found = tree()
    held = found.b.d
    found._clear()
    assert found.to_dict() == {}
    assert found.b.d is held
    held.insert("f", 8)
    assert found["b.d.f"] == 8


# New trees


def test_copies_share_leaves_only() -> None:
    leaf = [1]
    found = Tree.from_dict({"a.b": leaf})
    copy = found.copy()
    assert copy.a is not found.a
    assert copy.a.b is leaf
    copy.insert("a.c", 2, overwrite=True)
    assert found.keys_flat() == ["a.b"]
    assert type(Other().copy()) is Other


def test_keys_values_and_lengths() -> None:
    found = tree()
    assert found.keys() == ["a", "b", "0", "1", "3"]
    assert found.values() == [1, found.b, "zero", "one", "three"]
    assert found.len() == 5
    assert found.keys_flat() == ["a", "b.c", "b.d.e", "0", "1", "3"]
    assert found.values_flat() == [1, 2, 3, "zero", "one", "three"]
    assert found.len_flat() == 6


def test_text() -> None:
    assert str(Tree.from_dict({"a": 1, "b.c": 2})) == "DotTree({\na: 1,\nb.c: 2,\n})"
    assert str(Tree()) == "DotTree({\n})"
    assert repr(Tree.from_dict({"a": 1, "b.c": 2})) == "DotTree({a: 1, b.c: 2})"
    assert repr(Tree()) == "DotTree({})"


def test_from_dict_does_not_touch_what_it_is_given() -> None:
    part = Tree(q=1)
    found = Tree.from_dict({"a": part, "a.b": 2})
    assert found.keys_flat() == ["a.q", "a.b"]
    assert part.keys() == ["q"]


def test_unpack_sorts_as_text() -> None:
    names, values = Tree.from_dict({9: 1, 10: 2, "b": 3, "a.z": 4}).unpack()
    assert names == ("10", "9", "a.z", "b")
    assert values == (2, 1, 4, 3)
    names, values = Tree().unpack()
    assert (len(names), len(values)) == (0, 0)
    assert Tree.pack(["a", "b", "c"], [1, 2]).to_dict() == {"a": 1, "b": 2}


def test_filter_keys() -> None:
    found = tree().filter_keys(["b.d", 0, "a", -1])
    assert dict(found.to_dict()) == {"b.d.e": 3, "0": "zero", "a": 1, "3": "three"}
    assert found.b.d is not tree().b.d
    assert tree().filter_keys([]).to_dict() == {}


@pytest.mark.parametrize(
    ("keys", "error", "match"),
    [
        (["a", "b", "a"], Value, r"twice, got \['a'\]"),
        ([0, "0"], Value, r"twice, got \['0'\]"),
        ([3, -1], Value, "twice"),
        (["a", "z"], Key, "no such key, got 'z'"),
        (["a.z"], Key, "got 'a.z'"),
    ],
    ids=str,
)
def test_refused_filters(keys: list[Any], error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        tree().filter_keys(keys)


def test_to_mapping_is_of_keys_in_both() -> None:
    a, b = (
        Tree.from_dict({"x": 1, "y.z": 2, "only": 3}),
        Other.from_dict({"y.z": "two", "x": "one", "w": "four"}),
    )
    assert to_mapping(a, b) == a.to_mapping(b) == {1: "one", 2: "two"}


# Laws

ELEMENTS = st.one_of(
    st.integers(0, 12).map(str), st.sampled_from(["a", "b", "_x", "copy", *keyword.kwlist[:3]])
)
KEYS = st.lists(ELEMENTS, min_size=1, max_size=3).map(".".join)


def is_free(keys: list[str]) -> bool:
    """No key is above another."""
    return not any(other.startswith(f"{key}.") for key in keys for other in keys)


DICTS = st.dictionaries(KEYS, st.integers(), max_size=8).filter(lambda d: is_free(list(d)))


@given(DICTS)
def test_round_trips(entries: dict[str, int]) -> None:
    found = Tree.from_dict(entries)
    assert dict(found.to_dict()) == entries
    assert set(found.keys_flat()) == set(entries)
    assert found.len_flat() == len(entries)
    assert all(found[key] == value for key, value in entries.items())
    names, values = found.unpack()
    assert dict(zip(names, values, strict=True)) == entries
    assert list(names) == sorted(entries)
    assert dict(Tree.pack(names, values).to_dict()) == entries
    assert found.map(lambda leaf: leaf + 1).to_dict() == {key: entries[key] + 1 for key in found.keys_flat()}
    assert found.filter_keys(found.keys()).to_dict() == found.to_dict()
    for key in entries:
        found.pop(key)
    assert found.to_dict() == {}


@given(DICTS, KEYS, st.booleans())
def test_inserts_are_all_or_nothing(entries: dict[str, int], key: str, overwrite: bool) -> None:
    found = Tree.from_dict(entries)
    before = dict(found.to_dict())
    try:
        found.insert(key, "new", overwrite)
    except ValueError:
        assert not overwrite
        assert key.split(".")[0] in found
        assert dict(found.to_dict()) == before
    else:
        kept = {
            k: v
            for k, v in before.items()
            if k != key and not k.startswith(f"{key}.") and not key.startswith(f"{k}.")
        }
        assert dict(found.to_dict()) == {**kept, key: "new"}
