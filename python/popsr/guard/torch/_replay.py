"""Steps that are made once more from the last state that ranks agreed on, with a check after each phase.

A difference that a phase makes is the first one if all that must agree did before it. Gradients before the update need
not agree by themselves, as an optimiser may reduce them itself: they count where the update then makes what they belong
to differ, and nothing agrees afterwards whose gradients differed.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from popsr._support.host.frameworks import framework
from popsr._support.text.one_line import one_line
from popsr._support.text.shown import shown
from popsr.errors import ArgumentTypeError, Error
from popsr.guard._finding import Finding, Replayed
from popsr.guard.torch._check import Batch, Checker, Table
from popsr.guard.torch._groups import Grouping
from popsr.guard.torch._hash import WHERE, device_hash, require_bytes
from popsr.guard.torch._items import OPTIMIZER, Item, gradient_items, is_inner_step, job_items, model_items
from popsr.guard.torch._kept import Generators, Kept, Settings, copied
from popsr.guard.torch._ranks import Ranks

__all__ = ["Job", "Replayer"]

_STATES, _ALL, _GRADIENTS = 1, 2, 3


@dataclasses.dataclass(frozen=True, slots=True)
class Job:
    """The parts of a guarded job, and which values belong to a check of it.

    Attributes:
        outer: the model as the job calls it.
        model: the module inside of wrappers.
        optimizers: of it; the last one counts steps.
        others: objects with ``state_dict`` that the step changes.
        ranks: of the group.
        grouping: ranks that should agree.
        gradients: gradients are compared at each check.
        rng: generators are.
    """

    outer: Any
    model: Any
    optimizers: tuple[Any, ...]
    others: tuple[Any, ...]
    ranks: Ranks
    grouping: Grouping
    gradients: bool
    rng: bool

    def table(self) -> Table:
        """All values of a check."""
        items = list(job_items(self.model, self.optimizers, gradients=self.gradients, rng=self.rng))
        # Gradients and states of an optimiser may come later; a pattern may name them before.
        names = [each.name for each in items]
        names += [f"{name}.grad" for name, _ in self.model.named_parameters()]
        states_come = any(not each.state for each in self.optimizers)
        self.grouping.require_used(names, OPTIMIZER if states_come else None)
        return Table(items, self.grouping)


@dataclasses.dataclass(frozen=True, slots=True)
class _Call:
    """A call of the job's step, with what it reads beside the kept state."""

    step: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    settings: Settings
    generators: Generators


class Replayer:
    """The last state that ranks agreed on, and the calls since.

    Attributes:
        is_running: steps are made once more now.
    """

    def __init__(self, job: Job) -> None:
        """Nothing is kept yet."""
        self._job = job
        self._kept: Kept | None = None
        self._since = 0
        self._calls: list[_Call] = []
        self.is_running = False

    def agree(self, step: int) -> None:
        """Keep the state at a step, at which hashes agree, instead of an earlier one."""
        self.drop()
        self._since, job = step, self._job
        self._kept = Kept(job.model, job.optimizers, job.others, gradients=False)

    def note(self, step: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Keep a call before it is made, with a copy of its batch.

        Raises:
            ArgumentTypeError: an argument gives another batch each time.
            UnsupportedError: an argument cannot be copied.
        """
        torch = framework(WHERE, "torch")
        for each in torch.utils._pytree.tree_leaves((args, kwargs)):
            if isinstance(each, Iterator):
                raise ArgumentTypeError(
                    f"{WHERE}: run: a step cannot be replayed from an iterator, got {shown(each)}, expected the batch"
                )
        if self._kept is not None:
            args, kwargs = copied("an argument of run", (args, dict(kwargs)))
            self._calls.append(_Call(step, args, kwargs, Settings(self._job.optimizers), Generators()))

    def drop(self) -> None:
        """Keep nothing until ranks agree again."""
        self._kept = None
        self._calls.clear()

    def replay(self) -> Replayed:
        """Make the steps since the last agreed state once more, and leave all values as they are now.

        Steps are replayed once: until ranks agree again nothing is kept.
        """
        kept, calls, phases = self._kept, list(self._calls), _Phases(self._job, self._since)
        self.drop()
        if kept is None or not calls:
            return Replayed(self._since, failure="no steps that run made are kept")
        self.is_running = True
        try:
            with self._as_before():
                return self._replay(kept, calls, phases)
        except Exception as error:  # of the job's own step, too
            kind = "" if isinstance(error, Error) else f"{type(error).__name__}: "
            failure = one_line(f"the replay failed, got {kind}{error}", 320)
            return dataclasses.replace(phases.result(), failure=failure)
        finally:
            self.is_running = False

    @contextlib.contextmanager
    def _as_before(self) -> Iterator[None]:
        """Leave all values as they are."""
        generators = Generators()
        live = Kept(self._job.model, self._job.optimizers, self._job.others, gradients=True)
        try:
            yield
        finally:
            live.put()
            generators.put()

    def _replay(self, kept: Kept, calls: list[_Call], phases: _Phases) -> Replayed:
        now = _hashes(self._job)
        kept.put()
        differ = phases.compare(_ALL, self._job.table)
        if differ is not None:
            return Replayed(
                self._since, failure=f"what was kept differs now: {differ}, so that nothing follows from it"
            )
        for call in calls:
            call.settings.put(self._job.optimizers)
            call.generators.put()
            phases.look("start", _ALL)
            with phases:
                call.step(*call.args, **call.kwargs)
            phases.look("end", _ALL)
        torch = framework(WHERE, "torch")
        mine = torch.tensor([_hashes(self._job) == now])
        ranks = self._job.ranks
        alike = ranks.gather(mine.to(torch.int64))[:, 0].tolist()
        others = tuple(ranks.globals[i] for i, each in enumerate(alike) if not each)
        return dataclasses.replace(phases.result(), others=others)


class _Phases:
    """Hooks of a job that compare after each phase, until a difference is found."""

    def __init__(self, job: Job, step: int) -> None:
        """Looks at steps after this one."""
        self._job, self._since, self._step = job, step, step
        self._checkers = {kind: Checker(job.ranks, kind) for kind in (_STATES, _ALL, _GRADIENTS)}
        self._hooks: list[Any] = []
        self._found: Replayed | None = None
        self._pending: tuple[Finding, list[str]] | None = None
        self._free: set[str] = set()
        self._left: dict[str, int] = {}
        self._begin = step

    def result(self) -> Replayed:
        """The first difference so far, or none."""
        return self._found or Replayed(self._since)

    def compare(self, kind: int, make: Callable[[], Table]) -> Finding | None:
        """The first difference between ranks now."""
        _, finding = self._checkers[kind].check(self._step, None, make, Batch(), None)
        return None if finding is None else dataclasses.replace(finding, step=None)

    def look(self, phase: str, kind: int) -> Finding | None:
        """Compare after a phase, if nothing was found before it."""
        if self._found is not None:
            return None
        make = self._job.table if kind == _ALL else self._states
        finding = self.compare(kind, make)
        if finding is not None:
            self._find(phase, finding)
        return finding

    def _find(self, phase: str, finding: Finding, remark: str = "") -> None:
        step = max(self._step, self._begin + 1) if phase == "end" else self._step + 1
        self._found = Replayed(self._since, step, phase, finding, remark)

    def __enter__(self) -> None:
        """Set the hooks, of which none is needed once there is a difference."""
        self._begin = self._step
        if self._found is not None:
            return
        self._hooks.append(self._job.outer.register_forward_hook(self._after_forward))
        for each in self._job.optimizers:
            self._hooks.append(each.register_step_pre_hook(self._before_update))
            self._hooks.append(each.register_step_post_hook(self._after_update))
        for name, parameter in self._job.model.named_parameters():
            if parameter.requires_grad and parameter.is_leaf:
                self._hooks.append(
                    parameter.register_post_accumulate_grad_hook(
                        lambda each, name=name: self._note(name, each)
                    )
                )

    def __exit__(self, *_: Any) -> None:
        """Take them away."""
        for each in self._hooks:
            each.remove()
        self._hooks.clear()
        self._left.clear()

    def _states(self) -> Table:
        return Table(list(model_items(self._job.model)), self._job.grouping)

    def _gradients(self) -> Table:
        items = [
            each
            for each in gradient_items(self._job.model)
            if each.of not in self._free and not _is_partial(each.value)
        ]
        return Table(items, self._job.grouping)

    def _note(self, name: str, parameter: Any) -> None:
        """Hash the gradient as the backward pass of this rank leaves it, before it is reduced."""
        if self._found is None and parameter.grad is not None:
            self._left[name] = _hash(parameter.grad)

    def _after_forward(self, *_: Any) -> None:
        self.look("forward", _STATES)

    def _before_update(self, optimizer: Any, *_: Any) -> None:
        if is_inner_step(optimizer):
            return
        self._pending = None
        self.look("backward", _STATES)
        if self._found is not None:
            return
        finding = self.compare(_GRADIENTS, self._gradients)
        if finding is not None:
            self._pending = finding, self._unreduced(finding)

    def _after_update(self, optimizer: Any, *_: Any) -> None:
        if is_inner_step(optimizer):
            return
        if self._found is None:
            self._decide(self.compare(_ALL, self._job.table))
        if optimizer is self._job.optimizers[-1]:
            self._step += 1

    def _decide(self, finding: Finding | None) -> None:
        """Tell a difference of the reduction from one of the update."""
        pending, self._pending = self._pending, None
        owners = () if pending is None else tuple(map(_owner, pending[0].names))
        differing = () if finding is None else finding.names
        agree = [each for each in owners if not any(_belongs(name, each) for name in differing)]
        self._free.update(agree)
        if finding is None:
            return
        if any(_belongs(finding.name, each) for each in self._free):
            self._find("update", finding, "its gradient differed before an update after which it agreed")
        elif pending is None:
            self._find("update", finding)
        elif agree:
            text = f"gradients of {len(owners)} values differed before it, and {len(agree)} of these values agree"
            self._find("update", finding, text)
        elif pending[1].count("all") == self._count():
            self._find("update", finding, "no gradient was reduced before it")
        else:
            first, unreduced = pending[0], pending[1][0]
            ranks = "each rank" if unreduced == "all" else f"ranks {one_line(unreduced, 80)}"
            remark = f"it is as the backward pass of {ranks} left it" if unreduced else ""
            self._find("reduction", first, remark)

    def _count(self) -> int:
        return sum(not each.missing for each in gradient_items(self._job.model))

    def _unreduced(self, finding: Finding) -> list[str]:
        """For each gradient of a finding the ranks on which it is as the backward pass left it, maybe all."""
        torch = framework(WHERE, "torch")
        of = dict(self._job.model.named_parameters())
        mine = []
        for owner in map(_owner, finding.names):
            gradient = of[owner].grad
            mine.append(gradient is not None and self._left.get(owner) == _hash(gradient))
        rows = self._job.ranks.gather(torch.tensor(mine).to(torch.int64)).T.tolist()
        found = []
        for row in rows:
            ranks = [str(self._job.ranks.globals[i]) for i, each in enumerate(row) if each]
            found.append("all" if len(ranks) == len(row) else ", ".join(ranks))
        return found


def _owner(name: str) -> str:
    return name.removesuffix(".grad")


def _is_partial(value: Any) -> bool:
    return any(each.is_partial() for each in getattr(value, "placements", ()))


def _belongs(name: str, owner: str) -> bool:
    """Whether a value is the parameter itself, its gradient, or a state of an optimiser of it."""
    head, _, rest = name.partition(".")
    is_state = head.startswith("optimizer") and rest.startswith(f"{owner}.")
    return is_state or name in (owner, f"{owner}.grad")


def _hash(value: Any) -> int:
    with framework(WHERE, "torch").no_grad():
        return int(device_hash(require_bytes("a value", value)))


def _hashes(job: Job) -> dict[str, tuple[int, str]]:
    """Hash and kind of each value of this rank."""
    found: dict[str, tuple[int, str]] = {}
    items: Iterator[Item] = job_items(job.model, job.optimizers, gradients=False, rng=job.rng)
    for each in items:
        if each.local is not None:
            found[each.name] = _hash(each.local), each.part
    return found
