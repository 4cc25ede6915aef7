"""From a function of JAX to a step."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import types
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from popsr._support.text.entry_points import public
from popsr._support.text.shown import shown
from popsr.analysis._axes import ReplicaAxes
from popsr.bridge._advice import Variant, is_whole_loss
from popsr.bridge._step.arguments import Reading, Smaller
from popsr.bridge._step.builder import StepBuilder, Unsupported
from popsr.bridge._step.places import at_definition
from popsr.bridge._step.reading import read_as
from popsr.bridge._step.step import BridgedStep
from popsr.bridge.jax._arguments import (
    Leaf,
    inferred_updates,
    leaves_of,
    names_of,
    read_replicated,
    read_roles,
)
from popsr.bridge.jax._compiled import compiler_keeps
from popsr.bridge.jax._framework import the_jax
from popsr.bridge.jax._importer import Importer, closed
from popsr.bridge.jax._libraries import Form, is_of_library, plain_form
from popsr.bridge.jax._one_device import first_row, joined_rows, meshes_of_ones
from popsr.bridge.jax._rules.contracts import Contracts
from popsr.bridge.jax._sizes.sharded import Sharded
from popsr.bridge.jax._sizes.shrunk import Shrinking, resized
from popsr.bridge.jax._states_and_results import add_results, argument_of
from popsr.bridge.jax._traced import WHERE, Traced
from popsr.errors import AttributeValueError

__all__ = ["accepts", "from_jax"]


@public
def accepts(step: Any) -> bool:
    """True for functions, jitted or not, also by libraries on top of JAX."""
    if isinstance(step, (types.FunctionType, types.MethodType, functools.partial)):
        return True
    return is_of_library(step) or type(step).__module__.partition(".")[0] in ("jax", "jaxlib")


@public
def from_jax(
    f: Any,
    *args: Any,
    mesh: Any = None,
    in_specs: Any = None,
    out_specs: Any = None,
    check_vma: bool = True,
    replicas: int | None = None,
    axis_name: str | None = None,
    in_axes: Any = 0,
    names: Sequence[str] | None = None,
    roles: Mapping[str, str] | None = None,
    updates: Mapping[int, int] | None = None,
    replicated: Sequence[str] = (),
    unsupported: Unsupported = "error",
    opaque: Mapping[str, str] | None = None,
) -> BridgedStep:
    """A training step of JAX as a program, to be proved and run on simulated replicas.

    The step is traced, not run, and needs no devices. Replicas are the places of the mesh, row by row. Three forms
    are read: a function with ``mesh``, ``in_specs`` and ``out_specs`` of the ``shard_map`` that it is to run in; a
    function, jitted or not, that has its ``shard_map`` inside; and a function for each replica, as for ``pmap``, with
    ``replicas`` and ``axis_name``. What is outside of ``shard_map`` is computed on all replicas.

    Args:
        f: the function.
        args: what it is traced with: arrays, or ``jax.ShapeDtypeStruct``. Arrays are initial states and the default
            of data.
        mesh: a mesh of JAX, abstract or of devices, or sizes by name: ``{"data": 4}``.
        in_specs: as for ``jax.shard_map``.
        out_specs: as for ``jax.shard_map``.
        check_vma: as for ``jax.shard_map``. True lets JAX add sums of gradients, and refuse results that vary.
        replicas: their number; with a mesh its size.
        axis_name: name of the axis of replicas, for a function for each replica.
        in_axes: with ``axis_name``, as for ``jax.pmap``: 0 for arguments with a row for each replica, None for equal.
        names: a name for each argument. Default: of the function's parameters.
        roles: "state", "data" or "constant" by name. Default: states are what the step returns anew; others are data.
        updates: which result is the new value of which argument, by position. Default: the first result with the
            tree, shapes and dtypes of the argument.
        replicated: names of states of which each replica has a row of its own, all of them equal, as ``pmap`` keeps
            parameters: they are declared to stay equal.
        unsupported: "error" refuses primitives of which nothing is known and names all of them; "conservative"
            proves around them.
        opaque: contracts of such primitives: by name of a callback's function, of a Pallas kernel, of the target of a
            foreign call or of a primitive, "deterministic" (equal operands give equal results) or "equal over data"
            (replicas that differ in that axis alone have equal results, whatever the operands). The proof shows them.
    Returns:
        The step. Paths of arrays are names with keys, such as ``params['w']``; results are ``result[1]``.
    Raises:
        UnsupportedOpsError: the step has primitives of which nothing is known.
        UnknownNameError: ``opaque`` names no such primitive of the step.
        ReplicaError: the number of replicas is not the mesh's, or meshes differ.
        ShapeError: a dimension that is not a number.
        AttributeValueError: roles, names or updates that do not fit.
        MissingPackageError: JAX is not installed, or too old.
    Example:
        >>> import jax.numpy as jnp  # doctest: +SKIP
        >>> def step(w, x):
        ...     return w - 0.1 * jax.lax.pmean(w * x.sum(), "data")
        >>> popsr.bridge.jax.from_jax(step, w, x, replicas=4, axis_name="data", in_axes=(None, 0))  # doctest: +SKIP
    """
    call = _Call(
        Form(f, args, in_specs, out_specs, updates),
        mesh,
        check_vma,
        replicas,
        axis_name,
        in_axes,
        names,
        roles,
        replicated,
        unsupported,
        opaque,
    )
    step = call.read()
    if check_vma or mesh is None:
        return step
    again = dataclasses.replace(call, check_vma=True)

    def checked(proof: Any) -> BridgedStep | None:
        return again.read() if is_whole_loss(proof) else None

    text = "let JAX add the sums of gradients over axes and check what varies: check_vma=True"
    return dataclasses.replace(step, variants=(Variant(text, checked),))


@dataclasses.dataclass(frozen=True)
class _Call:
    """The arguments of ``from_jax``, by which the step can be read once more."""

    form: Form
    mesh: Any
    check_vma: bool
    replicas: int | None
    axis_name: str | None
    in_axes: Any
    names: Sequence[str] | None
    roles: Mapping[str, str] | None
    replicated: Sequence[str]
    unsupported: Unsupported
    opaque: Mapping[str, str] | None
    own_rows: Sequence[bool] = ()
    """True for each array with a row for each replica; empty if none has."""

    def read(self) -> BridgedStep:
        """Trace it, and make a program of it."""
        return self._read(plain_form(self.form), alone=False)

    def again(self, how: Reading) -> BridgedStep:
        """Read it once more, in another way. Ops that popsr lacks are gaps of what is read."""
        with self._as(how) as (call, alone):
            return call._read(plain_form(call.form), alone=alone)

    def smaller(self, like: Any) -> Sequence[Smaller] | str | None:
        """Choices of smaller sizes at which it is the same program, or why there are none; None if it is not large.

        Args:
            like: "one device", or a function in its place on one device.
        """
        form = plain_form(self.form)
        leaves = leaves_of(form.f, form.args, self.names)
        search = Shrinking(leaves, None if isinstance(like, str) else like, self._traced)
        return search.found() if search.is_large else None

    def _traced(self, how: Reading) -> Traced:
        """Trace it in another way, once: the reading before found that it is the same when it is traced again."""
        with self._as(how) as (call, alone):
            return call._trace(plain_form(call.form), alone=alone, once=True)

    @contextlib.contextmanager
    def _as(self, how: Reading) -> Iterator[tuple[_Call, bool]]:
        """Inside, the call in another way, and whether it is on a mesh of ones."""
        call = dataclasses.replace(self, unsupported="conservative")
        if how.sizes is not None:
            call = dataclasses.replace(call, form=self._resized(how))
        if how.like is not None:
            call = call._of_one(how.like)
        elif how.alone and self.own_rows:
            args = plain_form(call.form).args
            call = dataclasses.replace(
                call, form=dataclasses.replace(call.form, args=self._joined(args)), replicas=1
            )
        elif how.alone:
            call = dataclasses.replace(call, replicas=None)
        alone = how.alone and how.like is None
        with read_as(how), meshes_of_ones() if alone else contextlib.nullcontext():
            yield call, alone

    def _resized(self, how: Reading) -> Form:
        """The step with arguments of other sizes."""
        form = plain_form(self.form)
        leaves = leaves_of(form.f, form.args, self.names)
        rows = self.own_rows or [False] * len(leaves)
        found = [
            resized(leaf, number, how, has_rows)
            for number, (leaf, has_rows) in enumerate(zip(leaves, rows, strict=True))
        ]
        return dataclasses.replace(form, args=the_jax().tree.structure(form.args).unflatten(found))

    def _of_one(self, like: Any) -> _Call:
        """The call of a step for one device, with the arguments of this one."""
        args = self.form.args
        if self.own_rows:
            rows = the_jax().tree.structure(args).unflatten(self.own_rows)
            args = the_jax().tree.map(first_row, self._joined(args), rows)
        return _Call(
            Form(like, args, None, None, self.form.updates),
            None,
            True,
            None,
            None,
            0,
            self.names,
            self.roles,
            (),
            "conservative",
            None,
        )

    def _joined(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Arguments with one row, in place of one for each replica."""
        assert self.roles is not None
        leaves = leaves_of(self.form.f, args, self.names)
        names = names_of(self.form.f, len(args), self.names)
        found = [
            joined_rows(
                leaf.path,
                leaf.value,
                self.roles[names[leaf.argument]],
                names[leaf.argument] in self.replicated,
            )
            if has_row
            else leaf.value
            for leaf, has_row in zip(leaves, self.own_rows, strict=True)
        ]
        made: tuple[Any, ...] = the_jax().tree.structure(args).unflatten(found)
        return made

    def _trace(self, form: Form, *, alone: bool, once: bool = False) -> Traced:
        return Traced(
            form.f,
            form.args,
            self.mesh,
            form.in_specs,
            form.out_specs,
            self.check_vma,
            self.replicas,
            self.axis_name,
            self.in_axes,
            alone,
            once,
        )

    def _read(self, form: Form, *, alone: bool) -> BridgedStep:
        traced = self._trace(form, alone=alone)
        leaves = leaves_of(form.f, form.args, self.names)
        names = names_of(form.f, len(form.args), self.names)
        updates, kinds = _updates_and_roles(traced, names, form.updates, self.roles)
        equal = read_replicated(names, kinds, self.replicated)
        contracts = Contracts(self.opaque, traced.spread)
        step = _program_of(traced, leaves, kinds, updates, equal, self.unsupported, contracts)
        known = (
            self.form if self.form.args is not form.args else dataclasses.replace(self.form, updates=updates)
        )
        call = dataclasses.replace(
            self,
            form=known,
            names=names,
            roles=dict(zip(names, kinds, strict=True)),
            own_rows=tuple(traced.per_replica or ()),
        )
        return dataclasses.replace(step, again=call.again, smaller=call.smaller)


def _updates_and_roles(
    traced: Traced,
    names: Sequence[str],
    updates: Mapping[int, int] | None,
    roles: Mapping[str, str] | None,
) -> tuple[dict[int, int], list[str]]:
    """Numbers of results by the position of the state that they update, and the role of each argument."""
    parts = traced.parts
    if updates is None:
        updates = inferred_updates(_seen_by_replica(traced), parts)
    _check_updates(updates, traced.args, parts)
    kinds = read_roles(names, roles, updates)
    return {position: number for position, number in updates.items() if kinds[position] == "state"}, kinds


def _program_of(
    traced: Traced,
    leaves: Sequence[Leaf],
    kinds: Sequence[str],
    updates: Mapping[int, int],
    equal: Collection[int],
    unsupported: Unsupported,
    contracts: Contracts,
) -> BridgedStep:
    jax = the_jax()
    builder = StepBuilder(traced.spread.replicas, where=WHERE, unsupported=unsupported)
    if traced.has_axes:
        builder.axes = ReplicaAxes.of_sizes(traced.spread.sizes)
    with builder:
        importer = Importer(builder, traced.spread, contracts)
        jaxpr, consts = closed(traced.jaxpr)
        with at_definition(traced.f):
            values = [
                argument_of(
                    builder,
                    traced,
                    leaf,
                    "state" if number in traced.refs else kinds[leaf.argument],
                    number,
                    leaf.argument in equal,
                )
                for number, leaf in enumerate(leaves)
            ]
            for number, (leaf, value) in enumerate(zip(leaves, values, strict=True)):
                if isinstance(value, Sharded) and traced.gathered[number]:
                    values[number] = value.whole(traced.spread)
                elif isinstance(value, Sharded) and kinds[leaf.argument] == "state":
                    importer.cuts.add(value.part, value.spec)
            if traced.compiled:
                builder.note(compiler_keeps(traced.spread))
            found = importer.run(jaxpr, values, consts)
            contracts.require_used()
            add_results(importer, traced, leaves, traced.parts, found, updates, jax.tree_util)
            return builder.finish()


def _seen_by_replica(traced: Traced) -> tuple[Any, ...]:
    """Arguments with the shapes that the jaxpr takes."""
    jax = the_jax()

    leaves = iter(traced.jaxpr.jaxpr.invars)
    return tuple(
        jax.tree.map(lambda _: jax.ShapeDtypeStruct((aval := next(leaves).aval).shape, aval.dtype), argument)
        for argument in traced.args
    )


def _check_updates(updates: Mapping[int, int], args: Sequence[Any], outputs: Sequence[Any]) -> None:
    jax = the_jax()

    for position, number in updates.items():
        if not 0 <= position < len(args) or not 0 <= number < len(outputs):
            raise AttributeValueError(
                f"{WHERE}: updates of an argument or result that is not there, got {{{position}: {number}}}, expected "
                f"0 to {len(args) - 1} and 0 to {len(outputs) - 1}"
            )
        if jax.tree.structure(args[position]) != jax.tree.structure(outputs[number]):
            raise AttributeValueError(
                f"{WHERE}: updates argument {position} by a result of another tree, got result {number}, expected "
                f"{shown(str(jax.tree.structure(args[position])))}"
            )
