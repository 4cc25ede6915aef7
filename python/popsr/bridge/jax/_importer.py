"""From the equations of a jaxpr to ops."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from popsr import dtypes, ops
from popsr._program.building.location import describe_location
from popsr._program.context import gcg
from popsr._program.tensor import Tensor
from popsr.bridge._step.builder import StepBuilder
from popsr.bridge._step.places import Place
from popsr.bridge.jax._framework import the_jax
from popsr.bridge.jax._known.folding import FOLDS, MAX_FOLDED, Fold
from popsr.bridge.jax._known.per_replica import MAX_ROWS, PerReplica, is_known, known_rows, tensor_of
from popsr.bridge.jax._locations import is_of_jax, is_transposed, scope_of, user_line
from popsr.bridge.jax._mesh import Spread, numbered
from popsr.bridge.jax._refs import is_ref, makes_refs, with_values_inside
from popsr.bridge.jax._rules.calls import name_of
from popsr.bridge.jax._rules.contracts import Contracts
from popsr.bridge.jax._rules.opaque import depends_on_operands_alone, is_silent
from popsr.bridge.jax._rules.table import (
    ANALYSED,
    RULES,
    Aval,
    Equation,
    NotSupportedError,
    Value,
    dtype_of,
    make_constant,
    stand_in_dtype,
    stored_dtype,
)
from popsr.bridge.jax._sizes.cuts import Cuts
from popsr.bridge.jax._sizes.sharded import Sharded
from popsr.errors import DTypeError, ShapeError, UnsupportedError

__all__ = ["Importer", "aval_of", "closed", "has_dtype"]

_MAX_SHARED = 64


class Importer:
    """Reads jaxprs into a program.

    A value is a tensor, an array that is known while the step is read (literals, and what follows from them by integer
    arithmetic and data movement), or the parts of an array of which each replica holds one.

    Args:
        builder: the step that is being read.
        spread: the axes of the mesh.
        contracts: what the user declares of ops that cannot be read.
    """

    def __init__(self, builder: StepBuilder, spread: Spread, contracts: Contracts) -> None:
        """Without any equation read."""
        self.builder = builder
        self.spread = spread
        self.contracts = contracts
        self.cuts = Cuts(builder, spread)
        self._constants: dict[tuple[object, ...], Tensor] = {}
        self._known: dict[tuple[int, int], tuple[Value, Tensor]] = {}  # by identity, while the array lives
        self._line: Place | None = None
        self._caller: Place | None = None
        self._scope: tuple[str, ...] = ()

    # Values

    def constant(self, value: NDArray[Any], dtype: dtypes.dtype) -> Tensor:
        """A constant of the current graph; small ones are made once."""
        value = np.ascontiguousarray(value).reshape(np.shape(value))
        if value.size > _MAX_SHARED:
            return make_constant(value, dtype)
        key = (gcg()._id, dtype, value.shape, value.dtype, value.tobytes())
        if key not in self._constants:
            self._constants[key] = make_constant(value, dtype)
        return self._constants[key]

    def tensor(self, value: Value) -> Tensor:
        """A value as a tensor of the current graph."""
        if isinstance(value, Tensor):
            return value
        if isinstance(value, Sharded):
            return value.whole(self.spread)
        key = (gcg()._id, id(value))
        if key not in self._known:
            kind = dtype_of(value.dtype)
            if isinstance(value, PerReplica):
                made = tensor_of(value, lambda table: self.constant(table, kind))
            else:
                made = self.constant(value, kind)
            self._known[key] = value, made
        return self._known[key][1]

    def stand_in(self, value: Value) -> Tensor:
        """A value as a tensor that replicas agree on where they agree on the value, whatever its element type is."""
        if not is_known(value) or has_dtype(value.dtype):
            return self.tensor(value)
        labels = value.labels if isinstance(value, PerReplica) else (0,) * self.spread.replicas
        rows = [np.full(value.shape, number, np.float32) for number in range(max(labels) + 1)]
        return self.tensor(known_rows(rows, labels))

    # Equations

    def run(self, jaxpr: Any, values: Sequence[Value], consts: Sequence[Value] = ()) -> list[Value]:
        """Read the equations of an open jaxpr that its results need.

        Args:
            jaxpr: the jaxpr.
            values: its arguments.
            consts: its constants.
        Returns:
            Its results.
        """
        if makes_refs(jaxpr):
            jaxpr, first = with_values_inside(jaxpr, consts)
            values, consts = [*first, *values], ()
        env: dict[Any, Value] = dict(zip(jaxpr.constvars, consts, strict=True))
        env.update(zip(jaxpr.invars, values, strict=True))

        def read(atom: Any) -> Value:
            if hasattr(atom, "val"):
                return np.asarray(atom.val, dtype=aval_of(atom.aval).dtype)
            return env[atom]

        for equation in needed(jaxpr):
            line = self._caller or user_line(equation) or self._line
            before, self._line = (self._line, self._scope), line
            self._scope = (*self._scope, *scope_of(equation))
            backward = self.builder.derivative() if is_transposed(equation) else contextlib.nullcontext()
            with self.builder.at(line, self._scope), backward:
                results = self._equation(equation, tuple(read(atom) for atom in equation.invars))
            self._line, self._scope = before
            env.update(zip(equation.outvars, results, strict=True))
        return [read(atom) for atom in jaxpr.outvars]

    def closed(self, jaxpr: Any, values: Sequence[Value]) -> list[Value]:
        """``run`` of a jaxpr with or without constants of its own, as part of the current equation."""
        inner, consts = closed(jaxpr)
        with self._called(inner):
            return self.run(inner, values, consts)

    @contextlib.contextmanager
    def _called(self, jaxpr: Any) -> Iterator[None]:
        """Equations of a function of jax are at the line that calls it, also when another line called it first."""
        before = self._caller
        self._caller = (before or self._line) if is_of_jax(jaxpr) else None
        yield
        self._caller = before

    def _equation(self, equation: Any, values: tuple[Value, ...]) -> list[Value]:
        name = name_of(equation)
        try:
            results = tuple(aval_of(var.aval) for var in equation.outvars)
            operands = tuple(aval_of(var.aval) for var in equation.invars)
        except NotSupportedError as error:
            return self._gap(equation, values, f"{name} ({error})")
        if results and all(aval.size == 0 for aval in results):
            return [np.zeros(aval.shape, aval.dtype) for aval in results]
        keys = tuple(is_key(var.aval) for var in equation.invars)
        made = Equation(name, equation.params, values, operands, results, self, keys)
        try:
            return self._folded(made) or self._emitted(made)
        except NotSupportedError as error:
            return self._gap(equation, values, f"{name} ({error})")
        except (DTypeError, ShapeError, UnsupportedError) as error:
            return self._gap(equation, values, f"{name} ({str(error).partition(': ')[2]})")

    def _folded(self, equation: Equation) -> list[Value] | None:
        """Results that are known because all operands are."""
        fold = FOLDS.get(equation.primitive)
        if (
            fold is None
            or sum(aval.size for aval in equation.results) > MAX_FOLDED
            or any(equation.key_operands)
        ):
            return None
        if not all(map(is_known, equation.values)):
            return None
        varying = [value for value in equation.values if isinstance(value, PerReplica)]
        if not varying:
            return _fold(fold, equation, equation.values)
        labels = numbered([*zip(*(value.labels for value in varying), strict=True)])
        rows = []
        for number in range(min(max(labels) + 1, MAX_ROWS + 1)):
            replica = labels.index(number)
            found = _fold(
                fold,
                equation,
                [v.rows[v.labels[replica]] if isinstance(v, PerReplica) else v for v in equation.values],
            )
            if found is None or number == MAX_ROWS:
                return None
            rows.append(found)
        return [known_rows(each, labels) for each in zip(*rows, strict=True)]

    def _emitted(self, equation: Equation) -> list[Value]:
        """Results of the ops that a rule appends."""
        found = RULES.get(equation.primitive)
        if found is None:
            raise NotSupportedError("no rule")
        if found.raw:
            results = found.function(equation)
        else:
            if (
                any(isinstance(value, np.ndarray) and value.size == 0 for value in equation.values)
                and equation.primitive != "concatenate"
            ):
                raise NotSupportedError("an empty operand")
            tensors = [self.tensor(value) for value in equation.values]
            results = found.function(*tensors) if found.plain else found.function(equation, *tensors)
        given = list(results) if isinstance(results, (list, tuple)) else [results]
        made = [
            _of_shape(value, aval, stands_in=found.raw) if isinstance(value, Tensor) else value
            for value, aval in zip(given, equation.results, strict=True)
        ]
        self.cuts.follow(equation, equation.values, made)
        return made

    def _exchanged(self, equation: Any, values: Sequence[Value]) -> list[Value] | None:
        """The results of a collective on stand-ins for values of a dtype that tensors cannot have.

        None unless it is a collective with a rule, and tensors lack a dtype.
        """
        found = RULES.get(name_of(equation))
        if found is None or found.module != "collectives" or all(map(_is_exact, equation.invars)):
            return None
        operands, results = (
            tuple(_stored_as(var.aval) for var in each) for each in (equation.invars, equation.outvars)
        )
        made = Equation(name_of(equation), equation.params, tuple(values), operands, results, self)
        try:
            return self._emitted(made)
        except (NotSupportedError, DTypeError, ShapeError, UnsupportedError):
            return None

    def _gap(self, equation: Any, values: Sequence[Value], text: str) -> list[Value]:
        """Stand-ins for the results, and a note of what is missing."""
        if is_silent(equation):
            return []
        exchanged = self._exchanged(equation, values)
        if exchanged is not None:
            self.builder.unsupported(text, (), (), exact=True)
            return exchanged
        if name_of(equation) in ANALYSED:
            return self._analysed(equation, values, text)
        operands = [self.stand_in(value) for value in values if getattr(value, "size", 1)]
        outputs = [_stand_in(var.aval) for var in equation.outvars]
        text = text.removesuffix(" (no rule)")
        if depends_on_operands_alone(equation):
            return list(self.builder.unsupported(text, operands, outputs, exact=True))
        contract = None if name_of(equation) in RULES else self.contracts.of(equation)
        if contract is None:
            return list(self.builder.unsupported(text, operands, outputs, everywhere=True))
        self.builder.note(f"assumed of {describe_location()}: {contract} (opaque=)")
        if contract.axes is not None:
            group = self.spread.group(contract.axes)
            operands = (
                [ops.replica_index(group, what="group", dtype=dtypes.int32)] if group.num_groups > 1 else []
            )
        return list(self.builder.unsupported(text, operands, outputs, exact=True))

    def _analysed(self, equation: Any, values: Sequence[Value], text: str) -> list[Value]:
        operands, results = (
            tuple(_stored_as(var.aval) for var in each) for each in (equation.invars, equation.outvars)
        )
        made = Equation(name_of(equation), equation.params, tuple(values), operands, results, self)
        try:
            marks = ANALYSED[made.primitive](made)
        except NotSupportedError:
            marks = None
        outputs = [_stand_in(var.aval) for var in equation.outvars]
        text = text.removesuffix(" (no rule)")
        if marks is None:
            return list(self.builder.unsupported(text, (), outputs, everywhere=True))
        return list(self.builder.unsupported(text, marks, outputs, exact=True))


def _stored_as(aval: Any) -> Aval:
    """Shape and dtype of a value, or of its stand-in."""
    shape, dtype = _stand_in(aval)
    return Aval(shape, dtype.as_numpy())


def _fold(fold: Fold, equation: Equation, values: Sequence[NDArray[Any]]) -> list[Value] | None:
    """The results of an equation whose operands are known."""
    found = fold(equation, *values)
    if found is None:
        return None
    return [
        np.asarray(value).astype(aval.dtype, copy=False).reshape(aval.shape)
        for value, aval in zip(found if isinstance(found, list) else [found], equation.results, strict=True)
    ]


def has_dtype(dtype: np.dtype[Any]) -> bool:
    """False for element types that tensors cannot have."""
    try:
        return bool(dtype_of(dtype))
    except NotSupportedError:
        return False


def _is_exact(var: Any) -> bool:
    """True for values whose tensors have their dtype."""
    try:
        return has_dtype(aval_of(var.aval).dtype)
    except NotSupportedError:
        return False


def _stand_in(aval: Any) -> tuple[tuple[int, ...], dtypes.dtype]:
    """Shape and dtype of a stand-in: float32 where tensors cannot have the dtype."""
    try:
        found = aval_of(aval)
    except NotSupportedError:
        return tuple(getattr(aval, "shape", ())), dtypes.float32
    return found.shape, stand_in_dtype(found.dtype)


def needed(jaxpr: Any) -> list[Any]:
    """The equations that results depend on, and those with effects."""
    wanted = {id(atom) for atom in jaxpr.outvars}
    kept = []
    for equation in reversed(jaxpr.eqns):
        if equation.effects or any(id(var) in wanted for var in equation.outvars):
            wanted.update(id(atom) for atom in equation.invars)
            kept.append(equation)
    return kept[::-1]


def closed(jaxpr: Any) -> tuple[Any, list[Value]]:
    """A jaxpr and its constants; of an open one there are none."""
    if hasattr(jaxpr, "consts"):
        return jaxpr.jaxpr, [stored(value) for value in jaxpr.consts]
    return jaxpr, []


def stored(value: Any) -> NDArray[Any]:
    """A constant of a jaxpr, or what a reference holds, as an array; keys of random bits as their words."""
    if is_ref(value):
        value = value[...]
    if is_key(value):
        jax = the_jax()

        value = jax.random.key_data(value)
    return np.asarray(value)


def is_key(value: Any) -> bool:
    """True for keys of random bits, which are stored as words."""
    return hasattr(getattr(value, "dtype", None), "_impl")


def aval_of(aval: Any) -> Aval:
    """Shape and dtype of a jax value, as stored.

    Raises:
        NotSupportedError: it has no such dtype.
        ShapeError: it has a dimension that is not a number.
    """
    shape = tuple(getattr(aval, "shape", ()))
    if not all(isinstance(extent, (int, np.integer)) for extent in shape):
        raise ShapeError(
            f"from_jax: dynamic shape, got {[str(extent) for extent in shape]}, expected numbers: give arguments of "
            "fixed shapes"
        )
    shape = tuple(int(extent) for extent in shape)
    if is_key(aval):
        return Aval((*shape, *aval.dtype._impl.key_shape), np.dtype(np.uint32))
    try:
        return Aval(shape, stored_dtype(np.dtype(aval.dtype)))
    except (AttributeError, TypeError):
        raise NotSupportedError(f"value of type {aval}") from None


def _of_shape(t: Tensor, aval: Aval, stands_in: bool) -> Tensor:
    """The result of a rule, which must be what the jaxpr says; rules that move values as they are move stand-ins."""
    dtype = stand_in_dtype(aval.dtype) if stands_in else dtype_of(aval.dtype)
    if t.dtype != dtype:
        t = ops.cast(t, dtype)
    if t.shape == aval.shape:
        return t
    if t.nelms != aval.size:
        raise NotSupportedError(f"operands that broadcast to {list(aval.shape)}")
    return ops.reshape(t, aval.shape)
