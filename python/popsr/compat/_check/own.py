"""Functions, classes and objects that a program defines, and its modules.

Their attributes are never reported as missing; they are followed because objects of popsr pass through them.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from popsr.compat._check import values as _values
from popsr.compat._check.values import Budget, Foreign, Instance, Known, Missing, Own, Value

__all__ = [
    "DATACLASS",
    "Index",
    "OwnClass",
    "OwnFunction",
    "OwnObject",
    "Store",
    "decorator_path",
    "is_none",
    "nothing",
]

DefNode = ast.FunctionDef | ast.AsyncFunctionDef
# Decorators that leave a function as it is, for what is asked here.
_TRANSPARENT = {
    "builtins.classmethod",
    "builtins.staticmethod",
    "abc.abstractmethod",
    "functools.cache",
    "functools.lru_cache",
    "typing.final",
    "typing.no_type_check",
}
_PROPERTIES = {"builtins.property", "functools.cached_property", "abc.abstractproperty"}
_MANAGERS = {"contextlib.contextmanager"}
DATACLASS = "dataclasses.dataclass"


class Scope(Protocol):
    """A scope of the program, as far as what is defined in it asks for names; see ``popsr.compat._check.scopes``."""

    bindings: dict[str, list[Callable[[], Value]]]
    returns: list[ast.expr | None]
    yields: list[ast.expr | None]

    def home(self, name: str) -> Scope | None: ...

    def name(self, name: str) -> Value: ...

    def value(self, node: ast.expr | None) -> Value: ...

    def annotation(self, node: ast.expr | None) -> Value: ...


@dataclass(frozen=True)
class Store:
    """``owner.name = value`` somewhere; no literal None, which tells nothing."""

    scope: Scope
    owner: ast.expr
    value: Callable[[], Value]


@dataclass
class Index:
    """Stores, calls, classes and tests of all modules of a program, by name."""

    stores: dict[str, list[Store]] = field(default_factory=dict)
    calls: dict[str, list[tuple[Scope, ast.Call]]] = field(default_factory=dict)
    classes: dict[ast.AST, OwnClass] = field(default_factory=dict)
    asked_for: set[str] = field(default_factory=set)  # with hasattr
    budget: Budget = field(default_factory=Budget)
    defined: set[str] = field(default_factory=set)  # names of functions
    _below: dict[OwnClass, list[OwnClass]] | None = None
    _stored: dict[str, dict[Value, list[Store]]] = field(default_factory=dict)
    _called: dict[str, dict[Value, list[tuple[Scope, ast.Call]]]] = field(default_factory=dict)

    # Each is grouped once by what it is about; None is the key of all that is not the program's own, and while the
    # groups are made all is taken as unknown.

    def stores_of(self, name: str) -> dict[Value, list[Store]]:
        """The stores of an attribute by the own object, class or module that gets it; None: unknown."""
        if name not in self._stored:
            self._stored[name] = {None: []}
            found: dict[Value, list[Store]] = {}
            for each in self.stores.get(name, ()):
                owner = each.scope.value(each.owner)
                if owner is None or isinstance(owner, Own):
                    found.setdefault(owner, []).append(each)
            self._stored[name] = found
        return self._stored[name]

    def calls_of(self, name: str) -> dict[Value, list[tuple[Scope, ast.Call]]]:
        """The calls by a name, by the own function or class that is called."""
        if name not in self._called:
            self._called[name] = {}
            found: dict[Value, list[tuple[Scope, ast.Call]]] = {}
            for scope, call in self.calls.get(name, ()):
                function = scope.value(call.func)
                if isinstance(function, (OwnFunction, OwnClass)):
                    found.setdefault(function, []).append((scope, call))
            self._called[name] = found
        return self._called[name]

    def below(self, cls: OwnClass) -> list[OwnClass]:
        """The subclasses of a class; asked for when all modules are bound."""
        if self._below is None:
            self._below = {}
            for each in self.classes.values():
                for base in each.mro()[1:]:
                    if isinstance(base, OwnClass):
                        self._below.setdefault(base, []).append(each)
        return self._below.get(cls, [])


def decorator_path(scope: Scope, node: ast.expr) -> str:
    """The path of a decorator, as "functools.cache"; empty when it is not known."""
    function = node.func if isinstance(node, ast.Call) else node
    if isinstance(function, ast.Name) and scope.home(function.id) is None:
        return f"builtins.{function.id}"
    value = scope.value(function)
    return value.path if isinstance(value, Foreign) else ""


class OwnFunction(Own):
    """A function or method."""

    def __init__(
        self, node: DefNode, outer: Scope, inner: Scope, owner: OwnClass | None, index: Index
    ) -> None:
        """``inner``: the scope of its body; ``owner``: the class that it is a method of."""
        self.node = node
        self.owner = owner
        self._outer = outer
        self._inner = inner
        self._index = index
        self._decorators: set[str] | None = None
        self._is_busy = False
        self._arguments: dict[tuple[ast.Call, int], dict[str, ast.expr] | None] = {}

    @property
    def decorators(self) -> set[str]:
        """Paths; "" stands for any that is not known."""
        if self._decorators is None:
            self._decorators = {decorator_path(self._outer, each) for each in self.node.decorator_list}
        return self._decorators

    @property
    def is_property(self) -> bool:
        """True if reading the attribute calls it."""
        return bool(self.decorators & _PROPERTIES)

    def call(self) -> Value:
        """The value that all its returns agree on, else an object of its annotation."""
        allowed = _TRANSPARENT | _PROPERTIES
        if self.decorators - allowed or self._inner.yields or isinstance(self.node, ast.AsyncFunctionDef):
            return None
        return self._joined(self._inner.returns) or _values.instance(
            self._outer.annotation(self.node.returns)
        )

    def managed(self) -> Value:
        """The value that ``with function() as name`` binds, also of a generator under ``contextlib.contextmanager``."""
        if self.decorators and self.decorators <= _MANAGERS | _TRANSPARENT:
            return self._joined(self._inner.yields)
        return _values.enter(self.call())

    def _joined(self, expressions: Iterable[ast.expr | None]) -> Value:
        if self._is_busy:  # it calls itself
            return None
        self._is_busy = True
        try:
            return _values.join(self._inner.value(each) for each in expressions if not is_none(each))
        finally:
            self._is_busy = False

    def receiver(self) -> Value:
        """The object or class that the first parameter of a method is; None of a function."""
        if self.owner is None or "builtins.staticmethod" in self.decorators:
            return None
        return self.owner if "builtins.classmethod" in self.decorators else self.owner.object

    def parameter(self, name: str) -> Value:
        """The value that all calls that are seen give for a parameter."""
        if self.decorators - _TRANSPARENT:
            return None
        given = [each for each in self._given(name) if each is not _NOTHING]
        return _values.join(given) if given else None  # type: ignore[arg-type]

    def _given(self, name: str) -> Iterator[object]:
        called = self.node.name
        is_init = called == "__init__" and self.owner is not None
        if is_init and self.owner is not None:
            called = self.owner.node.name
        calls = self._index.calls_of(called)
        if is_init:
            yield from (self._argument(scope, call, name, 1) for scope, call in calls.get(self.owner, ()))
        for scope, call in calls.get(self, ()):
            yield self._argument(scope, call, name, self._bound(scope, call.func))

    def _bound(self, scope: Scope, function: ast.expr) -> int:
        """Number of parameters that the way of calling a method fills."""
        if self.receiver() is None:
            return 0
        if "builtins.classmethod" in self.decorators:
            return 1
        owner = scope.value(function.value) if isinstance(function, ast.Attribute) else None
        return int(not isinstance(owner, OwnClass))

    def _argument(self, scope: Scope, call: ast.Call, name: str, bound: int) -> object:
        if (call, bound) not in self._arguments:
            self._arguments[call, bound] = self._matched(call, bound)
        given = self._arguments[call, bound]
        if given is None:
            return None
        if name in given:
            return _NOTHING if is_none(given[name]) else scope.value(given[name])
        default = self._defaults.get(name)
        return _NOTHING if default is None or is_none(default) else self._outer.value(default)

    def _matched(self, call: ast.Call, bound: int) -> dict[str, ast.expr] | None:
        """The arguments of a call by parameter; None where they are not known."""
        if any(isinstance(each, ast.Starred) for each in call.args):
            return None
        args = self.node.args
        names = [each.arg for each in (*args.posonlyargs, *args.args)][bound:]
        named = {each.arg: each.value for each in call.keywords if each.arg is not None}
        is_known = all(each.arg is not None for each in call.keywords)
        return dict(zip(names, call.args, strict=False)) | named if is_known else None

    @functools.cached_property
    def _defaults(self) -> dict[str, ast.expr | None]:
        args = self.node.args
        positional = [*args.posonlyargs, *args.args]
        found = zip(positional[len(positional) - len(args.defaults) :], args.defaults, strict=True)
        defaults: dict[str, ast.expr | None] = {arg.arg: value for arg, value in found}
        return defaults | {
            arg.arg: value for arg, value in zip(args.kwonlyargs, args.kw_defaults, strict=True)
        }


_NOTHING = object()


def is_none(node: ast.expr | None) -> bool:
    """True for a literal None, which has no attributes that a program could miss."""
    return node is None or (isinstance(node, ast.Constant) and node.value is None)


def nothing() -> Value:
    """The binding of a name to a literal None."""
    return None


class OwnClass(Own):
    """A class."""

    def __init__(self, node: ast.ClassDef, outer: Scope, inner: Scope, index: Index) -> None:
        """``inner``: the scope of its body."""
        self.node = node
        self.outer = outer
        self.inner = inner
        self.index = index
        self.object = OwnObject(self)
        self._mro: list[OwnClass | Value] | None = None

    def mro(self) -> list[OwnClass | Value]:
        """It and its bases, the nearest first; None for one that is not known."""
        if self._mro is None:
            self._mro = [self]  # of a class that is its own base
            for base in map(self.outer.value, self.node.bases):
                found = base.mro() if isinstance(base, OwnClass) else [base]
                self.index.budget.take(len(found) * len(self._mro))
                self._mro += [each for each in found if each not in self._mro]
        return self._mro

    def relatives(self) -> list[OwnClass]:
        """Its own bases and its subclasses: an object of it may be of any subclass."""
        bases = [each for each in self.mro() if isinstance(each, OwnClass)]
        return [*bases, *self.index.below(self)]

    def attribute(self, name: str) -> Value:
        """Of the class itself."""
        value = self.definition(name)
        return None if isinstance(value, Instance) else value

    def definition(self, name: str) -> Value:
        """The value of a name in the body of the class, or of the first base that has it."""
        for each in self.mro():
            if isinstance(each, OwnClass) and name in each.inner.bindings:
                return each.inner.name(name)
            if isinstance(each, Known) and isinstance(each.object, type):
                value = _values.attribute(Instance(each.path, each.object), name)
                if not isinstance(value, Missing) and value is not None:
                    return value
        return None

    def call(self) -> Value:
        """An object."""
        return self.object

    def instance(self) -> Value:
        """The same."""
        return self.object


class OwnObject(Own):
    """An object of an own class; there is one for each class."""

    def __init__(self, cls: OwnClass) -> None:
        self.cls = cls
        self._known: dict[str, Value] = {}

    def attribute(self, name: str) -> Value:
        """The value that all stores and the class agree on."""
        if name not in self._known:
            self._known[name] = None  # of an attribute that is made of itself
            self._known[name] = self._attribute(name)
        return self._known[name]

    def _attribute(self, name: str) -> Value:
        relatives, mro = self.cls.relatives(), self.cls.mro()
        defining = [each for each in relatives if name in each.inner.bindings]
        if any(each not in mro for each in defining):
            return None  # overridden
        stores = self.cls.index.stores_of(name)
        if None in stores:
            return None  # some of them may be of this object
        values = [store.value() for each in relatives for store in stores.get(each.object, ())]
        if not defining or any(each is not nothing for each in defining[0].inner.bindings[name]):
            definition = self.cls.definition(name)
            values += [definition] if defining or definition is not None else []
        value = _values.join(values) if values else None
        return value.call() if isinstance(value, OwnFunction) and value.is_property else value

    def enter(self) -> Value:
        """The value that its ``__enter__`` returns."""
        return _values.call(self.attribute("__enter__"))
