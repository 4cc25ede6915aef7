"""Groups, keys and state of optimisers for torch whose weights are rounded."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import torch

from popsr._support.host.arguments import read_bool, read_number
from popsr._support.text.entry_points import public
from popsr._support.text.shown import shown
from popsr.errors import ArgumentTypeError, AttributeValueError, UnsupportedError
from popsr.sr._call import Key
from popsr.sr._torch.graph import compiled_step, is_changed_in_graph, is_fake, numbered, traced_step
from popsr.sr._torch.parts import (
    as_parameter,
    as_replica,
    check_alike,
    gathered,
    is_cut,
    is_elsewhere,
    is_laid_out,
    local,
    part_of,
    whole,
)
from popsr.sr._torch.roundings import rounded
from popsr.sr._torch.states import Decay, adopted, as_counter
from popsr.sr._torch.steps import COUNTED, Row, Weight, mark_written, row_of
from popsr.sr._watch import draws, is_watched

__all__ = ["Optimiser", "check_range", "in_float32", "read_betas", "read_ways", "widened"]


@public
class Optimiser(torch.optim.Optimizer):  # type: ignore[misc, unused-ignore]  # Any where torch is missing
    """Groups, keys and state of an optimiser; a subclass computes updates.

    A parameter draws from ``Key(seed).fold_in(index).at(step)``, where the index counts the parameters of all groups.
    Of a DTensor the part of this rank is stepped, and each element draws by its position in the whole parameter.
    """

    moments: torch.dtype
    _is_elementwise = True
    """True if the update of an element needs no others, and so parts of a parameter are stepped alone; else they are
    gathered."""
    _kept: ClassVar[tuple[str, ...]] = ()
    """Names of what a state has beside its step, whatever the options."""
    _of_torch: ClassVar[Mapping[str, str]] = {}
    """Names of a state's tensors in ``torch.optim``, and here."""
    _decay: ClassVar[Decay | None] = None
    """None where torch does not have both forms in one class."""

    def __init__(
        self, params: Iterable[Any], options: dict[str, Any], seed: int | None, moments: torch.dtype
    ) -> None:
        """Options are defaults of the groups."""
        seed = _own_seed(type(self).__name__) if seed is None else seed
        if options.get("foreach") is not None:
            read_bool(f"{type(self).__name__}: foreach", options["foreach"])
        super().__init__(params, {**options, "seed": seed})
        self.moments = moments
        self._prepare()

    def _prepare(self) -> None:
        """Set what copies and pickles leave behind."""
        self._shards: dict[Any, dict[str, Any]] = {}
        self._handle = numbered(self)
        compiler: Any = torch.compiler
        for method in (Optimiser._is_changed_while_compiling, Optimiser._begin_while_compiling):
            compiler.assume_constant_result(method)
        self._seen_groups = self.param_groups

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "moments": self.moments}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # of a copy or pickle; torch also loads groups and states by it
        self._prepare()

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """As in torch.

        Args:
            param_group: parameters, and options of their own.
        Raises:
            ValueError: ``differentiable`` is True.
        """
        if isinstance(param_group, dict):
            read_ways(type(self).__name__, param_group.get("differentiable"))
        super().add_param_group(param_group)

    # State

    def _names(self, group: dict[str, Any], p: Any) -> tuple[str, ...]:
        """Names of what the state of a parameter has beside its step."""
        del group, p
        return self._kept

    def _first(self, name: str, p: Any, state: dict[str, Any]) -> Any:
        """The entry of a state under a name before the first step.

        Args:
            name: the name.
            p: the parameter, of a DTensor the part of this rank.
            state: what there is of it.
        """
        del name, state
        return torch.zeros_like(p, dtype=self.moments, requires_grad=False)

    def _init_group(self, group: dict[str, Any]) -> None:
        """Make the state that is missing of parameters with a gradient; a number of steps becomes a tensor."""
        for p in group["params"]:
            if p.grad is not None:
                self._init_state(p, group)

    def _init_state(self, p: Any, group: dict[str, Any]) -> dict[str, Any]:
        state: dict[str, Any] = self.state[p]
        step = state.get("step")
        if not isinstance(step, torch.Tensor) or step.dtype is not torch.int64:
            state["step"] = as_counter(0 if step is None else step)
        missing = [name for name in self._names(group, p) if name not in state]
        is_gathered = self._is_gathered(p)
        for name in missing:
            like = torch.empty(p.shape, dtype=p.dtype) if is_gathered else local(p.detach())
            first = self._first(name, like, state)
            if is_gathered:
                state[name] = self._part(p, first)
            else:
                state[name] = first if name in COUNTED else _as_laid_out(p, first)
        return state

    def _is_gathered(self, p: Any) -> bool:
        """True if a step needs all of a parameter, of which this rank has a part."""
        return not self._is_elementwise and is_cut(p)

    def _part(self, p: Any, x: Any) -> Any:
        """A tensor of the state of a whole parameter, as the parameter is laid out; of another shape, for all ranks."""
        if x.shape != p.shape:
            return as_replica(x, p)
        return as_parameter(part_of(type(self).__name__, p).of(x), p)

    # While torch.compile traces a step

    def _is_changed_while_compiling(self) -> bool:
        """True if options are set in the function that is compiled, before its step."""
        self._seen_groups = self.param_groups
        return is_changed_in_graph(self)

    def _begin_while_compiling(
        self, number: int, places: list[int]
    ) -> tuple[tuple[tuple[str, ...], ...], bool]:
        """Make the state of some parameters of a group.

        Returns:
            the names of the state of each, and if the group's learning rate is a tensor.
        """
        group = self.param_groups[number]
        names = []
        for k in places:
            p = group["params"][k]
            self._init_state(p, group)
            names.append(("step", *self._names(group, p)))
        return tuple(names), isinstance(group["lr"], torch.Tensor)

    # Steps

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One step on every parameter that has a gradient.

        Args:
            closure: computes the loss again and returns it.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        with torch.no_grad():
            if torch.compiler.is_compiling():
                compiled_step(self)
            else:
                self._step_groups()
        return loss

    def _step_groups(self) -> None:
        self._seen_groups, index = self.param_groups, 0
        for group in self._seen_groups:
            weights, cut, params = [], [], group["params"]
            count = 1 + len(self._names(group, params[0])) if params else 0
            for k, p in enumerate(params, index):
                grad = p.grad
                if grad is not None and not is_elsewhere(p):
                    state = self.state[p]
                    if len(state) != count or type(state.get("step")) is not torch.Tensor:
                        state = self._init_state(p, group)
                    if self._is_gathered(p) and not is_fake(local(p)):
                        cut.append((k, p))
                    else:
                        weights.append(self._weight(k, p, grad, state))
            index += len(params)
            if weights and is_fake(weights[0].p):
                traced_step(self, weights, group)
            else:
                self._step_group(weights, group)
            if cut:
                self._step_generally(self._gathered(cut), group)
            self._keep_shards(params)

    def _step_group(self, weights: list[Weight], group: dict[str, Any]) -> None:
        """A step of tensors as they are in memory."""
        for each in [[weight] for weight in weights] if group.get("foreach") is False else [weights]:
            if not self._step_all(each, group):
                self._step_generally(each, group)
            elif is_watched():
                for number, p, _, state, offset in each:
                    key = Key(group["seed"]).fold_in(number).at(int(state["step"]))
                    draws(f"{type(self).__name__}.step", key, "sr", offset, p.shape)

    def _weight(self, number: int, p: Any, grad: Any, state: dict[str, Any]) -> Weight:
        """A parameter to step; of a DTensor the part of this rank, whose elements have their numbers in the whole.

        Raises:
            ArgumentTypeError: the gradient or the state is laid out otherwise, or the update needs all of a parameter.
            UnsupportedError: the parameter is on the meta device.
        """
        if not is_laid_out(p):
            if p.is_meta and not is_fake(p):
                raise UnsupportedError(
                    f"{type(self).__name__}.step: a parameter has no values, got one on {p.device}, expected a device "
                    "with memory"
                )
            return Weight(number, p, grad, state)
        name, offset = type(self).__name__, self._offset(p)
        self._check_gradient(p)
        for key, value in state.items() if self._is_elementwise else ():
            if key not in COUNTED:
                check_alike(name, f"{key} of a state", value, p, "redistribute it, or load it with DTensors")
        self._shards[p] = {key: local(value) for key, value in state.items()}
        return Weight(number, local(p.detach()), local(grad), self._shards[p], offset)

    def _offset(self, p: Any) -> Any:
        """Numbers of the elements of a parameter, of a DTensor those of the part that this rank has.

        Raises:
            ArgumentTypeError: the update needs all of a parameter in a graph, or torch does not say what lies where.
        """
        if not is_laid_out(p):
            return 0
        name = type(self).__name__
        if self._is_gathered(p):
            raise ArgumentTypeError(
                f"{name}: a parameter is in parts in a step that is compiled or proved, got "
                f"{shown(str(p.placements))}, expected whole parameters: an update needs all of their rows and columns"
            )
        return part_of(name, p).offset

    def _keep_shards(self, params: Iterable[Any]) -> None:
        """Store what a step made anew of the state of parts as DTensors, which checkpoints can lay out anew."""
        for p in params if self._shards else ():
            state = self.state[p] if p in self._shards else {}
            for key, value in self._shards.pop(p, {}).items():
                if value is not local(state[key]):
                    state[key] = _as_laid_out(p, value)

    def _check_gradient(self, p: Any) -> None:
        remedy = "lay it out so before the step, as p.grad.redistribute(placements=p.placements) does"
        check_alike(type(self).__name__, "a gradient", p.grad, p, remedy)

    def _gathered(self, params: Iterable[tuple[int, Any]]) -> Iterator[Weight]:
        """Whole parameters, one after the other, of each of which this rank's part is kept once it is stepped.

        All ranks of its mesh compute the whole step, in the same way.

        Raises:
            ArgumentTypeError: the gradient is laid out otherwise, or torch cannot gather the parameter.
        """
        for number, p in params:
            part = part_of(type(self).__name__, p)
            self._check_gradient(p)
            state = {key: whole(x) for key, x in self.state[p].items()}
            w = gathered(type(self).__name__, p, part)
            yield Weight(number, w, whole(p.grad), state)
            kept = local(p.detach())
            if w.data_ptr() != kept.data_ptr():
                kept.copy_(part.of(w))
            for key, x in state.items():
                if key not in COUNTED:
                    self.state[p][key] = self._part(p, x)
            del w, state  # before the next ones come

    def _step_generally(self, weights: Iterable[Weight], group: dict[str, Any]) -> None:
        """With torch's arithmetic, and one call per weight."""
        for weight in weights:
            step = int(weight.state["step"].add_(1))
            if group["maximize"]:
                weight = weight._replace(grad=-widened(weight.grad))
            self._step_one(weight, step, group, Key(group["seed"]).fold_in(weight.number))
            del weight  # which may be gathered

    def _step_one(self, weight: Weight, step: int, group: dict[str, Any], key: Key) -> None:
        raise NotImplementedError

    def _step_all(self, weights: list[Weight], group: dict[str, Any]) -> bool:
        """One call of the core; False where some go the general way, and nothing is written.

        The weights are those of ``_step_generally``, and so are the moments but for the payload of NaNs.
        """
        del weights, group
        return False

    def _step_rows(
        self,
        weights: list[Weight],
        names: Sequence[str],
        fits: Callable[[Weight, Sequence[Any]], bool],
        step: Callable[[list[Row]], bool],
    ) -> bool:
        """``_step_all`` with moments of these names.

        Args:
            weights: the weights.
            names: of at most two moments.
            fits: can the core step a weight with its moments, whose memory is as it must be?
            step: the core's step; False if nothing was written.
        """
        rows, held = [], []
        for weight in weights:
            moments = [weight.state[name] for name in names]
            row = row_of(weight, moments) if fits(weight, moments) else None
            if row is None:
                return False
            rows.append(row)
            held += moments
        if not step(rows):
            return False
        mark_written(weights, rows, held)
        return True

    def _keep(self, weight: Weight, name: str, value: Any, step: int, key: Key) -> None:
        """Store a moment; a narrow one is rounded stochastically, from a key of its own."""
        if value.dtype != self.moments:
            own = key.fold_in(name).at(step)
            value = rounded(type(self).__name__, value, self.moments, own, weight.offset)
        if weight.state[name].dtype == value.dtype:
            weight.state[name].copy_(value)
        else:  # of a state that was loaded
            weight.state[name] = value

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """As in torch, which would also cast the moments to the dtype of the weights.

        Args:
            state_dict: of an optimiser of the same class, or of the one of the same name in ``torch.optim``, which has
                no seed: this optimiser keeps its own.
        Raises:
            ValueError: it is of another optimiser.
        """
        name = type(self).__name__
        state_dict = adopted(name, self.param_groups, state_dict, self._of_torch, self.moments, self._decay)
        super().load_state_dict(state_dict)
        saved = [i for group in state_dict["param_groups"] for i in group["params"]]
        own = [p for group in self.param_groups for p in group["params"]]
        for i, p in zip(saved, own, strict=True):
            for name, value in state_dict["state"].get(i, {}).items():
                if name == "step":
                    self.state[p][name] = as_counter(value)
                elif isinstance(value, torch.Tensor):
                    self.state[p][name] = value.clone()


def _own_seed(name: str) -> int:
    """A seed from the OS.

    Raises:
        ArgumentTypeError: this is a rank of a job, in which each would have another one: equal weights would drift.
    """
    import torch.distributed as dist

    ranks = dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1
    if ranks > 1:
        raise ArgumentTypeError(
            f"{name}: seed is missing in a job of {ranks} ranks, where weights that are equal would be rounded apart, "
            "expected seed=..., the same on all ranks"
        )
    return secrets.randbits(64)


def _as_laid_out(p: Any, value: Any) -> Any:
    """A part of a parameter's state as a DTensor if the parameter is one; what is not of its shape is whole."""
    if not is_laid_out(p):
        return value
    if value.shape == local(p).shape:
        return as_parameter(value, p)
    from torch.distributed.tensor import DTensor

    return DTensor.from_local(value, p.device_mesh, p.placements, run_check=False)


def widened(x: Any) -> Any:
    return x if x.dtype in (torch.float32, torch.float64) else x.float()


def in_float32(weight: Weight, moments: Sequence[Any]) -> bool:
    """True if arithmetic in float32 gives the bits of the general way."""
    is_double = torch.float64 in (weight.p.dtype, weight.grad.dtype)
    return not is_double and all(each.dtype is torch.float32 for each in moments)


def read_ways(name: str, differentiable: Any, **ways: Any) -> None:
    """Read options of torch that choose between ways to the same step, of which there is one here.

    Raises:
        ArgumentTypeError: one is not a bool.
        AttributeValueError: derivatives of the step are asked for.
    """
    for way, value in {"differentiable": differentiable, **ways}.items():
        if value is not None:
            read_bool(f"{name}: {way}", value)
    if differentiable:
        raise AttributeValueError(
            f"{name}: differentiable is not supported, got {shown(differentiable)}, expected False: a rounded weight "
            "has no derivative; torch.optim's own steps have"
        )


def check_range(op: str, name: str, value: Any, most: float = float("inf")) -> None:
    """Raise unless 0 <= value < most.

    Raises:
        ArgumentTypeError: it is not a number.
        AttributeValueError: it is out of range.
    """
    if not 0 <= read_number(f"{op}: {name}", value) < most:
        raise AttributeValueError(f"{op}: {name} is out of range, got {value}, expected 0 <= {name} < {most}")


def read_betas(op: str, betas: Any) -> None:
    """Raise unless these are two factors from 0 to below 1.

    Raises:
        ArgumentTypeError: they are not two numbers.
        AttributeValueError: one is out of range.
    """
    if not isinstance(betas, (tuple, list)) or len(betas) != 2:
        raise ArgumentTypeError(f"{op}: betas is not a pair of numbers, got {shown(betas)}")
    for k, beta in enumerate(betas):
        check_range(op, f"betas[{k}]", beta, 1)
