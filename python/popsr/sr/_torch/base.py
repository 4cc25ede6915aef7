"""Groups, keys and state of optimisers for torch whose weights are rounded."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import torch

from popsr._support.host.arguments import read_bool, read_number
from popsr._support.text.entry_points import public
from popsr._support.text.shown import shown
from popsr.errors import ArgumentTypeError, AttributeValueError
from popsr.sr._call import Key
from popsr.sr._cast import cast
from popsr.sr._torch.parts import (
    as_parameter,
    as_replica,
    check_alike,
    gathered,
    is_elsewhere,
    is_laid_out,
    local,
    part_of,
    whole,
)
from popsr.sr._torch.states import Decay, adopted
from popsr.sr._torch.steps import Row, Weight, mark_written, row_of

__all__ = ["Optimiser", "check_range", "in_float32", "read_betas", "widened"]


@public
class Optimiser(torch.optim.Optimizer):  # type: ignore[misc, unused-ignore]  # Any where torch is missing
    """Groups, keys and state of an optimiser; a subclass computes updates.

    A parameter draws from ``Key(seed).fold_in(index).at(step)``, where the index counts the parameters of all groups. Of a
    DTensor the part of this rank is stepped, and each element draws by its position in the whole parameter.
    """

    moments: torch.dtype
    _is_elementwise = True
    """True if the update of an element needs no others, and so parts of a parameter are stepped alone; else they are
    gathered."""
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
        # torch.compile would trace each weight's checks; the step is one call of the core for all of them.
        self._untraced = torch.compiler.disable(Optimiser._step_groups)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "moments": self.moments}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # of a copy or pickle; torch also loads groups and states by it
        self._prepare()

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
            self._untraced(self)
        return loss

    def _step_groups(self) -> None:
        index = 0
        for group in self.param_groups:
            params = enumerate(group["params"], index)
            stepped = [(k, p) for k, p in params if p.grad is not None and not is_elsewhere(p)]
            index += len(group["params"])
            if not self._is_elementwise:
                self._step_generally(self._gathered(stepped), group)
                continue
            weights = [self._weight(k, p) for k, p in stepped]
            calls = [[weight] for weight in weights] if group.get("foreach") is False else [weights]
            for each in calls:
                if not self._step_all(each, group):
                    self._step_generally(each, group)
            self._keep_shards(group["params"])

    def _weight(self, number: int, p: Any) -> Weight:
        """A parameter to step; of a DTensor the part of this rank, whose elements have their numbers in the whole.

        Raises:
            ArgumentTypeError: the gradient or the state is laid out otherwise.
        """
        if not is_laid_out(p):
            return Weight(number, p, p.grad, self.state[p])
        name = type(self).__name__
        offset = part_of(name, p).offset
        self._check_gradient(p)
        for key, value in self.state[p].items():
            if isinstance(value, torch.Tensor):
                remedy = "redistribute it, or load it with DTensors"
                check_alike(name, f"{key} of a state", value, p, remedy)
        part = {key: local(value) for key, value in self.state[p].items()}
        self._shards[p] = part
        return Weight(number, local(p.detach()), local(p.grad), part, offset)

    def _keep_shards(self, params: Iterable[Any]) -> None:
        """Store the state of the parts that were stepped as DTensors, which checkpoints can lay out anew."""
        for p in params:
            for key, value in self._shards.pop(p, {}).items():
                self.state[p][key] = as_parameter(value, p) if isinstance(value, torch.Tensor) else value

    def _check_gradient(self, p: Any) -> None:
        remedy = "lay it out so before the step, as p.grad.redistribute(placements=p.placements) does"
        check_alike(type(self).__name__, "a gradient", p.grad, p, remedy)

    def _gathered(self, params: Iterable[tuple[int, Any]]) -> Iterator[Weight]:
        """Whole parameters, one after the other; of a DTensor this rank's part is kept once it is stepped.

        All ranks of its mesh compute the whole step, in the same way.

        Raises:
            ArgumentTypeError: the gradient is laid out otherwise, or torch cannot gather the parameter.
        """
        for number, p in params:
            if not is_laid_out(p):
                yield Weight(number, p, p.grad, self.state[p])
                continue
            part = part_of(type(self).__name__, p)
            self._check_gradient(p)
            state = {key: whole(x) for key, x in self.state[p].items()}
            w = gathered(type(self).__name__, p, part)
            yield Weight(number, w, whole(p.grad), state)
            kept = local(p.detach())
            if w.data_ptr() != kept.data_ptr():
                kept.copy_(part.of(w))
            for key, x in state.items():
                if isinstance(x, torch.Tensor):
                    x = as_parameter(part.of(x), p) if x.shape == p.shape else as_replica(x, p)
                self.state[p][key] = x
            del w, state  # before the next ones come

    def _step_generally(self, weights: Iterable[Weight], group: dict[str, Any]) -> None:
        """With torch's arithmetic, and one call per weight."""
        for weight in weights:
            weight.state["step"] = weight.state.get("step", 0) + 1
            if group["maximize"]:
                weight = weight._replace(grad=-widened(weight.grad))
            self._step_one(weight, group, Key(group["seed"]).fold_in(weight.number))
            del weight  # which may be gathered

    def _step_one(self, weight: Weight, group: dict[str, Any], key: Key) -> None:
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
            names: of at most two moments, which are zeros at first.
            fits: can the core step a weight with its moments, whose memory is as it must be?
            step: the core's step; False if nothing was written.
        """
        rows, held = [], []
        for weight in weights:
            is_first = any(name not in weight.state for name in names)
            moments = [self._zeros(weight.p) if is_first else weight.state[name] for name in names]
            row = row_of(weight, is_first, moments) if fits(weight, moments) else None
            if row is None:
                return False
            rows.append(row)
            held.append(moments)
        if not step(rows):
            return False
        for weight, moments in zip(weights, held, strict=True):
            weight.state.update(zip(names, moments, strict=True))
        mark_written(weights, (each for moments in held for each in moments))
        return True

    def _zeros(self, like: Any) -> Any:
        return torch.zeros_like(like, dtype=self.moments, requires_grad=False)

    def _moment(self, state: dict[str, Any], name: str, like: Any) -> Any:
        """The moment, in fp32 or wider; zeros at first."""
        if name not in state:
            state[name] = self._zeros(like)
        return widened(state[name])

    def _keep(self, weight: Weight, name: str, value: Any, key: Key) -> None:
        """Store a moment; a narrow one is rounded stochastically, from a key of its own."""
        if value.dtype != self.moments:
            own = key.fold_in(name).at(weight.state["step"])
            value = cast(value, self.moments, key=own, offset=weight.offset)
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
                if isinstance(value, torch.Tensor):
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


def widened(x: Any) -> Any:
    return x if x.dtype in (torch.float32, torch.float64) else x.float()


def in_float32(weight: Weight, moments: Sequence[Any]) -> bool:
    """True if arithmetic in float32 gives the bits of the general way."""
    is_double = torch.float64 in (weight.p.dtype, weight.grad.dtype)
    return not is_double and all(each.dtype is torch.float32 for each in moments)


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
