"""The tensors of a step: parameters, buffers, the optimiser's state and the batch, by path."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import inspect
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from popsr._support.text.shown import shown
from popsr.bridge.torch._ranks.same import key_of
from popsr.bridge.torch._states.around import Around, Beside, Slot
from popsr.bridge.torch._states.hooks import REPLACED, is_followed
from popsr.bridge.torch._states.kept import is_plain, plain_values
from popsr.bridge.torch._states.left import changed_options, check_groups, check_leaves, check_left
from popsr.bridge.torch._states.schedules import NewNumbers, Schedules
from popsr.bridge.torch._states.storage import as_views, sharing
from popsr.bridge.torch._states.watch import capturable_anywhere, watched
from popsr.bridge.torch._wrappers.dtensors import shapes_unrecorded
from popsr.bridge.torch._wrappers.sharded import sharding_objects
from popsr.errors import ArgumentTypeError, UnsupportedError

__all__ = ["Leaf", "StepCall", "no_gradient", "prepare_optimizer"]


@dataclass(frozen=True)
class Leaf:
    """One tensor.

    Attributes:
        path: its name for the user.
        role: "state", "data", or "number" that a scheduler gives in the step.
        owner: path of the parameter that it belongs to; its own for others.
        local: what this rank holds.
        layout: of a DTensor its mesh, placements, shape and strides; else None.
        trained: True for parameters with gradients.
        origin: of a number equal where ranks share it in all steps.
        held: ranks that hold it, or that read it of data; None if all do.
        name: the path that its ranks call it by, where others call another tensor so.
    """

    path: str
    role: str
    owner: str
    local: Any
    layout: Any = None
    trained: bool = False
    origin: Hashable = None
    held: tuple[int, ...] | None = None
    name: str = ""

    def rebuilt(self, local: Any) -> Any:
        """The object that the step works with, around a traced local tensor."""
        import torch

        if self.layout is None:
            return local
        from torch.distributed.tensor import DTensor

        mesh, placements, shape, stride = self.layout
        with torch.no_grad():
            made = DTensor.from_local(
                local, mesh, placements, run_check=False, shape=shape, stride=stride
            ).detach()
        return made.requires_grad_(self.trained)

    @property
    def is_sharded(self) -> bool:
        """True for a part of a DTensor that is cut along a mesh dimension."""
        return self.layout is not None and any(not each.is_replicate() for each in self.layout[1])

    def label(self) -> Hashable:
        """Of a DTensor the place of this rank along the mesh dimensions that it is cut along; else None."""
        if self.layout is None:
            return None
        mesh, placements, *_ = self.layout
        place = mesh.get_coordinate()
        return tuple(place[d] for d, each in enumerate(placements) if not each.is_replicate())


def _leaf(path: str, role: str, owner: str, t: Any, trained: bool = False) -> Leaf:
    layout = layout_of(t)
    return Leaf(path, role, owner, t.detach() if layout is None else t.detach().to_local(), layout, trained)


def layout_of(t: Any) -> Any:
    """Mesh, placements, shape and strides of a DTensor; None of other tensors."""
    return (t.device_mesh, tuple(t.placements), t.shape, t.stride()) if hasattr(t, "placements") else None


def path_of(name: str) -> str:
    """The path of a parameter or buffer of a model by its name, which has a part more for each compiled module."""
    return name.replace("_orig_mod.", "")


def local_of(t: Any) -> Any:
    """The part of a tensor that this rank holds."""
    return t._local_tensor if hasattr(t, "placements") else t


def prepare_optimizer(optimizer: Any, where: str) -> None:
    """Let an optimiser of torch make its state, as its first step would, where it has none yet.

    Raises:
        UnsupportedError: the momentum of the first step is not what a state of zeros gives.
    """
    import torch

    for group in optimizer.param_groups:
        params = [p for p in group["params"] if p.requires_grad and not optimizer.state.get(p)]
        if not params:
            continue
        initialise = getattr(optimizer, "_init_group", None)
        if initialise is None:
            continue
        grads = [p.grad for p in params]
        try:
            for p in params:
                p.grad = torch.zeros_like(p)
            own = {**group, "params": params}
            lists = list(inspect.signature(initialise).parameters)[1:]
            initialise(own, *(own[name] if isinstance(own.get(name), bool) else [] for name in lists))
        finally:
            for p, grad in zip(params, grads, strict=True):
                p.grad = grad
        if group.get("momentum") and isinstance(optimizer, torch.optim.SGD):
            if group["dampening"]:
                raise UnsupportedError(
                    f"{where}: the first step of SGD with dampening differs from the others, got an optimizer without "
                    "state, expected one after its first step"
                )
            for p in params:
                optimizer.state[p]["momentum_buffer"] = torch.zeros_like(p)


class StepCall:
    """A call of a step as a function of flat tensors.

    Args:
        step: the user's function.
        model: the module.
        optimizer: the optimiser or None.
        batch: what the step takes besides, tensors in any structure.
        where: the call, for messages.
    """

    def __init__(
        self, step: Callable[..., Any], model: Any, optimizer: Any, batch: Sequence[Any], where: str
    ) -> None:
        """The tensors as they are now."""
        import torch
        import torch.utils._pytree as trees

        self.step, self._optimizer, self._where = step, optimizer, where
        self.model = model
        self.results: list[str] = []
        self.layouts: dict[str, Any] = {}
        self.gradients: list[str] = []
        self.absent: list[str] = []
        self.keeps_gradients = False
        self.kept: Any = None
        self.tracer: Any = None
        self._of_gradients: list[str] = []
        self._replaced: set[str] = set()
        self._names: dict[Any, str] = {p: name for name, p in model.named_parameters()}
        named = [(path_of(name), p) for p, name in self._names.items()]
        leaves = [_leaf(path, "state", path, p, p.requires_grad) for path, p in named]
        named = [(path_of(name), b) for name, b in model.named_buffers()]
        leaves += [_leaf(path, "state", path, b) for path, b in named]
        self._state = [] if optimizer is None else list(self._state_entries(optimizer))
        leaves += [_leaf(path, "state", path_of(self._names[p]), value) for path, p, _, value in self._state]
        self._options = [] if optimizer is None else list(_tensor_options(optimizer))
        leaves += [_leaf(path, "state", path, group[key]) for path, group, key in self._options]
        flat, self._spec = trees.tree_flatten_with_path(tuple(batch))
        self._batch = [value for _, value in flat]
        names = _argument_names(step, 1 if optimizer is None else 2, len(batch))
        self._places = [i for i, value in enumerate(self._batch) if isinstance(value, torch.Tensor)]
        for i in self._places:
            key: Any = flat[i][0]
            path = names[key[0].idx] + trees.keystr(key[1:])
            leaves.append(_leaf(path, "data", path, self._batch[i]))
        self.leaves = leaves
        self.schedules = Schedules(optimizer, where)
        self.around = Around(step, model, optimizer, batch, where)
        self.add_states(self.around.slots)
        self.shared = sharing(leaves)

    def add_states(self, slots: Sequence[Slot]) -> None:
        """Let tensors outside of the model be states, after the others."""
        self.begin_with_gradients([])
        self.keeps_gradients = False
        known = {slot.path for slot in self.around.slots}
        self.around.slots += [slot for slot in slots if slot.path not in known]
        states = sum(leaf.role == "state" for leaf in self.leaves) - len(self.schedules.begun)
        added = [
            _leaf(slot.path, "state", slot.path, slot.tensor, slot.tensor.requires_grad)
            for slot in slots
            if slot.path not in {leaf.path for leaf in self.leaves}
        ]
        self.leaves = [*self.leaves[:states], *added, *self.leaves[states:]]
        self.shared = sharing(self.leaves)

    def add_numbers(self, new: NewNumbers) -> None:
        """Let numbers that a scheduler sets in the step be inputs after all others, and those it begins with states."""
        self.schedules.add(new)
        self._take_numbers()

    def beside(self) -> Beside:
        """Tensors beside the model that are states, and numbers of schedulers."""
        return Beside([slot.path for slot in self.around.slots], list(self.schedules.numbers))

    def add_beside(self, found: Beside) -> bool:
        """Add what other ranks have found beside the model, which this one leaves as it is; True if there is some."""
        slots = self.around.named(found.paths) if set(found.paths) - set(self.beside().paths) else []
        numbers = self.schedules.add_unset(found.numbers)
        if slots:
            self.add_states(slots)
        if numbers:
            self._take_numbers()
        return bool(slots or numbers)

    def _take_numbers(self) -> None:
        import torch

        self.begin_with_gradients([])
        self.keeps_gradients = False
        leaves = [leaf for leaf in self.leaves if leaf.origin is None]
        made = [
            Leaf(
                each.path,
                "number" if each.time else "state",
                each.path,
                torch.tensor(each.value, dtype=torch.float64),
                origin=each.origin,
            )
            for each in self.schedules.numbers
        ]
        states, begun = sum(leaf.role == "state" for leaf in leaves), len(self.schedules.begun)
        self.leaves = [*leaves[:states], *made[:begun], *leaves[states:], *made[begun:]]
        self.shared = sharing(self.leaves)

    @property
    def objects(self) -> list[Any]:
        """Modules with their shards and the optimiser, whose attributes a step may change."""
        optimizers = [] if self._optimizer is None else [self._optimizer]
        return [*self.model.modules(), *sharding_objects(self.model), *optimizers, *self.around.objects]

    def plain_values(self) -> dict[str, Hashable]:
        """Numbers and texts of Python that the step may count with, as they are now."""
        return plain_values(self.model, self._optimizer, self.step)

    def labels(self) -> list[Hashable | None]:
        """Labels of the inputs: equal ones for counters of the optimizer that begin alike, None for others."""
        return [
            key_of((leaf.path.rsplit(".", 1)[-1], leaf.local))
            if leaf.path.startswith("optimizer.")
            and leaf.role == "state"
            and leaf.local.numel() == 1
            and leaf.origin is None
            else None
            for leaf in self.leaves
        ]

    def begin_with_gradients(self, names: list[str]) -> None:
        """Let gradients that a call left, of parameters by name, be states, of zeros."""
        import torch

        self._of_gradients = names
        self.leaves = [leaf for leaf in self.leaves if leaf.path not in self.absent]
        paths = [path_of(name) for name in names]
        self.absent = [f"{path}.grad" for path in paths]
        owners = {leaf.path: leaf for leaf in self.leaves}
        made = [
            dataclasses.replace(
                owners[path], path=f"{path}.grad", local=torch.zeros_like(owners[path].local), trained=False
            )
            for path in paths
        ]
        count = sum(leaf.role == "state" for leaf in self.leaves)
        self.leaves = [*self.leaves[:count], *made, *self.leaves[count:]]
        self.shared = sharing(self.leaves)

    def _state_entries(self, optimizer: Any) -> Iterator[tuple[str, Any, str, Any]]:
        import torch

        for group in optimizer.param_groups:
            for p in group["params"]:
                if p not in self._names:
                    raise ArgumentTypeError(
                        f"{self._where}: the optimizer has a parameter that is not the model's, got shape "
                        f"{tuple(p.shape)}, expected parameters of model.parameters()"
                    )
                for key, value in optimizer.state.get(p, {}).items():
                    if isinstance(value, torch.Tensor):
                        yield f"optimizer.{path_of(self._names[p])}.{key}", p, key, value

    def inputs(self) -> list[Any]:
        """A tensor for each leaf, to trace with."""
        found = []
        for leaf in self.leaves:
            t = leaf.local.detach().clone()
            found.append(t.requires_grad_(leaf.trained and leaf.layout is None))
        return found

    def __call__(self, *tensors: Any) -> list[Any]:
        """New values of all states, then the results."""
        import torch.utils._pytree as trees
        from torch.fx.experimental.proxy_tensor import get_innermost_proxy_mode

        self.tracer = getattr(get_innermost_proxy_mode(), "tracer", None)
        tensors = tuple(as_views(self.shared, self.leaves, tensors))
        with shapes_unrecorded():
            values = [leaf.rebuilt(t) for leaf, t in zip(self.leaves, tensors, strict=True)]
        given = iter(values)
        named = {name: _as_parameter(next(given)) for name in self._names.values()}
        buffers = {name: next(given) for name, _ in self.model.named_buffers()}
        state = {(p, key): next(given) for _, p, key, _ in self._state}
        options = [next(given) for _ in self._options]
        around = [next(given) for _ in self.around.slots]
        numbers = [next(given) for _ in self.schedules.begun]
        attributes = {name: set(vars(p)) for name, p in named.items()}
        for name in self._replaced:
            setattr(named[name], REPLACED, True)
        gradients = {name: next(given) for name in self._of_gradients}
        for name, value in gradients.items():
            named[name].grad = value
        batch = list(self._batch)
        for i in self._places:
            batch[i] = next(given)
        numbers += given
        arguments = trees.tree_unflatten(batch, self._spec)
        from torch.nn.utils import stateless

        with (
            stateless._reparametrize_module(self.model, {**named, **buffers}, tie_weights=True),
            self._optimizing(named, state, options),
            capturable_anywhere(),
            self.schedules.traced(numbers),
            self.around.replaced(around),
            watched(self._unread(), tensors, self.kept),
        ):
            if self._optimizer is None:
                made = self.step(self.model, *arguments)
            else:
                made = self.step(self.model, self._optimizer, *arguments)
            check_left(self.model, named, buffers, attributes, self._where)
            after = {**dict(self.model.named_parameters()), **dict(self.model.named_buffers())}
            now = [after[name] for name in (*named, *buffers)]
            now += self._new_state()
            now += [group[key] for _, group, key in self._options]
            now += self.around.now()
            now += self.schedules.left()
            now += [self._gradient(name, after, value) for name, value in gradients.items()]
            checked = len(now) if self.keeps_gradients else len(now) - len(self._of_gradients)
            check_leaves(self.leaves, now[:checked], self.shared, self._where)
            new = [local_of(value) for value in now]
            self._replaced |= {name for name, p in named.items() if after[name] is not p}
            self.gradients = [name for name in named if after[name].grad is not None]
        found, _ = trees.tree_flatten_with_path(made)
        kept = [(path, value) for path, value in found if _is_traced(value)]
        self.results = [f"result{trees.keystr(path)}" for path, _ in kept]
        self.layouts = {
            name: layout
            for name, (_, value) in zip(self.results, kept, strict=True)
            if (layout := layout_of(value)) is not None
        }
        return [*new, *(local_of(value) for _, value in kept)]

    @contextlib.contextmanager
    def _optimizing(
        self, named: dict[str, Any], state: dict[tuple[Any, str], Any], options: list[Any]
    ) -> Iterator[None]:
        """Let the optimiser work on traced tensors."""
        optimizer = self._optimizer
        if optimizer is None:
            yield
            return
        # a parameter that the step before made anew is not the optimizer's, which has one that must not be used
        self._held = {p: p if name in self._replaced else named[name] for p, name in self._names.items()}
        kept_state, kept = optimizer.state, [(group, dict(group)) for group in optimizer.param_groups]
        self._groups = kept
        try:
            optimizer.state = collections.defaultdict(dict)
            for p, values in kept_state.items():
                if p in self._names:
                    traced = {key: state.get((p, key), value) for key, value in values.items()}
                    optimizer.state[self._held[p]] = traced
            for (_, group, key), value in zip(self._options, options, strict=True):
                group[key] = value
            for group, old in kept:
                group["params"] = [self._held[p] for p in old["params"]]
            self._before = {p: dict(values) for p, values in optimizer.state.items()}
            yield
        finally:
            optimizer.state = kept_state
            for number, (group, old) in enumerate(kept):
                of_schedules = {key for key in old if self.schedules.sets(number, key)}
                given = {k: v for k, v in old.items() if k in of_schedules or not _is_setting(v)}
                left = {k: v for k, v in group.items() if k not in of_schedules and _is_setting(v)}
                group.clear()
                group.update(left | given)

    def _unread(self) -> dict[Any, str]:
        """Parameters that do not stand for those of this step: DTensors, and those that the step before made anew."""
        return {p: name for p, name in self._names.items() if name in self._replaced or not is_followed(p)}

    def _gradient(self, name: str, after: Mapping[str, Any], given: Any) -> Any:
        """A gradient that the step keeps for the next one.

        Raises:
            UnsupportedError: there is none after the step.
        """
        found = after[name].grad
        if found is None and self.keeps_gradients:
            raise no_gradient(name, self._where)
        return given if found is None else found

    def _new_state(self) -> list[Any]:
        """The optimiser's state after the step.

        Raises:
            UnsupportedError: it has other entries than before, or numbers of Python that changed.
        """
        if self._optimizer is None:
            return []
        params = [[self._held[p] for p in old["params"]] for _, old in self._groups]
        check_groups(self._optimizer.param_groups, [group for group, _ in self._groups], params, self._where)
        for number, (group, old) in enumerate(self._groups):
            for key, value, now in changed_options(old, group):
                if self.schedules.sets(number, key) or (_is_setting(value) and _is_setting(now)):
                    continue
                then = "a number of the step" if _is_traced(now) else shown(now)
                raise UnsupportedError(
                    f"{self._where}: the step sets an option of the optimizer to what depends on data or is of another "
                    f"kind, got {shown(key)} {shown(value)} and then {then}, expected a number that does not depend on "
                    "data, a scheduler made before the step, or a tensor as option, written in place"
                )
        found = []
        for p, values in self._optimizer.state.items():
            before = self._before.get(p, {})
            for key, _, value in changed_options(before, values):
                is_new = key not in before
                if not is_new or value is not None:
                    raise UnsupportedError(
                        f"{self._where}: the step {'makes' if is_new else 'changes'} state that is not a tensor of the "
                        f"optimizer before it, got {shown(key)}, expected an optimizer after its first step, with "
                        "tensors as state"
                    )
        for path, p, key, _ in self._state:
            values = self._optimizer.state.get(self._held[p], {})
            if key not in values:
                raise UnsupportedError(
                    f"{self._where}: the step removes state of the optimizer, got {path}, expected the same tensors "
                    "before and after each step; fill them with zeros to begin anew"
                )
            found.append(values[key])
        return found


def no_gradient(name: str, where: str) -> UnsupportedError:
    """The error of a gradient that is there after one step and not after the next."""
    return UnsupportedError(
        f"{where}: only every other step leaves a gradient, got none of {shown(name)}, expected "
        "zero_grad at the same place in each step"
    )


def _as_parameter(t: Any) -> Any:
    """A traced tensor that modules take for a parameter, so that ``model.weight -= ...`` assigns it."""
    t._is_param = True
    return t


def _is_setting(value: Any) -> bool:
    """True for an option that is a number or a text, or several: the next step begins with what a step sets."""
    return all(is_plain(each) for each in value) if isinstance(value, tuple) else is_plain(value)


def _is_traced(value: Any) -> bool:
    import torch

    return isinstance(value, torch.Tensor | torch.SymFloat | torch.SymInt | torch.SymBool)


def _tensor_options(optimizer: Any) -> Iterator[tuple[str, Any, str]]:
    """Options of the groups of parameters that are tensors, such as a learning rate."""
    import torch

    for i, group in enumerate(optimizer.param_groups):
        for key, value in group.items():
            if isinstance(value, torch.Tensor):
                yield f"optimizer.param_groups[{i}].{key}", group, key


def _argument_names(step: Callable[..., Any], skipped: int, count: int) -> list[str]:
    """Names of the arguments of a step after the model and the optimiser."""
    try:
        parameters = list(inspect.signature(step).parameters.values())[skipped:]
    except (TypeError, ValueError):
        parameters = []
    names = [p.name for p in parameters if p.kind is not inspect.Parameter.VAR_POSITIONAL][:count]
    return names + [f"batch[{i}]" for i in range(len(names), count)]
