"""Gradients of a program that trains, compared with finite differences of its loss."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from popsr import dtypes
from popsr._program.ir import Ir
from popsr._program.streams import DeviceToHostStream
from popsr._program.tensor import Tensor, Variable
from popsr._support.host.arguments import is_a, read_a, read_int, read_items, read_mapping, read_number
from popsr._support.text.entry_points import public
from popsr._support.text.shown import shown
from popsr.errors import ArgumentTypeError, AttributeValueError, DTypeError, GraphError, ShapeError
from popsr.replicas import Partition
from popsr.testing._gradient_report import GradientCheck, GroupSamples, Sample, fit_scale, report
from popsr.testing._gradient_runs import Array, Runs, Value, first_run_partitions, undone

__all__ = ["check_gradients"]

_WHERE = "check_gradients"
_ACCURACY = {
    dtypes.float64: (5e-6, 1e-6),
    dtypes.float32: (5e-3, 2e-2),
    dtypes.float16: (0.1, 0.1),
    dtypes.bfloat16: (0.2, 0.25),
}
"""Step relative to the size of a variable, about the cube root of the dtype's epsilon, and tolerance; finest first."""
_NOISE = 8  # roundings of the loss that a difference may show
_SHORTER = (
    1 / 4,
    1 / 16,
    1 / 64,
    1 / 256,
)  # of the step: a kink, as of relu, is seldom between points so near


@dataclass(frozen=True, slots=True)
class _Settings:
    """Numbers of a check; None: by dtype."""

    scale: float | None
    directions: int
    step: float | None
    rtol: float | None
    seed: int


@public
def check_gradients(
    ir: Ir,
    loss: Value | Sequence[Value],
    gradients: Mapping[Variable, Value],
    inputs: Mapping[Any, Any] | None = None,
    *,
    scale: float | None = 1.0,
    directions: int = 2,
    step: float | None = None,
    rtol: float | None = None,
    seed: int = 0,
) -> GradientCheck:
    """Compare the gradients of a training step with finite differences of its loss, by variable and replica group.

    The objective is the loss summed over replicas, where replicas that are proved to hold the same loss count once. The
    members of a group of a variable are changed together, as they are one weight, and every run starts from the initial
    state of the program with the same random numbers. So data and tensor parallelism are checked as written: a
    collective that is missing, doubled, a mean for a sum, or over other groups is a wrong gradient.

    The program is as before afterwards. It is run twice for each direction of each variable and group: check a small
    model, in float64 if it can be.

    Args:
        ir: a program of one training step; it may update its variables.
        loss: a scalar of the main graph, or several, which are added. The value at the end of the graph counts. Of a
            ``d2h_stream`` it is the sum of what is stored in a run.
        gradients: what the program takes for the derivative by each variable: a tensor of the main graph, or a
            ``d2h_stream``, read as the loss is. Of a sharded variable it may be the shards.
        inputs: data of host-to-device streams, as for ``Session.run``.
        scale: factor between the objective and what the gradients are derivatives of: ``1 / n`` for a mean over n
            data-parallel groups. None: any factor, fitted to all variables together.
        directions: directions of ±1 for each variable and group: the signs of the gradient, then random ones; of
            variables with no more elements than that, each element by itself.
        step: length of the steps, relative to the root mean square of the group's value, or to 1 where that is 0.
            Default: by the least exact dtype of loss, variable and gradient, 5e-6 for float64.
        rtol: tolerance relative to the derivative or the gradient's norm. Default: by dtype, 1e-6 for float64, 2e-2
            for float32.
        seed: of the directions.
    Raises:
        GradientError: a gradient is wrong; also an AssertionError. Its ``check`` is the result, its notes the table.
        GraphError: a tensor of a called graph or loop, or of another Ir; store it to a stream where it is made.
        ShapeError: a loss is not a scalar, or a gradient does not have its variable's shape.
        DTypeError: loss, variable or gradient is not a float of at least 16 bits.
        ReplicaError: a stream has a row for each group, and the members are not proved to store the same.
        SessionError: as ``Session.run`` raises for ``inputs``.
    Example:
        >>> ir = popsr.Ir(replication=2)
        >>> with ir.main_graph:
        ...     stream = popsr.h2d_stream((), popsr.float64)
        ...     w = popsr.variable(3.0, popsr.float64, "w")
        ...     x = ops.host_load(stream)
        ...     error = w * x - 1.0
        ...     loss = error * error
        ...     dw = ops.collectives.replicated_all_reduce(error * x * 2.0, "mean")
        >>> data = {stream: np.array([1.0, 2.0])}
        >>> popsr.testing.check_gradients(ir, loss, {w: dw}, data, scale=0.5).ok
        True
        >>> round(popsr.testing.check_gradients(ir, loss, {w: dw}, data, scale=None).scale, 6)
        0.5
    """
    read_a(f"{_WHERE}: ir", ir, Ir)
    losses = _read_losses(ir, loss)
    grads = _read_gradients(ir, gradients)
    settings = _Settings(
        None if scale is None else _read_factor("scale", scale),
        read_int(f"{_WHERE}: directions", directions, 1),
        None if step is None else _read_factor("step", step, positive=True),
        None if rtol is None else _read_factor("rtol", rtol, positive=True),
        read_int(f"{_WHERE}: seed", seed, 0),
    )
    values = [(f"{_WHERE}: loss", each) for each in losses]
    values += [(_gradient_name(variable), gradient) for variable, gradient in grads.items()]
    objective = list(zip(losses, first_run_partitions(ir, values), strict=False))
    return undone(ir, lambda: _Measurement(ir, objective, grads, inputs, settings).check())


class _Measurement:
    """The derivatives of an objective by variables, and the gradients that are claimed.

    Args:
        ir: the program; inside ``undone``.
        losses: parts of the objective, and replicas that hold the same.
        gradients: as for ``check_gradients``.
        inputs: likewise.
        settings: likewise.
    """

    def __init__(
        self,
        ir: Ir,
        losses: Sequence[tuple[Value, Partition]],
        gradients: Mapping[Variable, Value],
        inputs: Mapping[Any, Any] | None,
        settings: _Settings,
    ) -> None:
        """Run the program once, from its initial state."""
        self._ir = ir
        self._losses = losses
        self._gradients = gradients
        self._settings = settings
        self._runs = Runs(ir, [*(loss for loss, _ in losses), *gradients.values()], inputs)
        read = self._runs.run()
        self._claims = {variable: read(gradient) for variable, gradient in gradients.items()}
        self._magnitude = sum(float(np.abs(read(loss)).sum()) for loss, _ in losses)
        self._rows = self._runs.initial_rows(gradients)

    def check(self) -> GradientCheck:
        """Measure each variable and group; those that seem wrong again, with shorter steps."""
        cases = [(v, group) for v in self._gradients for group in range(v.replica_grouping.num_groups)]
        groups = [self._samples(*case) for case in cases]
        given = self._settings.scale
        scale = fit_scale(groups) if given is None else given
        for shorter, (i, case) in itertools.product(_SHORTER, enumerate(cases)):
            if groups[i].worst(scale)[1] > groups[i].rtol and self._can_step(*case, shorter):
                groups[i] = groups[i].nearest(self._samples(*case, shorter), scale)
        if given is None:
            scale = fit_scale(groups)
        return report(groups, scale, self._ir.replication_factor)

    def _samples(self, variable: Variable, group: int, shorter: float = 1.0) -> GroupSamples:
        members = tuple(variable.replica_grouping.groups[group])
        step, rtol, epsilon = self._accuracy(variable)
        claims = _whole_gradients(variable, self._claims[variable][list(members)], members)
        norm = max(float(np.linalg.norm(claim)) for claim in claims)
        with np.errstate(invalid="ignore"):
            spread = float(np.abs(claims - claims[0]).max(initial=0.0))
        length = step * self._size(variable, group)
        noise = _NOISE * epsilon * self._magnitude / length
        samples = []
        for direction in self._directions(variable, group, claims[0]):
            derivative, change = self._difference(variable, group, length * shorter * direction)
            along = tuple(float(np.vdot(claim, change)) for claim in claims)
            samples.append(Sample(derivative, along, norm, noise))
        relative = spread / norm if spread and math.isfinite(norm) else 0.0
        return GroupSamples(variable.name, members, tuple(samples), relative, rtol)

    def _size(self, variable: Variable, group: int) -> float:
        """Root mean square of the group's value; 1 where that is 0."""
        start = self._rows[variable][group].astype(np.float64)
        size = float(np.sqrt(np.mean(np.square(start)))) if start.size else 0.0
        return size if size and math.isfinite(size) else 1.0

    def _can_step(self, variable: Variable, group: int, shorter: float) -> bool:
        """True if the variable's dtype rounds no shorter step by more than a quarter."""
        largest = float(np.abs(self._rows[variable][group].astype(np.float64)).max(initial=0.0))
        length = self._accuracy(variable)[0] * self._size(variable, group) * shorter
        return length >= 2 * _epsilon(variable.dtype) * largest

    def _difference(self, variable: Variable, group: int, change: Array) -> tuple[float, Array]:
        """Central difference, and the change of the variable as rounded to its dtype, both relative to the length."""
        ends, losses = [], []
        for sign in (1.0, -1.0):
            rows = self._rows[variable].copy()
            rows[group] = (rows[group].astype(np.float64) + sign * change).astype(rows.dtype)
            ends.append(rows[group].astype(np.float64))
            losses.append(self._objective({variable: rows.reshape(variable.shape_on_host)}))
        if change.size and np.array_equal(*ends):
            step = self._accuracy(variable)[0]
            raise AttributeValueError(
                f"{_WHERE}: step is too short for {shown(variable.name)}, got {step:.3g}, expected one that changes a "
                f"{variable.dtype.name}"
            )
        length = 2 * float(np.abs(change).max(initial=0.0)) or 1.0
        return (losses[0] - losses[1]) / length, (ends[0] - ends[1]) / length

    def _objective(self, changed: Mapping[Variable, Array]) -> float:
        read = self._runs.run(changed)
        return math.fsum(
            float(read(loss)[block[0]]) for loss, partition in self._losses for block in partition.blocks
        )

    def _directions(self, variable: Variable, group: int, claim: Array) -> Iterator[Array]:
        """The first has the signs of the claimed gradient: nothing cancels there, and a wrong factor shows."""
        elements = math.prod(variable.shape)
        if not elements:
            yield np.zeros(variable.shape)
            return
        if elements <= self._settings.directions:
            yield from np.eye(elements).reshape(elements, *variable.shape)
            return
        position = list(self._gradients).index(variable)
        rng = np.random.default_rng([self._settings.seed, position, group])
        for i in range(self._settings.directions):
            signs = rng.choice([-1.0, 1.0], size=variable.shape)
            yield signs if i else np.where(claim == 0, signs, np.copysign(1.0, claim))

    def _accuracy(self, variable: Variable) -> tuple[float, float, float]:
        """Relative step, tolerance, and epsilon of the loss."""
        of_losses = [loss.dtype for loss, _ in self._losses]
        kinds = [*of_losses, variable.dtype, self._gradients[variable].dtype]
        step, rtol = max(_ACCURACY[kind] for kind in kinds)
        settings = self._settings
        epsilon = max(_epsilon(kind) for kind in of_losses)
        return settings.step or step, settings.rtol or rtol, epsilon


def _epsilon(kind: dtypes.dtype) -> float:
    layout = kind._format
    assert layout is not None
    return 2.0**-layout.mantissa_bits


def _whole_gradients(variable: Variable, claims: Array, members: Sequence[int]) -> Array:
    """The gradient of each member; of shards, what consecutive members' make together."""
    if claims.shape[1:] == variable.shape:
        return claims
    shards = _shards(variable, claims.shape[1:])
    assert shards is not None
    elements = math.prod(variable.shape)
    chunks = claims.reshape(len(members) // shards, -1)[:, :elements]
    return np.repeat(chunks.reshape(-1, *variable.shape), shards, axis=0)


def _shards(variable: Variable, shape: tuple[int, ...]) -> int | None:
    """Into how many shards of that shape a value is split; None if it is not a shape of shards."""
    home = variable._ir._core.home(variable._id)
    size = variable.replica_grouping.group_size
    counts = [n for n in range(size, 1, -1) if size % n == 0]
    if home is not None and home.shard_over > 1:
        counts = [home.shard_over]
    elements = math.prod(variable.shape)
    return next((n for n in counts if shape == (-(-elements // n),)), None)


# Arguments


def _read_losses(ir: Ir, loss: Any) -> tuple[Value, ...]:
    what = f"{_WHERE}: loss"
    single = isinstance(loss, (Tensor, DeviceToHostStream))
    losses = (loss,) if single else read_items(_WHERE, "loss", loss, kind="tensors")
    if not losses:
        raise AttributeValueError(f"{what} is empty, got {shown(loss)}, expected a scalar tensor")
    for each in losses:
        _check_value(what, ir, each)
        if each.shape:
            raise ShapeError(f"{what} is not a scalar, got shape {each.shape}, expected ()")
    return losses


def _read_gradients(ir: Ir, gradients: Any) -> dict[Variable, Value]:
    given = read_mapping(_WHERE, "gradients", gradients)
    if not given:
        raise AttributeValueError(f"{_WHERE}: no gradients, got {shown(gradients)}, expected one or more")
    for variable, gradient in given.items():
        what = f"{_WHERE}: a key of gradients"
        if not is_a(variable, Variable):
            raise ArgumentTypeError(f"{what} is not a Variable, got {shown(variable)}, expected a Variable")
        _check_value(what, ir, variable)
        what = _gradient_name(variable)
        _check_value(what, ir, gradient)
        if gradient.shape != variable.shape and not _is_of_shards(variable, gradient):
            raise ShapeError(
                f"{what} has another shape, got {gradient.shape}, expected the variable's {variable.shape}"
            )
    return dict(given)


def _is_of_shards(variable: Variable, gradient: Value) -> bool:
    meta = gradient.meta_shape if isinstance(gradient, Tensor) else variable.shape
    return meta == variable.shape and _shards(variable, gradient.shape) is not None


def _check_value(what: str, ir: Ir, value: Any) -> None:
    """Refuse what is not a float of the main graph, or a stream of floats to the host."""
    if not isinstance(value, (Tensor, DeviceToHostStream)):
        raise ArgumentTypeError(
            f"{what} is not a tensor, got {shown(value)}, expected a Tensor or d2h_stream"
        )
    if value._ir is not ir:
        raise GraphError(f"{what} is of another Ir, got {shown(value)}, expected one of {shown(ir)}")
    if isinstance(value, Tensor) and value._graph_id != 0:
        raise GraphError(
            f"{what} is made in graph {shown(value.scope)}, got {shown(value.name)}, expected a tensor of the main "
            "graph, or a d2h_stream that it is stored to"
        )
    if value.dtype not in _ACCURACY:
        names = ", ".join(each.name for each in _ACCURACY)
        raise DTypeError(f"{what} is of another dtype, got {value.dtype.name}, expected one of {names}")


def _gradient_name(variable: Variable) -> str:
    return f"{_WHERE}: the gradient of {shown(variable.name)}"


def _read_factor(name: str, value: Any, *, positive: bool = False) -> float:
    number = read_number(f"{_WHERE}: {name}", value)
    if not math.isfinite(number) or not number or (positive and number < 0):
        expected = "a positive number" if positive else "a finite number that is not 0"
        raise AttributeValueError(f"{_WHERE}: {name} is out of range, got {number}, expected {expected}")
    return number
