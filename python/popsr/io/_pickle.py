"""Pickles as inert data: nothing that they name is imported, called, hashed, compared or shown.

A pickle may hold values that double a hundred times in as many bytes; whoever hashes, compares or prints one never
ends. Here dicts and sets are lists, objects are records, and what is made takes memory for the opcodes that there are.
"""

from __future__ import annotations

import pickle
import pickletools
from collections.abc import Callable
from typing import Any, BinaryIO

__all__ = ["HashBudget", "Named", "Pairs", "Record", "kind_of", "read_pickle"]

_OPCODES = 1 << 18  # of any pickle, and three more for each four bytes of it: real ones have two
_PLAIN_KEYS = (str, int, float, bool, type(None), bytes)
_TUPLE_KEYS = 1 << 12  # of one pickle: tuples whose hashes collide are easily made
_MAX_KEY = 1 << 6  # numbers and texts of one tuple
_MAX_INT = 1 << 64  # of a key: hashing a longer one takes longer

_CONSTANTS = set(
    "INT BININT BININT1 BININT2 LONG LONG1 LONG4 STRING BINSTRING SHORT_BINSTRING BINBYTES SHORT_BINBYTES BINBYTES8 "  # noqa: SIM905
    "BYTEARRAY8 UNICODE SHORT_BINUNICODE BINUNICODE BINUNICODE8 FLOAT BINFLOAT".split()
)

Allow = Callable[[str, str], object]
"""A stand-in for a global of a module and a name; raises for those that a file may not have."""


class Named:
    """A global of a pickle: a class or a function by its name."""

    __slots__ = ("module", "name")

    def __init__(self, module: str, name: str) -> None:
        self.module, self.name = module, name


class Pairs(list[tuple[Any, Any]]):
    """The keys and values of a dict, in the order in which they were set."""

    __slots__ = ()


class Record:
    """A stand-in for the result of a call: its arguments, and everything that was added afterwards."""

    __slots__ = ("arguments", "items", "made_by", "pairs", "state")

    def __init__(self, made_by: Named, arguments: Any) -> None:
        self.made_by, self.arguments = made_by, arguments
        self.state: Any = None
        self.pairs = Pairs()
        self.items: list[Any] = []


def kind_of(value: Any) -> str:
    """The name of a value's class, as its pickle has it."""
    if isinstance(value, Record):
        return value.made_by.name
    return "dict" if isinstance(value, Pairs) else type(value).__name__


class HashBudget:
    """Counts what hashing the keys of a pickle takes, for a reader that does hash them.

    Attributes:
        persistent: the persistent ids of the pickle.
    """

    def __init__(self) -> None:
        self._tuples = 0
        self.persistent: list[Any] = []

    def add_key(self, key: Any) -> None:
        """Count a key of a dict or a member of a set.

        Raises:
            UnpicklingError: it is long, nested, or one of too many tuples.
        """
        if type(key) is tuple:
            self._tuples += 1
            if len(key) > _MAX_KEY or self._tuples > _TUPLE_KEYS:
                raise pickle.UnpicklingError("too many or too long tuples as keys")
            for each in key:
                self._add_plain(each)
        else:
            self._add_plain(key)

    @staticmethod
    def _add_plain(key: Any) -> None:
        if type(key) is int and not -_MAX_INT < key < _MAX_INT:
            raise pickle.UnpicklingError("a key that is a number of more than 64 bits")
        # Objects are hashed by their identity, or refused by whoever makes them.
        if not isinstance(key, (*_PLAIN_KEYS, Named, Record)):
            raise pickle.UnpicklingError(f"a nested {kind_of(key)} as a key")

    def add_persistent(self, identity: Any) -> None:
        """Count a persistent id, a part of which becomes a key.

        Raises:
            UnpicklingError: ``add_key`` refuses a part of it.
        """
        for each in identity if type(identity) is tuple else (identity,):
            self._add_plain(each)
        self.persistent.append(identity)

    def add_call(self, made_by: Named, arguments: tuple[Any, ...]) -> None:
        """Count the arguments of a call, whose items may become keys.

        Raises:
            UnpicklingError: there is a key among them that ``add_key`` refuses, or they ask for memory.
        """
        if made_by.name == "bytearray" and any(type(each) is int for each in arguments):
            raise pickle.UnpicklingError("a bytearray of a number of bytes")
        for each in arguments:
            if type(each) is list:  # members, or pairs of a key and a value
                for item in each:
                    self.add_key(item[0] if type(item) in (tuple, list) and len(item) == 2 else item)


def read_pickle(file: BinaryIO, size: int, allow: Allow, hashed: HashBudget | None = None) -> Any:
    """The value of the pickle that begins where ``file`` is; the file is left at its end.

    Args:
        file: it is read from.
        size: bytes of the pickle, or of what it lies in.
        allow: called for each global.
        hashed: counts keys, arguments and persistent ids.

    Raises:
        Exception: of many kinds, where the pickle is damaged; and what ``allow`` raises.
    """
    machine = _Machine(allow, hashed)
    left = limit = _OPCODES + size // 4 * 3
    for opcode, argument, _ in pickletools.genops(file):
        left -= 1
        if left < 0:
            raise pickle.UnpicklingError(f"more than {limit} opcodes")
        name = opcode.name
        if name in _CONSTANTS:
            machine.stack.append(argument)
        else:
            machine.run(name, argument)
    return machine.pop()


class _Machine:
    """A stack machine whose values are inert."""

    def __init__(self, allow: Allow, hashed: HashBudget | None) -> None:
        self._allow, self._hashed = allow, hashed
        self.stack: list[Any] = []
        self._marks: list[list[Any]] = []
        self._memo: dict[int, Any] = {}

    def run(self, name: str, argument: Any) -> None:
        """Run an opcode that is not a constant."""
        step = _STEPS.get(name)
        if step is None:
            raise pickle.UnpicklingError(f"an opcode {name}")
        step(self, argument)

    def pop(self) -> Any:
        """Take the last value."""
        if not self.stack:
            raise pickle.UnpicklingError("no value on the stack")
        return self.stack.pop()

    def _pop_mark(self) -> list[Any]:
        if not self._marks:
            raise pickle.UnpicklingError("no mark on the stack")
        found, self.stack = self.stack, self._marks.pop()
        return found

    def mark(self, _: Any) -> None:
        self._marks.append(self.stack)
        self.stack = []

    def discard(self, _: Any) -> None:
        if self.stack or not self._marks:
            self.pop()
        else:
            self._pop_mark()

    def get(self, index: Any) -> None:
        self.stack.append(self._memo[int(index)])

    def put(self, index: Any) -> None:
        self._memo[int(index)] = self.stack[-1]

    def memoize(self, _: Any) -> None:
        self._memo[len(self._memo)] = self.stack[-1]

    def tuple_of(self, count: int) -> None:
        if len(self.stack) < count:
            raise pickle.UnpicklingError("no value on the stack")
        split = len(self.stack) - count
        self.stack[split:] = [tuple(self.stack[split:])]

    def add_pairs(self, items: list[Any]) -> None:
        target = self.stack[-1]
        if isinstance(target, Record):
            target = target.pairs
        if not isinstance(target, Pairs) or len(items) % 2:
            raise pickle.UnpicklingError(f"items of a {kind_of(target)}")
        if self._hashed is not None:
            for key in items[::2]:
                self._hashed.add_key(key)
        target.extend(zip(items[::2], items[1::2], strict=True))

    def add_items(self, items: list[Any], *, are_members: bool = False) -> None:
        target = self.stack[-1]
        if isinstance(target, Record):
            target = target.items
        if type(target) is not list:
            raise pickle.UnpicklingError(f"items of a {kind_of(target)}")
        if self._hashed is not None and are_members:
            for each in items:
                self._hashed.add_key(each)
        target.extend(items)

    def name(self, module: Any, name: Any) -> None:
        if type(module) is not str or type(name) is not str:
            raise pickle.UnpicklingError("a global without a name")
        self.stack.append(self._allow(module, name))

    def make(self, made_by: Any, arguments: Any) -> None:
        if not isinstance(made_by, Named) or type(arguments) is not tuple:
            raise pickle.UnpicklingError(f"a call of a {kind_of(made_by)}")
        if self._hashed is not None:
            self._hashed.add_call(made_by, arguments)
        self.stack.append(Record(made_by, arguments))

    def build(self, _: Any) -> None:
        state, target = self.pop(), self.stack[-1]
        if not isinstance(target, Record):
            raise pickle.UnpicklingError(f"a state of a {kind_of(target)}")
        target.state = state

    def persistent(self, _: Any) -> None:
        key = self.pop()
        if self._hashed is None:
            raise pickle.UnpicklingError("a persistent id")
        self._hashed.add_persistent(key)
        self.stack.append(Record(Named("", "persistent id"), (key,)))

    # Opcodes that take their values from the stack

    def stack_global(self, _: Any) -> None:
        name, module = self.pop(), self.pop()
        self.name(module, name)

    def reduce(self, _: Any) -> None:
        arguments, made_by = self.pop(), self.pop()
        self.make(made_by, arguments)

    def new_extended(self, _: Any) -> None:
        self.pop()  # arguments by name
        self.reduce(None)

    def setitem(self, _: Any) -> None:
        value, key = self.pop(), self.pop()
        self.add_pairs([key, value])

    def discard_to_mark(self, _: Any) -> None:
        self._pop_mark()

    def new_tuple(self, _: Any) -> None:
        items = self._pop_mark()
        self.stack.append(tuple(items))

    def new_list(self, _: Any) -> None:
        items = self._pop_mark()
        self.stack.append(items)

    def new_dict(self, _: Any) -> None:
        items = self._pop_mark()
        self.stack.append(Pairs())
        self.add_pairs(items)

    def new_set(self, _: Any) -> None:
        items = self._pop_mark()
        self.stack.append([])
        self.add_items(items, are_members=True)


def _constant(make: Callable[[], Any]) -> Callable[[_Machine, Any], None]:
    return lambda machine, _: machine.stack.append(make())


def _nothing(machine: _Machine, _: Any) -> None:
    """Frames, protocols and the end say nothing of the value."""


_STEPS: dict[str, Callable[[_Machine, Any], None]] = {
    "PROTO": _nothing,
    "FRAME": _nothing,
    "STOP": _nothing,
    "NONE": _constant(lambda: None),
    "NEWTRUE": _constant(lambda: True),
    "NEWFALSE": _constant(lambda: False),
    "EMPTY_TUPLE": _constant(lambda: ()),
    "EMPTY_LIST": _constant(list),
    "EMPTY_SET": _constant(list),
    "EMPTY_DICT": _constant(Pairs),
    "MARK": _Machine.mark,
    "POP": _Machine.discard,
    "POP_MARK": _Machine.discard_to_mark,
    "DUP": lambda m, _: m.stack.append(m.stack[-1]),
    "GET": _Machine.get,
    "BINGET": _Machine.get,
    "LONG_BINGET": _Machine.get,
    "PUT": _Machine.put,
    "BINPUT": _Machine.put,
    "LONG_BINPUT": _Machine.put,
    "MEMOIZE": _Machine.memoize,
    "TUPLE": _Machine.new_tuple,
    "TUPLE1": lambda m, _: m.tuple_of(1),
    "TUPLE2": lambda m, _: m.tuple_of(2),
    "TUPLE3": lambda m, _: m.tuple_of(3),
    "LIST": _Machine.new_list,
    "DICT": _Machine.new_dict,
    "FROZENSET": _Machine.new_set,
    "APPEND": lambda m, _: m.add_items([m.pop()]),
    "APPENDS": lambda m, _: m.add_items(m._pop_mark()),
    "ADDITEMS": lambda m, _: m.add_items(m._pop_mark(), are_members=True),
    "SETITEM": _Machine.setitem,
    "SETITEMS": lambda m, _: m.add_pairs(m._pop_mark()),
    "GLOBAL": lambda m, argument: m.name(*argument.split(" ", 1)),
    "STACK_GLOBAL": _Machine.stack_global,
    "REDUCE": _Machine.reduce,
    "NEWOBJ": _Machine.reduce,
    "NEWOBJ_EX": _Machine.new_extended,
    "BUILD": _Machine.build,
    "BINPERSID": _Machine.persistent,
}
