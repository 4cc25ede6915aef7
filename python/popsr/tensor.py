"""Tensors of a program: handles with types, names and operators; they hold no data."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NoReturn, Self

import numpy as np

import popsr
from popsr import _core, dtypes
from popsr._host.arguments import read_dtype, read_flag, read_ints, read_ipu, read_name, read_shape
from popsr._host.types import HostTensor, ScalarType, host_tensor_types
from popsr._program.handles import Handle
from popsr._program.location import describe_location
from popsr._program.placement import location_of, place_of
from popsr._program.popart_names import with_popart_names
from popsr._program.tensor_spec import TensorSpec
from popsr._program.transaction import transactional
from popsr._text.shown import shown, shown_items
from popsr.context import _context
from popsr.errors import ArgumentTypeError, DTypeError, GraphError, ShapeError
from popsr.typing_ import NewAliasAnnotation
from popsr.utils import HostScalarTensor, host_data, is_mapped, mapped_data

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from popsr.graph import Graph
    from popsr.ir import Ir
    from popsr.replicas import ReplicaGrouping
    from popsr.tensorlocation import TensorLocation

__all__ = [
    "Constant",
    "HostScalarTensor",
    "HostTensor",
    "ScalarType",
    "Tensor",
    "TensorByRef",
    "TensorLike",
    "TensorSpec",
    "Variable",
    "constant",
    "graph_input",
    "graph_output",
    "host_tensor_types",
    "remote_replica_sharded_variable",
    "remote_variable",
    "replica_sharded_buffer",
    "replica_sharded_variable",
    "variable",
]


def _with_literals(
    operator: Callable[[Tensor, TensorLike], Tensor],
) -> Callable[[Tensor, TensorLike], Tensor]:
    """Decorate an operator whose other operand may become a constant."""
    with_constant = transactional(operator)
    name = operator.__name__

    @functools.wraps(operator)
    def call(self: Tensor, other: TensorLike) -> Tensor:
        if isinstance(other, Tensor):
            return operator(self, other)
        _context.graph_of(f"Tensor.{name}")
        return with_constant(self, other)

    return call


@with_popart_names
class Tensor(Handle):
    """A value of a graph, one on each replica. Made by ops and by functions of this module.

    ``==`` is identity. Operators make ops in the current graph; numbers and arrays become constants of the tensor's
    dtype.
    """

    __slots__ = ("__weakref__", "_dtype", "_graph_id", "_id", "_ir", "_meta_shape", "_name", "_shape")
    __array_ufunc__ = None  # so that `ndarray + tensor` reaches __radd__

    _ir: Ir
    _id: int
    _graph_id: int
    _name: str
    _dtype: dtypes.dtype
    _shape: tuple[int, ...]
    _meta_shape: tuple[int, ...]

    _by_type: ClassVar[dict[str, type[Tensor]]] = {}
    """Classes of tensors that have one of their own."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Tensors come from functions.

        Raises:
            ArgumentTypeError: there are arguments; without any, ``__init__`` raises it.
        """
        if args or kwargs:
            raise _not_constructible(cls, f"got {shown_items([*args, *kwargs.values()])}, ")
        return super().__new__(cls)

    def __init__(self) -> None:
        raise _not_constructible(type(self), "")

    def __init_subclass__(cls, tensor_type: str | None = None, **kwargs: Any) -> None:
        """Register a subclass.

        Args:
            tensor_type: which tensors are of this class: "Variable" or "Const". Default: none.
            **kwargs: of other bases.
        """
        super().__init_subclass__(**kwargs)
        _core.set_iter(cls, _refuse_iteration)
        if tensor_type is not None:
            cls._by_type[tensor_type] = cls

    @property
    def _graph(self) -> Graph:
        return self._ir._graph(self._graph_id)

    @property
    def id(self) -> str:
        """Full name, unique in the Ir: graph, name scopes, name."""
        return self._name

    @property
    def name(self) -> str:
        """The id without the graph."""
        scope = self.scope
        return self._name[len(scope) + 1 :] if scope else self._name

    @property
    def scope(self) -> str:
        """Id of the graph; empty for the main graph."""
        return self._graph.id

    @property
    def dtype(self) -> dtypes.dtype:
        """Element type."""
        return self._dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape on one replica."""
        return self._shape

    @property
    def meta_shape(self) -> tuple[int, ...]:
        """Shape before sharding; empty when it is no shard."""
        return self._meta_shape

    @property
    def spec(self) -> TensorSpec:
        """Shape, dtype and meta shape."""
        return TensorSpec(self._shape, self._dtype, self._meta_shape)

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self._shape)

    @property
    def nelms(self) -> int:
        """Number of elements on one replica."""
        count = 1
        for extent in self._shape:
            count *= extent
        return count

    @property
    def ir(self) -> Ir:
        """The program that it belongs to."""
        return self._ir

    @property
    def in_sync_with_ipu(self) -> bool:
        """Is the host copy of variables what the device holds?"""
        return self._ir._in_sync

    @property
    def location_info(self) -> TensorLocation:
        """Where its value is kept between uses, and whether each replica has a part only."""
        return location_of(self)

    @property
    def ipu(self) -> int:
        """Device of the replica: where it is made; else, for a graph's input, what calls pass; else where it is used.

        Raises:
            UndefinedValue: there is none of these.
        """
        return place_of("ipu", self)[0]

    @property
    def tile_set(self) -> Literal["compute", "io"]:
        """Tiles of the device, known where ``ipu`` is.

        Raises:
            UndefinedValue: as for ``ipu``.
        """
        return place_of("tile_set", self)[1]

    def strides(self, shape: Iterable[int] | None = None) -> tuple[int, ...]:
        """Strides in bytes of a C-contiguous array of this dtype.

        Args:
            shape: the array's shape. Default: the tensor's.
        """
        extents = self._shape if shape is None else read_shape("strides", shape)
        strides = []
        step = self._dtype.as_numpy().itemsize
        for extent in reversed(extents):
            strides.append(step)
            step *= extent
        return tuple(reversed(strides))

    @property
    def T(self) -> Tensor:  # noqa: N802 - NumPy's name
        """With reversed axes."""
        return self.transpose()

    def transpose(self, permutation: Iterable[int] | None = None) -> Tensor:
        """See :func:`popsr.ops.transpose`."""
        return popsr.ops.transpose(
            self, None if permutation is None else read_ints("transpose", "permutation", permutation)
        )

    @property
    def T_(self) -> Tensor:  # noqa: N802 - as T
        """A view with reversed axes."""
        return self.transpose_()

    def transpose_(self, permutation: Iterable[int] | None = None) -> Tensor:
        """See :func:`popsr.ops.transpose_`."""
        return popsr.ops.transpose_(
            self, None if permutation is None else read_ints("transpose_", "permutation", permutation)
        )

    def reshape(self, shape: Iterable[int]) -> Tensor:
        """See :func:`popsr.ops.reshape`."""
        return popsr.ops.reshape(self, read_ints("reshape", "shape", shape))

    def flatten(self) -> Tensor:
        """See :func:`popsr.ops.flatten`."""
        return popsr.ops.flatten(self)

    def reshape_(self, shape: Iterable[int]) -> Tensor:
        """See :func:`popsr.ops.reshape_`."""
        return popsr.ops.reshape_(self, read_ints("reshape_", "shape", shape))

    def flatten_(self) -> Tensor:
        """See :func:`popsr.ops.flatten_`."""
        return popsr.ops.flatten_(self)

    def detach(self) -> Tensor:
        """See :func:`popsr.ops.detach`."""
        return popsr.ops.detach(self)

    def detach_(self) -> Tensor:
        """See :func:`popsr.ops.detach_`."""
        return popsr.ops.detach_(self)

    @transactional
    def diag(self) -> Tensor:
        """The diagonal of a matrix: elements ``[i, i]``, as many as the shorter side has.

        Raises:
            ShapeError: it is no matrix.
        """
        if self.rank != 2:
            raise ShapeError(f"diag: no matrix, got {shown(self)}, expected 2 dimensions")
        rows, columns = self._shape
        square = popsr.ops.slice(self, 0, columns, axis=0) if rows > columns else self
        return popsr.ops.subsample(square.flatten(), columns + 1)

    def copy_to_ipu(self, destination: int, source: int | None = None) -> Tensor:
        """See :func:`popsr.ops.ipu_copy`."""
        return popsr.ops.ipu_copy(self, destination, source)

    def __repr__(self) -> str:
        return f"{type(self).__name__}[{self._name} {self._dtype} {self._shape}]"

    def __len__(self) -> int:
        if not self._shape:
            raise ShapeError(f"len: a scalar has no length, got {shown(self)}")
        return self._shape[0]

    def __bool__(self) -> bool:
        return True  # as any handle; __len__ must not decide

    # Not an Iterable, as in PopXL; the core puts an error of popsr in the place of Python's, see `_refuse_iteration`.
    __iter__ = None

    # --- what needs a value -----------------------------------------------------------------------------------------

    def __contains__(self, value: object) -> bool:
        raise _no_value("in", self, "ops.equal(t, x)")

    def __lt__(self, other: TensorLike) -> Tensor:
        raise _no_value("<", self, "ops.greater(b, a), and ops.where or ops.conditional")

    def __gt__(self, other: TensorLike) -> Tensor:
        raise _no_value(">", self, "ops.greater(a, b), and ops.where or ops.conditional")

    def __le__(self, other: TensorLike) -> Tensor:
        raise _no_value("<=", self, "ops.logical_not(ops.greater(a, b)), and ops.where or ops.conditional")

    def __ge__(self, other: TensorLike) -> Tensor:
        raise _no_value(">=", self, "ops.logical_not(ops.greater(b, a)), and ops.where or ops.conditional")

    def __float__(self) -> float:
        raise _no_value("float", self, _ON_THE_HOST)

    def __int__(self) -> int:
        raise _no_value("int", self, _ON_THE_HOST)

    def __array__(self, *args: object, **kwargs: object) -> NDArray[Any]:
        raise _no_value("numpy.asarray", self, _ON_THE_HOST)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        del types, args, kwargs
        if func in (np.shape, np.ndim):
            return self._shape if func is np.shape else len(self._shape)
        name = getattr(func, "__name__", "a function")
        ours = f"popsr.ops.{name}, or " if name in popsr.ops.__all__ else ""
        raise _no_value(f"numpy.{name}", self, f"{ours}{_ON_THE_HOST}")

    # --- operators --------------------------------------------------------------------------------------------------

    def _operand(self, other: TensorLike) -> Tensor:
        return _as_operand(other, self._dtype)

    @_with_literals
    def __add__(self, other: TensorLike) -> Tensor:
        return popsr.ops.add(self, self._operand(other))

    @_with_literals
    def __radd__(self, other: TensorLike) -> Tensor:
        return popsr.ops.add(self._operand(other), self)

    @transactional
    def __iadd__(self, other: TensorLike) -> Tensor:
        popsr.ops.add_(self, self._operand(other))
        return self

    @_with_literals
    def __sub__(self, other: TensorLike) -> Tensor:
        return popsr.ops.sub(self, self._operand(other))

    @_with_literals
    def __rsub__(self, other: TensorLike) -> Tensor:
        return popsr.ops.sub(self._operand(other), self)

    @_with_literals
    def __mul__(self, other: TensorLike) -> Tensor:
        return popsr.ops.mul(self, self._operand(other))

    @_with_literals
    def __rmul__(self, other: TensorLike) -> Tensor:
        return popsr.ops.mul(self._operand(other), self)

    @_with_literals
    def __truediv__(self, other: TensorLike) -> Tensor:
        return popsr.ops.div(self, self._operand(other))

    @_with_literals
    def __rtruediv__(self, other: TensorLike) -> Tensor:
        return popsr.ops.div(self._operand(other), self)

    @_with_literals
    def __mod__(self, other: TensorLike) -> Tensor:
        return popsr.ops.fmod(self, self._operand(other))

    @_with_literals
    def __rmod__(self, other: TensorLike) -> Tensor:
        return popsr.ops.fmod(self._operand(other), self)

    @_with_literals
    def __pow__(self, other: TensorLike) -> Tensor:
        return popsr.ops.pow(self, self._operand(other))

    @_with_literals
    def __rpow__(self, other: TensorLike) -> Tensor:
        return popsr.ops.pow(self._operand(other), self)

    @_with_literals
    def __matmul__(self, other: TensorLike) -> Tensor:
        return popsr.ops.matmul(self, self._operand(other))

    @_with_literals
    def __rmatmul__(self, other: TensorLike) -> Tensor:
        return popsr.ops.matmul(self._operand(other), self)

    @_with_literals
    def __and__(self, other: TensorLike) -> Tensor:
        return popsr.ops.logical_and(self, self._operand(other))

    @_with_literals
    def __rand__(self, other: TensorLike) -> Tensor:
        return popsr.ops.logical_and(self._operand(other), self)

    @_with_literals
    def __or__(self, other: TensorLike) -> Tensor:
        return popsr.ops.logical_or(self, self._operand(other))

    @_with_literals
    def __ror__(self, other: TensorLike) -> Tensor:
        return popsr.ops.logical_or(self._operand(other), self)

    def __invert__(self) -> Tensor:
        return popsr.ops.logical_not(self)

    def __neg__(self) -> Tensor:
        return popsr.ops.negate(self)

    def __abs__(self) -> Tensor:
        return popsr.ops.abs(self)

    @transactional
    def __getitem__(self, key: int | slice | tuple[Any, ...] | Tensor | list[Any] | NDArray[Any]) -> Tensor:
        from popsr._program.indexing import index

        return index(self, key)


_ON_THE_HOST = "what session.run returns for a d2h_stream, or session.get_tensor_data(variable)"


def _no_value(what: str, t: Tensor, expected: str) -> ArgumentTypeError:
    """The error about a use of a tensor as if it had a value."""
    error = ArgumentTypeError(
        f"{what}: a tensor has no value while the program is built, got {t!r}, expected {expected}"
    )
    error.add_note(f"at {describe_location()}")
    return error


def _not_constructible(cls: type[Tensor], got: str) -> ArgumentTypeError:
    return ArgumentTypeError(
        f"{cls.__name__}: cannot be constructed, {got}expected popsr.variable(data), popsr.constant(data), "
        "popsr.graph_input(shape, dtype) or the result of an op"
    )


def _refuse_iteration(t: Tensor) -> NoReturn:
    """What the core calls for ``iter(t)``: a method ``__iter__`` would make tensors Iterables."""
    raise _no_value("iter", t, "parts such as t[0], or ops.split(t, n)")


_core.set_iter(Tensor, _refuse_iteration)


@with_popart_names
class Variable(Tensor, tensor_type="Variable"):
    """A tensor of the main graph that keeps its value between runs and can be read and written by the host."""

    __slots__ = ()

    @property
    def replica_grouping(self) -> ReplicaGrouping:
        """Groups of replicas that were given the same value."""
        grouping: ReplicaGrouping = self._ir._core.variable(self._id)[0]
        return grouping

    @property
    def retrieval_mode(self) -> Literal["one_per_group", "all_replicas"]:
        """Does the host read one replica of each group, or all?"""
        return "all_replicas" if self._ir._core.variable(self._id)[1] else "one_per_group"

    @property
    def shape_on_replica(self) -> tuple[int, ...]:
        """Shape on one replica."""
        return self._shape

    @property
    def shape_on_host(self) -> tuple[int, ...]:
        """Shape of the host's data: with a leading dimension when there are several groups."""
        groups = self.replica_grouping.num_groups
        return self._shape if groups == 1 else (groups, *self._shape)

    def copy_to_ipu(self, dst: int, src: int) -> Tensor:  # type: ignore[override] # as PopXL names them
        """See :func:`popsr.ops.ipu_copy`; where a variable is must be said."""
        return super().copy_to_ipu(dst, read_ipu("copy_to_ipu", "src", src))


class Constant(Tensor, tensor_type="Const"):
    """A tensor whose value never changes."""

    __slots__ = ()

    def copy_to_ipu(self, dst: int, src: int) -> Tensor:  # type: ignore[override] # as PopXL names them
        """See :func:`popsr.ops.ipu_copy`; where a constant is must be said."""
        return super().copy_to_ipu(dst, read_ipu("copy_to_ipu", "src", src))


if TYPE_CHECKING:
    TensorByRef = Annotated[Tensor, "by reference"]
else:
    TensorByRef = NewAliasAnnotation("TensorByRef", Tensor)
"""Annotation of a parameter that a graph may modify for its caller."""

TensorLike = Tensor | HostScalarTensor


def _as_operand(value: TensorLike, dtype: dtypes.dtype) -> Tensor:
    if isinstance(value, Tensor):
        return value
    _context.graph_of("operand")
    data = host_data("operand", value, dtype)
    if data.size == 0:
        raise ShapeError(f"operand: it is empty, got shape {data.shape}, expected at least one element")
    return constant(data, dtype)


# --- functions ------------------------------------------------------------------------------------------------------


@transactional
def constant(
    data: HostScalarTensor,
    dtype: dtypes.dtype | None = None,
    name: str | None = None,
    downcast: bool = True,
    log2_scale: int | None = None,
    nan_on_overflow: bool | None = None,
) -> Constant:
    """A constant of the current graph, the same on all replicas.

    Args:
        data: its value.
        dtype: element type. Default: that of the data.
        name: its name. Default: "t".
        downcast: without ``dtype``, narrow 64-bit types to 32 bits.
        log2_scale: of floats that become float8: they are multiplied by ``2**log2_scale``. Default: 0.
        nan_on_overflow: of floats that become float8: what is too large becomes NaN, or infinite where the type has
            infinity (default); else the largest float8.
    Raises:
        TypeError: ``data`` is not numeric, or a structured float8 array without ``dtype``.
        RuntimeError: ``log2_scale`` or ``nan_on_overflow`` for another type than float8.
    """
    graph = _context.graph_of("constant")
    ir = graph.ir
    name = read_name("constant", name)
    if dtype is None and getattr(getattr(data, "dtype", None), "names", None) is not None:
        raise DTypeError(
            f"constant {shown(name)}: structured data without dtype, got {data.dtype}, expected a dtype"
        )
    if is_mapped(data):
        array = mapped_data(data, dtype, downcast)
    else:
        array = host_data(f"constant {name!r}", data, dtype, downcast, False, log2_scale, nan_on_overflow)
    scoped = _context.scoped(name)
    dtype_name = dtypes.dtype.as_dtype(array.dtype).name
    result = ir._tensor(ir._core.add_constant(graph._id, scoped, dtype_name, list(array.shape), array))
    assert isinstance(result, Constant)
    return result


@transactional
def graph_input(
    shape: Iterable[int],
    dtype: dtypes.dtype,
    name: str | None = None,
    by_ref: bool = False,
    meta_shape: Iterable[int] | None = None,
) -> Tensor:
    """A new input of the current graph.

    Args:
        shape: shape on one replica.
        dtype: element type.
        name: its name. Default: "t".
        by_ref: in-place writes in the graph also happen to the caller's tensor.
        meta_shape: shape before sharding, if it is a shard.
    """
    graph = _context.graph_of("graph_input")
    if graph._id == 0:
        raise GraphError("graph_input: the main graph has no inputs, expected another graph")
    id_ = graph.ir._core.add_input(
        graph._id,
        _context.scoped(read_name("graph_input", name)),
        read_dtype("graph_input", dtype).name,
        list(read_shape("graph_input", shape)),
        list(() if meta_shape is None else read_shape("graph_input", meta_shape, "meta_shape")),
        read_flag("graph_input: by_ref", by_ref),
    )
    return graph.ir._tensor(id_)


def graph_output(t: Tensor) -> None:
    """Make ``t`` the next output of the current graph.

    Raises:
        GraphError: it is of another graph.
    """
    graph = _context.graph_of("graph_output")
    if not isinstance(t, Tensor):
        raise ArgumentTypeError(f"graph_output: t is not a Tensor, got {shown(t)}")
    if t._ir is not graph.ir:
        raise GraphError(
            f"graph_output: tensor of another Ir, got '{t.id}' of {shown(t._graph)}, expected a tensor of "
            f"{shown(graph)}"
        )
    graph.ir._core.add_output(graph._id, t._id)


from popsr._program.remote_variables import (  # noqa: E402 - these need the classes above
    remote_replica_sharded_variable,
    remote_variable,
    replica_sharded_buffer,
    replica_sharded_variable,
)
from popsr._program.variables import variable  # noqa: E402
