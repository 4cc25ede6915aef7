"""Factories: a graph gets an input now, and the main graph a variable for it later, as often as wanted."""

from __future__ import annotations

import collections
import contextlib
import itertools
import math
import os
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Union

import numpy as np

from popsr import dtypes, ops
from popsr._program.building.transaction import transactional
from popsr._program.create_graph import graph_input
from popsr._program.tensor import Tensor, Variable
from popsr._program.variables.remote_buffer import RemoteBuffer
from popsr._program.variables.remote_variables import (
    remote_replica_sharded_variable,
    remote_variable,
)
from popsr._program.variables.variables import read_group
from popsr._program.variables.variables import variable as _variable
from popsr._support.host.arguments import (
    read_a,
    read_dtype,
    read_flag,
    read_int,
    read_name,
    read_path,
    read_text,
)
from popsr._support.host.float_environment import in_default_environment
from popsr._support.host.types import HostTensor
from popsr._support.text.entry_points import public
from popsr._support.text.shown import shown
from popsr.addons.dot_tree import DotTree
from popsr.addons.named_replica_grouping import NamedReplicaGrouping
from popsr.addons.named_tensors import NamedTensors, NamedVariables, keep_key
from popsr.errors import (
    ArgumentTypeError,
    AttributeValueError,
    FileError,
    NoMoreItemsError,
    ReplicaError,
    ShapeError,
    UnknownNameError,
)
from popsr.replicas import ReplicaGrouping
from popsr.utils import as_array

if TYPE_CHECKING:
    from popsr._program.variables.remote_buffer import RemoteBuffer

__all__ = [
    "DataIter",
    "NamedVariableFactories",
    "VariableFactory",
    "add_replica_sharded_variable_input",
    "add_variable_input",
]

DataIter = Union[Callable[..., HostTensor], Iterable[HostTensor]]  # noqa: UP007 - evaluated, Callable has no | here


@public
class VariableFactory:
    """Makes inputs of a shape, and variables with data for them.

    A function is called once to see that it works, and what it returned is thrown away; then the first item is taken
    to learn shape and dtype, and is the first that is used. A random initialiser therefore makes two draws before the
    first variable exists.
    """

    def __init__(
        self,
        data_iter: DataIter,
        dtype: dtypes.dtype | None = None,
        name: str | None = None,
        by_ref: bool = False,
        replica_grouping: ReplicaGrouping | None = None,
        shard_over: int = 1,
        *,
        replica_group: ReplicaGrouping | None = None,
    ) -> None:
        """A factory; a graph must be current.

        Args:
            data_iter: a function that returns initial values, or an iterable of them; not an array: ``lambda: array``
                gives it as value, ``iter(array)`` its rows. With several groups of replicas each group takes an item of
                its own, the first group the first.
            dtype: element type. Default: the first item's.
            name: name of the inputs and variables. Default: "t".
            by_ref: inputs are by reference.
            replica_grouping: groups of replicas with the same value. Default: one group of all.
            shard_over: each of so many members of a group has a part; 1: each has all.
            replica_group: another name of ``replica_grouping``.
        Raises:
            TypeError: an item is not an array of numbers; ``dtype``, ``name`` or ``replica_grouping`` is none.
            ValueError: ``data_iter`` is neither, or fails, or has no item; ``shard_over`` does not divide the group
                size; the grouping is of another number of replicas; both names of the grouping are given.
        """
        if replica_grouping is not None and replica_group is not None:
            raise AttributeValueError(
                "VariableFactory: groups are given twice, got replica_grouping and replica_group, expected one of them"
            )
        self.name = None if name is None else read_name("VariableFactory", name)
        self.by_ref = read_flag("VariableFactory: by_ref", by_ref)
        self.replica_grouping = read_group(
            self._what, replica_group if replica_grouping is None else replica_grouping, "replica_grouping"
        )
        kind = None if dtype is None else read_dtype(self._what, dtype)
        self.data_iter = _items(self._what, data_iter)
        try:
            first = _array(self._what, next(self.data_iter))
        except StopIteration:
            raise AttributeValueError(
                f"{self._what}: data_iter has no items, got {shown(data_iter)}, expected at least one"
            ) from None
        self.data_iter = itertools.chain([first], self.data_iter)
        self.dtype = read_dtype(self._what, first) if kind is None else kind
        self._full_shape: tuple[int, ...] = tuple(first.shape)
        self.shard_over = read_int(f"{self._what}: shard_over", shard_over, 1)
        size = self.replica_grouping.const_rg.group_size
        if size % self.shard_over != 0:
            raise ReplicaError(
                f"{self._what}: shards do not tile the groups, got shard_over {shard_over}, expected a divisor of "
                f"{size}"
            )

    @property
    def _what(self) -> str:
        return "VariableFactory" if self.name is None else f"VariableFactory {self.name!r}"

    @property
    def replica_group(self) -> ReplicaGrouping:
        """Another name of ``replica_grouping``."""
        return self.replica_grouping

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the inputs: of a part of the value when it is sharded."""
        if self.shard_over == 1:
            return self._full_shape
        return (-(-math.prod(self._full_shape) // self.shard_over),)

    @property
    def meta_shape(self) -> tuple[int, ...] | None:
        """Shape of the whole value when it is sharded, else None."""
        return None if self.shard_over == 1 else self._full_shape

    # Inputs and variables

    def create_input(self, prefix: str | None = None) -> Tensor:
        """A new input of the current graph, with the factory's name.

        Args:
            prefix: goes before the name, with a dot.
        """
        given = None if prefix is None else read_text("create_input: prefix", prefix)
        return self._input(_prefixed(given, self.name or ""))

    def _input(self, name: str) -> Tensor:
        return graph_input(self.shape, self.dtype, name or None, self.by_ref, self.meta_shape)

    @transactional
    def create_tensor(
        self,
        name: str | None = None,
        empty: bool = False,
        memmap_dir: str | os.PathLike[str] | None = None,
        read_only_if_exists: bool = False,
    ) -> Variable:
        """A variable of the main graph, which must be current. Of a sharded factory it is the whole value.

        Args:
            name: its name. Default: the factory's.
            empty: it starts as zeros; no item is used.
            memmap_dir: folder of a file that holds its data, see ``next_memmap``.
            read_only_if_exists: see ``next_memmap``.
        """
        name = self.name if name is None else read_text("create_tensor: name", name)
        with _items_kept(self):
            return self._variable(self._data(name, empty, memmap_dir, read_only_if_exists), name)

    @transactional
    def create_remote_tensor(
        self,
        buffer: RemoteBuffer,
        entry: int,
        name: str | None = None,
        empty: bool = False,
        memmap_dir: str | os.PathLike[str] | None = None,
        read_only_if_exists: bool = False,
    ) -> Variable:
        """A variable in an entry of a remote buffer; in parts when the buffer keeps shards.

        Args:
            buffer: the buffer.
            entry: number of the entry.
            name: its name. Default: the factory's.
            empty: it starts as zeros; no item is used.
            memmap_dir: folder of a file that holds its data, see ``next_memmap``.
            read_only_if_exists: see ``next_memmap``.
        """
        read_a("create_remote_tensor: buffer", buffer, RemoteBuffer)
        name = self.name if name is None else read_text("create_remote_tensor: name", name)
        with _items_kept(self):
            data = self._data(name, empty, memmap_dir, read_only_if_exists)
            return self._remote_variable(data, buffer, entry, name)

    def _variable(self, data: HostTensor, name: str | None) -> Variable:
        return _variable(data, self.dtype, name, replica_grouping=self.replica_grouping)

    def _remote_variable(
        self, data: HostTensor, buffer: RemoteBuffer, entry: int, name: str | None
    ) -> Variable:
        make = remote_replica_sharded_variable if buffer.meta_shape else remote_variable
        return make(data, buffer, entry, self.dtype, name, replica_grouping=self.replica_grouping)

    # Data

    @property
    def _host_shape(self) -> tuple[int, ...]:
        groups = self.replica_grouping.num_groups
        return self._full_shape if groups == 1 else (groups, *self._full_shape)

    def next_data(self, empty: bool = False) -> HostTensor:
        """Data for the next variable: an item, or one for each group on a new first axis.

        Args:
            empty: zeros; no item is used.
        Raises:
            StopIteration: there are no more items.
            ShapeError: an item has another shape than the first.
        """
        return self._next(self._what, empty)

    def _next(self, what: str, empty: bool) -> HostTensor:
        if read_flag(f"{what}: empty", empty):
            return np.zeros(self._host_shape, self.dtype.as_ml_dtypes())
        groups = self.replica_grouping.num_groups
        try:
            items = [_array(what, item) for item in [next(self.data_iter) for _ in range(groups)]]
        except StopIteration:
            raise NoMoreItemsError(f"{what}: data_iter has no more items, expected {groups}") from None
        for item in items:
            if tuple(item.shape) != self._full_shape:
                raise ShapeError(
                    f"{what}: an item of another shape, got {tuple(item.shape)}, expected {self._full_shape}"
                )
        return items[0] if groups == 1 else np.stack([as_array(what, item) for item in items])

    @in_default_environment
    def next_memmap(
        self,
        memmap_dir: str | os.PathLike[str],
        name: str,
        empty: bool = False,
        read_only_if_exists: bool = False,
    ) -> HostTensor:
        """Data in the file ``<memmap_dir>/<name>.npy``: bytes alone, without NumPy's header.

        A file that exists keeps what it holds, and no item is used; otherwise it is made and filled.

        Args:
            memmap_dir: its folder.
            name: its name.
            empty: a new file starts as zeros; no item is used.
            read_only_if_exists: open a file that exists for reading only.
        Raises:
            FileError: the file has another size, or cannot be opened.
        """
        folder = read_path(f"{self._what}: memmap_dir", memmap_dir)
        path = read_path(f"{self._what}: name", folder / f"{read_text(f'{self._what}: name', name)}.npy")
        numpy_dtype = np.dtype(self.dtype.as_ml_dtypes())
        size = math.prod(self._host_shape) * numpy_dtype.itemsize
        read_only = read_flag(f"{self._what}: read_only_if_exists", read_only_if_exists)
        try:
            if path.exists():
                if path.stat().st_size != size:
                    raise FileError(
                        f"{self._what}: file of another size, got {path.stat().st_size} bytes in {shown(str(path))}, "
                        f"expected {size}"
                    )
                return np.memmap(path, numpy_dtype, "r" if read_only else "r+", shape=self._host_shape)
            data = np.asarray(self._next(f"VariableFactory {name!r}", empty))
            mapped = np.memmap(path, numpy_dtype, "w+", shape=self._host_shape)
        except OSError as error:
            if isinstance(error, FileError):
                raise
            raise FileError(
                f"{self._what}: cannot open {shown(str(path))}, got {error.strerror or error}"
            ) from None
        mapped[...] = data
        return mapped

    def _data(
        self, name: str | None, empty: bool, memmap_dir: str | os.PathLike[str] | None, read_only: bool
    ) -> HostTensor:
        if memmap_dir is None:
            return self._next(self._what if name is None else f"VariableFactory {name!r}", empty)
        if name is None:
            raise AttributeValueError(
                f"{self._what}: a file needs a name, got memmap_dir {shown(str(memmap_dir))}, expected name=..."
            )
        return self.next_memmap(memmap_dir, name, empty, read_only)

    def __repr__(self) -> str:
        return f"VariableFactory[{self.name} {self.dtype} {self.shape} {self.replica_grouping!r}]"


@contextlib.contextmanager
def _items_kept(factory: VariableFactory) -> Iterator[None]:
    """Let items that are taken in a block that fails be the next ones again; others are not held beyond it."""
    before, taken = factory.data_iter, list[Any]()

    def noted(item: Any) -> Any:
        taken.append(item)
        return item

    factory.data_iter = map(noted, before)
    try:
        yield
    except BaseException:
        factory.data_iter = itertools.chain(taken, before)
        raise
    factory.data_iter = before


@public
class NamedVariableFactories(DotTree[VariableFactory]):
    """A tree of factories."""

    _is_named = True

    @transactional
    def init(
        self,
        prefix: str | None = None,
        empty: bool = False,
        memmap_dir: str | os.PathLike[str] | None = None,
        read_only_if_exists: bool = False,
    ) -> NamedVariables:
        """A variable for each factory, named by its key; made in the order of sorted keys.

        Args:
            prefix: goes before the names, with a dot.
            empty: variables start as zeros.
            memmap_dir: folder of files that hold their data.
            read_only_if_exists: open files that exist for reading only.
        Returns:
            The variables, with the same keys.
        Raises:
            StopIteration: a factory has no more items; no variable was made.
        """
        prefix = None if prefix is None else read_text("init: prefix", prefix)
        return self._make(
            prefix,
            lambda name, f: f._data(name, empty, memmap_dir, read_only_if_exists),
            lambda _, f, data, name: f._variable(data, name),
        )

    @transactional
    def init_remote(
        self,
        buffers: DotTree[RemoteBuffer],
        entry: int = 0,
        prefix: str | None = None,
        empty: bool = False,
        memmap_dir: str | os.PathLike[str] | None = None,
        read_only_if_exists: bool = False,
    ) -> NamedVariables:
        """As ``init``, with each variable in an entry of the buffer of the same key.

        Args:
            buffers: the buffers.
            entry: number of the entry.
            prefix: as for ``init``.
            empty: as for ``init``.
            memmap_dir: as for ``init``.
            read_only_if_exists: as for ``init``.
        Raises:
            KeyError: a factory has no buffer; nothing was made.
        """
        read_a("init_remote: buffers", buffers, DotTree)
        missing = [key for key in self.keys_flat() if key not in buffers]
        if missing:
            raise UnknownNameError(
                f"init_remote: no buffer for {shown(missing[0])}, got {shown(buffers.keys_flat())}, "
                "expected a buffer for each variable"
            )
        prefix = None if prefix is None else read_text("init_remote: prefix", prefix)
        return self._make(
            prefix,
            lambda name, f: f._data(name, empty, memmap_dir, read_only_if_exists),
            lambda key, f, data, name: f._remote_variable(data, buffers[key], entry, name),
        )

    def init_zero(self) -> NamedTensors:
        """Tensors of the current graph, no variables: of zeros, sharded where the factory is."""
        return self._init("zero")

    def init_undef(self) -> NamedTensors:
        """As ``init_zero``, with any contents, others on each replica."""
        return self._init("undef")

    @property
    def replica_groupings(self) -> NamedReplicaGrouping:
        """The grouping of each factory."""
        return NamedReplicaGrouping.from_dict(
            {key: f.replica_grouping for key, f in self._factories().items()}
        )

    @transactional
    def _init(self, init_type: Any) -> NamedTensors:
        return NamedTensors.from_dict(
            {
                key: ops.init(f.shape, f.dtype, f.name, init_type, f.meta_shape)
                for key, f in self._factories().items()
            }
        )

    def _factories(self) -> dict[str, VariableFactory]:
        """Leaves by dotted key.

        Raises:
            ArgumentTypeError: one of them, of a branch of another class, is not a factory.
        """
        return {
            key: read_a(f"NamedVariableFactories: {key!r}", leaf, VariableFactory)
            for key, leaf in self.to_dict().items()
        }

    def _make(
        self,
        prefix: str | None,
        read: Callable[[str, VariableFactory], HostTensor],
        make: Callable[[str, VariableFactory, HostTensor, str], Variable],
    ) -> NamedVariables:
        # All data first, so that nothing is made when a factory has run out; each array is let go once it is used.
        names = {key: _prefixed(prefix, key) for key in self.keys_flat()}
        factories, made = self._factories(), {}
        with contextlib.ExitStack() as items:
            for factory in factories.values():
                items.enter_context(_items_kept(factory))
            todo = collections.deque([(key, f, read(names[key], f)) for key, f in sorted(factories.items())])
            while todo:
                key, factory, data = todo.popleft()
                made[key] = make(key, factory, data, names[key])
                keep_key(made[key], names[key])
        return NamedVariables.from_dict({key: made[key] for key in self.keys_flat()})


@public
@transactional
def add_variable_input(
    name: str,
    data_iter: DataIter,
    dtype: dtypes.dtype | None = None,
    by_ref: bool = False,
    replica_grouping: ReplicaGrouping | None = None,
    *,
    replica_group: ReplicaGrouping | None = None,
) -> tuple[Tensor, VariableFactory]:
    """A new input of the current graph and the factory of its variables.

    Args:
        name: name of both.
        data_iter: as for ``VariableFactory``.
        dtype: as for ``VariableFactory``.
        by_ref: the input is by reference.
        replica_grouping: as for ``VariableFactory``.
        replica_group: another name of ``replica_grouping``.
    """
    factory = VariableFactory(data_iter, dtype, name, by_ref, replica_grouping, replica_group=replica_group)
    return factory.create_input(), factory


@public
@transactional
def add_replica_sharded_variable_input(
    name: str,
    data_iter: DataIter,
    dtype: dtypes.dtype | None = None,
    by_ref: bool = False,
    replica_grouping: ReplicaGrouping | None = None,
    shard_over: int | None = None,
    *,
    replica_group: ReplicaGrouping | None = None,
) -> tuple[Tensor, VariableFactory]:
    """As ``add_variable_input``, for a part of the value on each of ``shard_over`` members of a group.

    Args:
        name: name of both.
        data_iter: as for ``VariableFactory``; items are whole values.
        dtype: as for ``VariableFactory``.
        by_ref: the input is by reference.
        replica_grouping: as for ``VariableFactory``.
        shard_over: number of parts. Default: the group size, of groups without a stride that of ``const_rg``.
        replica_group: another name of ``replica_grouping``.
    Returns:
        An input of shape ``(ceil(elements / shard_over),)`` with the meta shape of the value; and the factory.
    """
    if shard_over is None:
        given = replica_group if replica_grouping is None else replica_grouping
        group = read_group("add_replica_sharded_variable_input", given, "replica_grouping")
        shard_over = group.const_rg.group_size
    factory = VariableFactory(
        data_iter, dtype, name, by_ref, replica_grouping, shard_over, replica_group=replica_group
    )
    return factory.create_input(), factory


def _prefixed(prefix: str | None, key: str) -> str:
    return f"{prefix}.{key}" if prefix and key else prefix or key


def _items(what: str, data_iter: Any) -> Iterator[Any]:
    if callable(data_iter):
        try:
            data_iter()
        except Exception as error:
            raise AttributeValueError(
                f"{what}: data_iter fails, got {type(error).__name__}: {' '.join(str(error).split())}"
            ) from error
        return (data_iter() for _ in itertools.count())
    if _is_array(data_iter):
        raise AttributeValueError(
            f"{what}: data_iter is not a function or iterable but an array, got {shown(data_iter)}, expected "
            "`lambda: array` for a value, or `iter(array)` for a value a row"
        )
    if isinstance(data_iter, str) or not isinstance(data_iter, Iterable):
        raise AttributeValueError(f"{what}: data_iter is not a function or iterable, got {shown(data_iter)}")
    try:
        return iter(data_iter)
    except Exception:  # of its own __iter__
        raise AttributeValueError(
            f"{what}: data_iter is not a function or iterable, got {shown(data_iter)}"
        ) from None


def _is_array(data: Any) -> bool:
    if isinstance(data, Iterator):
        return False
    marks = ("__array__", "__array_interface__", "__dlpack__")
    return isinstance(data, (memoryview, bytes, bytearray)) or any(hasattr(data, mark) for mark in marks)


def _array(what: str, item: Any) -> Any:
    if not hasattr(item, "shape") or not hasattr(item, "dtype"):
        item = as_array(f"{what}: an item of data_iter", item)
    if item.dtype == object or getattr(item.dtype, "kind", "f") in "USO":
        raise ArgumentTypeError(f"{what}: an item of data_iter is not an array of numbers, got {shown(item)}")
    return item
