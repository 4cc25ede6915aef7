"""Tensors of a program: handles with types, names and operators; they hold no data."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NoReturn, Self

import numpy as np

from popsr import _core, dtypes
from popsr._program.building.append import Inputs, append
from popsr._program.building.indexing import index
from popsr._program.building.location import describe_location
from popsr._program.building.placement import ipu_copy_attributes, location_of, place_of
from popsr._program.building.transaction import transactional
from popsr._program.state import _context
from popsr._program.tensor_handle import TensorHandle
from popsr._program.tensor_spec import TensorSpec
from popsr._program.typing_ import NewAliasAnnotation
from popsr._program.variables.constants import add_constant, as_operand
from popsr._support.extensions import member
from popsr._support.host.arguments import read_ints, read_ipu, read_shape
from popsr._support.text.entry_points import leave, mark, public, public_call
from popsr._support.text.shown import shown, shown_items
from popsr.errors import ArgumentTypeError, ShapeError
from popsr.replicas import ReplicaGrouping
from popsr.tensorlocation import TensorLocation
from popsr.utils import HostScalarTensor

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from popsr._program.graph import Graph
    from popsr._program.ir import Ir

__all__ = ["Constant", "Tensor", "TensorByRef", "TensorLike", "Variable", "constant"]


def _with_literals(
    operator: Callable[[Tensor, TensorLike], Tensor],
) -> Callable[[Tensor, TensorLike], Tensor]:
    """Decorate an operator whose other operand may become a constant."""
    with_constant = transactional(operator)
    name = operator.__name__

    @mark
    @functools.wraps(operator)
    def call(self: Tensor, other: TensorLike) -> Tensor:
        try:
            if isinstance(other, Tensor):
                return operator(self, other)
            _context.graph_of(f"Tensor.{name}")
            return with_constant(self, other)
        except Exception as error:
            leave(error)
            raise

    return call


@public
class Tensor(TensorHandle):
    """A value of a graph, one on each replica. Made by ops and by functions of this module.

    ``==`` is identity. Operators make ops in the current graph; numbers and arrays become constants of the tensor's
    dtype.
    """

    __slots__ = (
        "__weakref__",
        "_dtype",
        "_graph_id",
        "_id",
        "_meta_shape",
        "_name",
        "_program",
        "_shape",
        "_was",
    )

    _ir: Ir

    _by_type: ClassVar[dict[str, type[Tensor]]] = {}
    """Classes of tensors that have one of their own."""

    _from_pb_tensor = staticmethod(member("compat", "Tensor._from_pb_tensor"))
    _pb_tensor = property(member("compat", "Tensor._pb_tensor"))
    _repr_html_ = member("_tools", "_repr_html_")
    __treescope_repr__ = member("_tools", "__treescope_repr__")

    @public
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
    def name(self) -> str:
        """The id without the graph."""
        scope = self.scope
        return self._name[len(scope) + 1 :] if scope else self._name

    @property
    def scope(self) -> str:
        """Id of the graph; empty for the main graph."""
        return self._graph.id

    @property
    def spec(self) -> TensorSpec:
        """Shape, dtype and meta shape."""
        return TensorSpec(self.shape, self.dtype, self.meta_shape)

    @property
    def ir(self) -> Ir:
        """The program that it belongs to."""
        return self._ir

    @property
    def in_sync_with_ipu(self) -> bool:
        """True if the host copy of variables is what the device holds."""
        return self._ir._in_sync

    @property
    def location_info(self) -> TensorLocation:
        """Location of its value between uses: memory, and sharding over replicas."""
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
        extents = self.shape if shape is None else read_shape("strides", shape)
        strides = []
        step = self.dtype.as_numpy().itemsize
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
        return _op(
            "transpose",
            {"t": self},
            permutation=None if permutation is None else read_ints("transpose", "permutation", permutation),
        )

    @property
    def T_(self) -> Tensor:  # noqa: N802 - as T
        """A view with reversed axes."""
        return self.transpose_()

    def transpose_(self, permutation: Iterable[int] | None = None) -> Tensor:
        """See :func:`popsr.ops.transpose_`."""
        return _op(
            "transpose_",
            {"t": self},
            permutation=None if permutation is None else read_ints("transpose_", "permutation", permutation),
        )

    def reshape(self, shape: Iterable[int]) -> Tensor:
        """See :func:`popsr.ops.reshape`."""
        return _op("reshape", {"t": self}, shape=read_ints("reshape", "shape", shape))

    def flatten(self) -> Tensor:
        """See :func:`popsr.ops.flatten`."""
        return _op("flatten", {"t": self})

    def reshape_(self, shape: Iterable[int]) -> Tensor:
        """See :func:`popsr.ops.reshape_`."""
        return _op("reshape_", {"t": self}, shape=read_ints("reshape_", "shape", shape))

    def flatten_(self) -> Tensor:
        """See :func:`popsr.ops.flatten_`."""
        return _op("flatten_", {"t": self})

    def detach(self) -> Tensor:
        """See :func:`popsr.ops.detach`."""
        return _op("detach", {"t": self})

    def detach_(self) -> Tensor:
        """See :func:`popsr.ops.detach_`."""
        return _op("detach_", {"t": self})

    @transactional
    def diag(self) -> Tensor:
        """The diagonal of a matrix: elements ``[i, i]``, as many as the shorter side has.

        Raises:
            ShapeError: it is not a matrix.
        """
        if self.rank != 2:
            raise ShapeError(f"diag: no matrix, got {shown(self)}, expected 2 dimensions")
        rows, columns = self.shape
        square = self
        if rows > columns:
            square = _op("slice", {"t": self}, start=[0], stop=[columns], step=[1], axis=[0])
        return _op("subsample", {"t": square.flatten()}, strides=[columns + 1])

    def copy_to_ipu(self, destination: int | None, source: int | None = None) -> Tensor:
        """See :func:`popsr.ops.ipu_copy`."""
        return _op("ipu_copy", {"t": self}, **ipu_copy_attributes(self, destination, source))

    def __len__(self) -> int:
        if not self.shape:
            raise ShapeError(
                f"len: a scalar has no length, got {shown(self)}, expected at least one dimension"
            )
        return self.shape[0]

    def __bool__(self) -> bool:
        return True  # as any handle; __len__ must not decide

    # Not an Iterable, as in PopXL; the core puts an error of popsr in the place of Python's, see `_refuse_iteration`.
    __iter__ = None

    # Methods that need a value

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
            return self.shape if func is np.shape else len(self.shape)
        raise _no_value_in_numpy(func, self)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        """An operator between an array and a tensor, which makes an op; other calls of NumPy are refused."""
        name = ufunc.__name__
        is_operator = method == "__call__" and not kwargs and isinstance(inputs[0], (np.ndarray, np.generic))
        if name not in _REFLECTED or not is_operator:
            raise _no_value_in_numpy(ufunc, self)
        found = getattr(self, _REFLECTED[name])(inputs[0])
        return name == "not_equal" if found is NotImplemented else found  # an array is never a tensor

    # Operators

    def _operand(self, other: TensorLike) -> Tensor:
        operand: Tensor = as_operand(other, self.dtype)
        return operand

    @_with_literals
    def __add__(self, other: TensorLike) -> Tensor:
        return _op("add", {"lhs": self, "rhs": self._operand(other)})

    @_with_literals
    def __radd__(self, other: TensorLike) -> Tensor:
        return _op("add", {"lhs": self._operand(other), "rhs": self})

    @transactional
    def __iadd__(self, other: TensorLike) -> Tensor:
        _op("add_", {"lhs": self, "rhs": self._operand(other)})
        return self

    @_with_literals
    def __sub__(self, other: TensorLike) -> Tensor:
        return _op("sub", {"lhs": self, "rhs": self._operand(other)})

    @_with_literals
    def __rsub__(self, other: TensorLike) -> Tensor:
        return _op("sub", {"lhs": self._operand(other), "rhs": self})

    @_with_literals
    def __mul__(self, other: TensorLike) -> Tensor:
        return _op("mul", {"lhs": self, "rhs": self._operand(other)})

    @_with_literals
    def __rmul__(self, other: TensorLike) -> Tensor:
        return _op("mul", {"lhs": self._operand(other), "rhs": self})

    @_with_literals
    def __truediv__(self, other: TensorLike) -> Tensor:
        return _op("div", {"lhs": self, "rhs": self._operand(other)})

    @_with_literals
    def __rtruediv__(self, other: TensorLike) -> Tensor:
        return _op("div", {"lhs": self._operand(other), "rhs": self})

    @_with_literals
    def __mod__(self, other: TensorLike) -> Tensor:
        return _op("fmod", {"lhs": self, "rhs": self._operand(other)})

    @_with_literals
    def __rmod__(self, other: TensorLike) -> Tensor:
        return _op("fmod", {"lhs": self._operand(other), "rhs": self})

    @_with_literals
    def __pow__(self, other: TensorLike) -> Tensor:
        return _op("pow", {"t": self, "e": self._operand(other)})

    @_with_literals
    def __rpow__(self, other: TensorLike) -> Tensor:
        return _op("pow", {"t": self._operand(other), "e": self})

    @_with_literals
    def __matmul__(self, other: TensorLike) -> Tensor:
        return _op("matmul", {"lhs": self, "rhs": self._operand(other)})

    @_with_literals
    def __rmatmul__(self, other: TensorLike) -> Tensor:
        return _op("matmul", {"lhs": self._operand(other), "rhs": self})

    @_with_literals
    def __and__(self, other: TensorLike) -> Tensor:
        return _op("logical_and", {"lhs": self, "rhs": self._operand(other)})

    @_with_literals
    def __rand__(self, other: TensorLike) -> Tensor:
        return _op("logical_and", {"lhs": self._operand(other), "rhs": self})

    @_with_literals
    def __or__(self, other: TensorLike) -> Tensor:
        return _op("logical_or", {"lhs": self, "rhs": self._operand(other)})

    @_with_literals
    def __ror__(self, other: TensorLike) -> Tensor:
        return _op("logical_or", {"lhs": self._operand(other), "rhs": self})

    def __invert__(self) -> Tensor:
        return _op("logical_not", {"t": self})

    def __neg__(self) -> Tensor:
        return _op("negate", {"t": self})

    def __abs__(self) -> Tensor:
        return _op("abs", {"t": self})

    @transactional
    def __getitem__(self, key: int | slice | tuple[Any, ...] | Tensor | list[Any] | NDArray[Any]) -> Tensor:
        part: Tensor = index(self, key)
        return part


TensorHandle._result_type = Tensor


def _op(op: str, inputs: Inputs, /, **attrs: Any) -> Tensor:
    """The output of a new op in the current graph."""
    return append(op, inputs, **attrs)  # type: ignore[no-any-return] # of TensorHandle._result_type


@functools.cache
def _function_names() -> frozenset[str]:
    """Names of functions of ``popsr.ops`` that NumPy has too: ops, and what slices make."""
    return frozenset(schema["name"] for schema in _core.op_schemas()) - {"broadcast_to"} | {"split"}


# Operators of NumPy by what they call, and of tensors if the array is on the left.
_REFLECTED = {
    "add": "__radd__", "subtract": "__rsub__", "multiply": "__rmul__", "divide": "__rtruediv__",
    "remainder": "__rmod__", "power": "__rpow__", "matmul": "__rmatmul__", "bitwise_and": "__rand__",
    "bitwise_or": "__ror__", "less": "__gt__", "greater": "__lt__", "less_equal": "__ge__", "greater_equal": "__le__",
    "equal": "__eq__", "not_equal": "__ne__",
}  # fmt: skip
_ON_THE_HOST = "what session.run returns for a d2h_stream, or session.get_tensor_data(variable)"


def _no_value(what: str, t: Tensor, expected: str) -> ArgumentTypeError:
    """The error about a use of a tensor as if it had a value."""
    error = ArgumentTypeError(
        f"{what}: a tensor has no value while the program is built, got {t!r}, expected {expected}"
    )
    error.add_note(f"at {describe_location()}")
    return error


def _no_value_in_numpy(func: Any, t: Tensor) -> ArgumentTypeError:
    """The error about a function of NumPy that is given a tensor."""
    name = getattr(func, "__name__", "a function")
    ours = f"popsr.ops.{name}, or " if name in _function_names() else ""
    return _no_value(f"numpy.{name}", t, f"{ours}{_ON_THE_HOST}")


def _not_constructible(cls: type[Tensor], got: str) -> ArgumentTypeError:
    return ArgumentTypeError(
        f"{cls.__name__}: cannot be constructed, {got}expected popsr.variable(data), popsr.constant(data), "
        "popsr.graph_input(shape, dtype) or the result of an op"
    )


@public
def _refuse_iteration(t: Tensor) -> NoReturn:
    """Called by the core for ``iter(t)``: a method ``__iter__`` would make tensors Iterables."""
    raise _no_value("iter", t, "parts such as t[0], or ops.split(t, n)")


_core.set_iter(Tensor, _refuse_iteration)


@public
class Variable(Tensor, tensor_type="Variable"):
    """A tensor of the main graph that keeps its value between runs and can be read and written by the host."""

    __slots__ = ()

    _memmap_arr = property(member("compat", "Variable._memmap_arr"))

    @property
    def replica_grouping(self) -> ReplicaGrouping:
        """Groups of replicas that were given the same value."""
        return self._ir._core.variable(self._id).grouping

    @property
    def retrieval_mode(self) -> Literal["one_per_group", "all_replicas"]:
        """Replicas that the host reads: one of each group, or all."""
        return "all_replicas" if self._ir._core.variable(self._id).all_replicas else "one_per_group"

    @property
    def shape_on_replica(self) -> tuple[int, ...]:
        """Shape on one replica."""
        return self.shape

    @property
    def shape_on_host(self) -> tuple[int, ...]:
        """Shape of the host's data: with a leading dimension when there are several groups."""
        groups = self.replica_grouping.num_groups
        return self.shape if groups == 1 else (groups, *self.shape)

    def copy_to_ipu(self, dst: int | None, src: int) -> Tensor:  # type: ignore[override] # as PopXL names them
        """See :func:`popsr.ops.ipu_copy`; where a variable is must be said."""
        return super().copy_to_ipu(dst, read_ipu("copy_to_ipu", "src", src))


@public
class Constant(Tensor, tensor_type="Const"):
    """A tensor whose value never changes."""

    __slots__ = ()

    def copy_to_ipu(self, dst: int | None, src: int) -> Tensor:  # type: ignore[override] # as PopXL names them
        """See :func:`popsr.ops.ipu_copy`; where a constant is must be said."""
        return super().copy_to_ipu(dst, read_ipu("copy_to_ipu", "src", src))


if TYPE_CHECKING:
    TensorByRef = Annotated[Tensor, "by reference"]
else:
    TensorByRef = NewAliasAnnotation("TensorByRef", Tensor)
"""Annotation of a parameter that a graph may modify for its caller."""

TensorLike = Tensor | HostScalarTensor


# Functions


@public_call
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
        dtype: element type. Default: the data's.
        name: its name. Default: "t".
        downcast: without ``dtype``, narrow 64-bit types to 32 bits.
        log2_scale: of floats that become float8: they are multiplied by ``2**log2_scale``. Default: 0.
        nan_on_overflow: of floats that become float8: what is too large becomes NaN, or infinite where the type has
            infinity (default); else the largest float8.
    Raises:
        TypeError: ``data`` is not numeric, or a structured float8 array without ``dtype``.
        RuntimeError: ``log2_scale`` or ``nan_on_overflow`` for another type than float8.
    """
    result: Constant = add_constant(data, dtype, name, downcast, log2_scale, nan_on_overflow)
    return result
