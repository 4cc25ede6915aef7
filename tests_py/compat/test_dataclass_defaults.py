"""Under compat, fields of dataclasses may default to instances of dataclasses; each object gets a copy."""

from __future__ import annotations

import copy
import dataclasses
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import popsr
from popsr.compat import _dataclass_defaults, install, uninstall
from tests_py.support.helpers import run_python
from tests_py.support.unchecked import unchecked

HEAD = """
from dataclasses import *
from typing import ClassVar, Generic, List, Optional, TypeVar

@dataclass
class Inner:
    n: int = 3
    items: List[int] = field(default_factory=lambda: [1])
"""

# Definitions of Outer with a field `inner`, and what Outer() is made with.
ACCEPTED = {
    "plain": "@dataclass\nclass Outer:\n  x: int = 1\n  inner: Inner = Inner(4)",
    "called": "@dataclass()\nclass Outer:\n  inner: Inner = Inner(4)",
    "by function": "class Outer:\n  inner: Inner = Inner(4)\nOuter = dataclass(Outer)",
    "field": "@dataclass\nclass Outer:\n  inner: Inner = field(default=Inner(4), repr=False, metadata={'k': 1})",
    "frozen": "@dataclass(frozen=True)\nclass Outer:\n  inner: Inner = Inner(4)",
    "not comparable": "@dataclass(eq=False)\nclass Outer:\n  inner: Inner = Inner(4)",
    "ordered": "@dataclass(order=True)\nclass Outer:\n  inner: Inner = Inner(4)",
    "slots": "@dataclass(slots=True)\nclass Outer:\n  inner: Inner = Inner(4)",
    "frozen slots": "@dataclass(slots=True, frozen=True)\nclass Outer:\n  inner: Inner = Inner(4)",
    "keyword only": "@dataclass(kw_only=True)\nclass Outer:\n  inner: Inner = Inner(4)\n  y: int = 2",
    "after KW_ONLY": "@dataclass\nclass Outer:\n  x: int = 1\n  _: KW_ONLY = None\n  inner: Inner = Inner(4)",
    "annotated by a string": "@dataclass\nclass Outer:\n  inner: 'Inner' = Inner(4)",
    "optional": "@dataclass\nclass Outer:\n  inner: Optional[Inner] = Inner(4)",
    "inherited": "@dataclass\nclass Base:\n  inner: Inner = Inner(4)\n@dataclass\nclass Outer(Base):\n  y: int = 2",
    "inherited and annotated again": (
        "@dataclass\nclass Base:\n  inner: Inner = Inner(4)\n@dataclass\nclass Outer(Base):\n  inner: Inner"
    ),
    "inherited with another default": (
        "@dataclass\nclass Base:\n  inner: Inner = Inner(5)\n@dataclass\nclass Outer(Base):\n  inner: Inner = Inner(4)"
    ),
    "default of a class that is not a dataclass": (
        "class Base:\n  inner = Inner(4)\n@dataclass\nclass Outer(Base):\n  inner: Inner"
    ),
    "generic": "T = TypeVar('T')\n@dataclass\nclass Outer(Generic[T]):\n  inner: Inner = Inner(4)\n  t: T = None",
    "a subclass without decorator": "class Sub(Inner): pass\n@dataclass\nclass Outer:\n  inner: Inner = Sub(4)",
    "without __init__": (
        "@dataclass(init=False)\nclass Outer:\n  inner: Inner = Inner(4)\n"
        "  def __init__(self, inner=None): self.inner = inner or fields(self)[0].default_factory()"
    ),
    "two of one instance": "D = Inner(4)\n@dataclass\nclass Outer:\n  inner: Inner = D\n  other: Inner = D",
    "made by a call": "Outer = make_dataclass('Outer', [('inner', Inner, Inner(4))])",
}


@pytest.fixture
def installed() -> Iterator[None]:
    install()
    yield
    uninstall()


def _define(text: str) -> Any:
    names: dict[str, Any] = {"__name__": __name__}
    exec(compile(HEAD + text, "program.py", "exec", dont_inherit=True), names)
    return names


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("text", ACCEPTED.values(), ids=ACCEPTED)
def test_a_field_defaults_to_a_copy(text: str) -> None:
    names = _define(text)
    cls, inner = names["Outer"], names["Inner"]
    first, second = cls(), cls()
    assert (first.inner.n, type(first.inner).__mro__[-2]) == (4, inner)
    first.inner.items.append(2)
    assert (first.inner.items, second.inner.items, cls().inner.items) == ([1, 2], [1], [1])
    assert cls(inner=inner(7)).inner.n == 7
    [made] = [each for each in dataclasses.fields(cls) if each.name == "inner"]
    assert made.default is dataclasses.MISSING
    assert unchecked(made.default_factory)().n == 4
    copied = copy.deepcopy(first)
    assert copied.inner == first.inner
    assert copied.inner is not first.inner


@pytest.mark.parametrize("text", ACCEPTED.values(), ids=ACCEPTED)
def test_without_install_python_refuses(text: str) -> None:
    with pytest.raises(
        ValueError, match=r"mutable default .* for field inner is not allowed: use default_factory"
    ):
        _define(text)


UNCHANGED = {
    "a list": "@dataclass\nclass Outer:\n  inner: list = []",
    "a dictionary": "@dataclass\nclass Outer:\n  inner: dict = field(default={})",
    "a set": "@dataclass\nclass Outer:\n  inner: set = set()",
    "a list that is a dataclass": (
        "@dataclass\nclass L(list):\n  n: int = 1\n@dataclass\nclass Outer:\n  inner: L = L()"
    ),
    "another unhashable object": ("class U:\n  __hash__ = None\n@dataclass\nclass Outer:\n  inner: U = U()"),
    "both default and factory": (
        "@dataclass\nclass Outer:\n  inner: Inner = field(default=Inner(), default_factory=Inner)"
    ),
    "no default after one": "@dataclass\nclass Outer:\n  inner: Inner = Inner()\n  y: int",
    "a factory of an InitVar": "@dataclass\nclass Outer:\n  inner: InitVar[Inner] = field(default_factory=Inner)",
}


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("text", UNCHANGED.values(), ids=UNCHANGED)
def test_fields_refused_for_other_reasons_stay_refused(text: str) -> None:
    with pytest.raises((ValueError, TypeError)):
        _define(text)


@pytest.mark.usefixtures("installed")
def test_hashable_defaults_and_other_attributes_stay_shared() -> None:
    names = _define(
        "@dataclass(frozen=True)\nclass Frozen:\n  n: int = 1\n@dataclass(eq=False)\nclass ById:\n  n: int = 1\n"
        "@dataclass\nclass Outer:\n  frozen: Frozen = Frozen()\n  by_id: ById = ById()\n"
        "  shared: ClassVar[Inner] = Inner()\n  given: InitVar[Inner] = Inner(6)\n  plain = Inner()\n  got: int = 0\n"
        "  def __post_init__(self, given): self.got = given.n"
    )
    cls = names["Outer"]
    assert [each.name for each in dataclasses.fields(cls)] == ["frozen", "by_id", "got"]
    assert cls().frozen is cls().frozen
    assert cls().by_id is cls().by_id
    assert cls().shared is cls.shared
    assert cls().plain is cls.plain
    assert cls().got == 6
    assert cls(given=names["Inner"](8)).got == 8


@pytest.mark.usefixtures("installed")
def test_the_class_keeps_its_attribute_and_its_representation() -> None:
    """As where Python took the default itself: ``Outer.inner`` is the instance that the program wrote."""
    names = _define(
        "@dataclass\nclass Outer:\n  a: int = 0\n  inner: Inner = Inner(4)\nDEFAULT = Outer.inner"
    )
    cls = names["Outer"]
    assert cls.inner is names["DEFAULT"]
    assert cls() == cls()
    assert repr(cls()).endswith("Outer(a=0, inner=Inner(n=4, items=[1]))")
    assert dataclasses.asdict(cls()) == {"a": 0, "inner": {"n": 4, "items": [1]}}
    assert dataclasses.replace(cls(), a=2).inner == cls().inner
    cls.inner.n = 9  # the default of what is made afterwards, as with a default of Python 3.8
    assert cls().inner.n == 9


@pytest.mark.usefixtures("installed")
def test_nested_configurations_hold_dtypes_and_arrays() -> None:
    @dataclass
    class Precision:
        dtype: popsr.dtype = popsr.float16
        scale: Any = dataclasses.field(default_factory=lambda: np.ones(2))

    @dataclass
    class Layer:
        precision: Precision = Precision()  # noqa: RUF009

    @dataclass
    class Model:
        layer: Layer = Layer()  # noqa: RUF009

    first, second = Model(), Model()
    assert first.layer.precision.dtype is popsr.float16
    first.layer.precision.scale += 1
    np.testing.assert_array_equal(second.layer.precision.scale, [1, 1])


def test_uninstall_restores_the_library() -> None:
    before = dataclasses._get_field  # type: ignore[attr-defined]
    for _ in range(2):
        install()
        install()
        assert dataclasses._get_field is not before  # type: ignore[attr-defined]
        names = _define(ACCEPTED["plain"])
        uninstall()
        uninstall()
        assert dataclasses._get_field is before  # type: ignore[attr-defined]
        assert names["Outer"]().inner.n == 4
        with pytest.raises(ValueError, match="mutable default"):
            _define(ACCEPTED["plain"])


def test_wrappers_installed_meanwhile_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    before = dataclasses._get_field  # type: ignore[attr-defined]
    install()
    ours = dataclasses._get_field  # type: ignore[attr-defined]
    monkeypatch.setattr(dataclasses, "_get_field", lambda *args: ours(*args))
    uninstall()
    with pytest.raises(ValueError, match="mutable default"):
        _define(ACCEPTED["plain"])
    install()
    assert _define(ACCEPTED["plain"])["Outer"]().inner.n == 4
    uninstall()
    monkeypatch.undo()
    dataclasses._get_field = before  # type: ignore[attr-defined]


def test_a_python_without_the_hook_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_dataclass_defaults, "_HOOK", "_no_such_function")
    _dataclass_defaults.start()
    _dataclass_defaults.stop()


def test_modules_that_imported_dataclass_before_are_served(tmp_path: Path) -> None:
    (tmp_path / "early.py").write_text("from dataclasses import dataclass\n")
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import early, popsr.compat; popsr.compat.install()\n"
        f"{HEAD}\n@early.dataclass\nclass Outer:\n  inner: Inner = Inner(5)\nprint(Outer().inner.n)"
    )
    assert run_python(code) == "5\n"


def test_programs_of_python_38_run(tmp_path: Path) -> None:
    script = tmp_path / "config.py"
    script.write_text(
        f"import popxl\n{HEAD}\n@dataclass\nclass Outer:\n  inner: Inner = Inner(5)\nprint(Outer())"
    )
    code = f"import sys; from popsr.__main__ import main; sys.exit(main(['run', {str(script)!r}]))"
    assert run_python(code) == "Outer(inner=Inner(n=5, items=[1]))\n"


def test_the_module_needs_nothing_but_the_library() -> None:
    """So that it can be tried with every version of Python."""
    source = Path(_dataclass_defaults.__file__).read_text()
    assert "popsr." not in source
    assert sys.version_info >= (3, 11)
