"""The guard: a context around a training loop, a hook of an optimiser, or calls by hand."""

from __future__ import annotations

import dataclasses
import math
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from popsr._support.host.arguments import (
    read_bool,
    read_call,
    read_choice,
    read_int,
    read_number,
    read_path,
)
from popsr._support.host.frameworks import framework
from popsr._support.text.entry_points import public
from popsr._support.text.one_line import one_line
from popsr._support.text.shown import shown
from popsr.errors import ArgumentTypeError, AttributeValueError, DriftError, ReplicaWarning, StateError
from popsr.guard._finding import Checked, Finding, drift_error
from popsr.guard._keys import length_key
from popsr.guard.torch._check import Batch, Checker, Table
from popsr.guard.torch._groups import Grouping
from popsr.guard.torch._hash import WHERE, device_hash, require_bytes
from popsr.guard.torch._items import (
    is_inner_step,
    local_statistics,
    plain_model,
    plain_optimizer,
    require_plain,
)
from popsr.guard.torch._ranks import Ranks
from popsr.guard.torch._replay import Job, Replayer

__all__ = ["Guard", "guard"]

_BITS = (1 << 64) - 1


@public
def guard(
    model: Any,
    optimizer: Any = None,
    *,
    every: int = 100,
    groups: Any = None,
    mesh: Any = None,
    group: Any = None,
    batch: Any = None,
    gradients: bool = False,
    rng: bool = False,
    bisect: Any = False,
    on_drift: str = "raise",
    folder: str | os.PathLike[str] | None = None,
    log: Callable[[int, Checked], object] | None = None,
    timeout: float = 300.0,
) -> Guard:
    """Watch a training job: ranks that should hold a value with equal bits compare hashes of it as they train.

    All ranks of the group make the guard and enter it; nothing else stands in the loop::

        with guard(model, optimizer, every=100):
            for x, y in batches:
                ...
                optimizer.step()

    Values are compared when the context is entered, after every ``every`` steps of the optimiser, and when it is left
    without an exception. Instead of the context, ``optimizer.register_step_post_hook(g)`` or a call ``g()`` after each
    step count steps, and ``g.check()`` compares at once.

    Parameters, buffers, states and settings of the optimiser should agree on all ranks, and DTensors on those ranks
    that hold the same part by their placements. Running means of a BatchNorm that is not synchronised are of each
    rank's own batch, and left out; ``Checked.left_out`` has all names that are.

    Args:
        model: the module, also wrapped by ``DistributedDataParallel`` or ``fully_shard``.
        optimizer: the optimiser, or several, whose last one counts steps; ``step`` is of PyTorch's Optimizer. The
            wrapper of Accelerate is taken off.
        every: steps from check to check.
        groups: ranks that should agree, by pattern of names, for those that a pattern matches: ``"all"``, ``"none"``,
            sets as ``"{0,1}{2,3}"`` or lists of ranks, stride and size, or axes of ``mesh`` as ``"dp"``. Or a proof of
            ``popsr.prove``, or ``popsr.bridge.audit.DeclaredGroups``. Ranks are counted in the process group.
        mesh: the ``DeviceMesh`` whose axes ``groups`` and ``batch`` name.
        group: the process group. Default: that of ``DistributedDataParallel``, or all ranks.
        batch: ranks that are given one batch, as a group above; ranks of different groups must be given different ones,
            so ``"none"`` says that each rank has its own. Default: batches are not compared.
        gradients: gradients are compared too.
        rng: the states of PyTorch's generators are compared too.
        bisect: after a difference the steps since the last agreement are made once more, with checks after forward,
            backward, reduction and update: ``Finding.replayed`` names the first place. ``g.run(step, *batch)`` makes a
            step. Instead of True, objects with ``state_dict`` that steps change beside the model and the optimiser, as
            ``[scheduler, scaler]``.
        on_drift: ``"raise"`` on all ranks; ``"warn"`` and go on; ``"save"`` what differs, of all ranks, and raise.
        folder: of saved values: ``step_10/rank_3.pt``, which ``popsr.bridge.audit.audit`` reads.
        log: called on each rank with the step and the ``Checked`` of each check, before the error of a difference, as
            those of ``popsr.guard.log``.
        timeout: seconds for which a rank waits for the others.
    Raises:
        DriftError: hashes differ that should agree, when a check finds it.
        RankError: ranks have other values or steps, do not come, or ended, when a check finds it.
        StateError: there is no process group.
        ReplicaError: the group has one rank, or groups are of another number of ranks.
        UnsupportedError: a value has no bytes to compare.
    """
    settings = _Settings(every, batch is not None, gradients, rng, bisect, on_drift, folder, log)
    return Guard(model, optimizer, settings, (groups, mesh, group, batch), timeout)


class _Settings:
    """Arguments that are plain values."""

    def __init__(
        self,
        every: Any,
        batch: bool,
        gradients: Any,
        rng: Any,
        bisect: Any,
        on_drift: Any,
        folder: Any,
        log: Any,
    ) -> None:
        """Checks them."""
        self.every = read_int(f"{WHERE}: every", every, 1)
        self.batch = batch
        self.gradients = read_bool(f"{WHERE}: gradients", gradients)
        self.rng = read_bool(f"{WHERE}: rng", rng)
        self.bisect, self.others = _others(bisect)
        self.on_drift = read_choice(WHERE, "on_drift", on_drift, ("raise", "warn", "save"))
        self.folder = None if folder is None else read_path(WHERE, folder)
        if (self.on_drift == "save") != (self.folder is not None):
            raise AttributeValueError(
                f"{WHERE}: on_drift and folder do not go together, got {shown(on_drift)} and {shown(folder)}, expected "
                "'save' and a folder, or neither"
            )
        self.log = (lambda *_: None) if log is None else read_call(f"{WHERE}: log", log)


@public
class Guard:
    """A guard of a job, as ``guard`` makes it: a context, a hook, and checks by hand.

    Attributes:
        steps: that were counted so far.
    """

    def __init__(
        self,
        model: Any,
        optimizer: Any,
        settings: _Settings,
        groups: tuple[Any, Any, Any, Any],
        timeout: float,
    ) -> None:
        """Made by ``guard``."""
        torch = framework(WHERE, "torch")
        if not isinstance(model, torch.nn.Module):
            raise ArgumentTypeError(
                f"{WHERE}: model is not a module, got {shown(model)}, expected a torch.nn.Module"
            )
        self._optimizers = _optimizers(torch, optimizer)
        self._outer, self._settings = model, settings
        self._model, ddp = plain_model(model)
        require_plain(self._model, self._optimizers)
        declared, mesh, group, batch = groups
        ranks = Ranks(ddp if group is None else group, _timeout(timeout), _device(torch, self._model))
        self._ranks = ranks
        self._grouping = Grouping(declared, mesh, ranks, local_statistics(self._model))
        self._batch_groups: list[Any] | None = None
        self._batch_share = self._grouping.read(batch, "batch") if settings.batch else None
        self._checker = Checker(ranks)
        self.steps = 0
        self._since: int | None = None
        self._checked: int | None = None
        self._hooks: list[Any] = []
        self._is_open, self._told = False, False
        self._batch = Batch()
        self._job = Job(
            model,
            self._model,
            self._optimizers,
            settings.others,
            ranks,
            self._grouping,
            settings.gradients,
            settings.rng,
        )
        self._replayer = Replayer(self._job) if settings.bisect else None
        self._is_in_run, self._is_due = False, False

    def __enter__(self) -> Guard:
        """Compare all values, and watch the optimiser."""
        if self._is_open:
            raise StateError(
                f"{WHERE}: entered twice, got a guard that is open, expected one context at a time"
            )
        if not self._optimizers:
            raise StateError(
                f"{WHERE}: nothing counts steps, got no optimizer, expected one, or g() after each step"
            )
        self.check()
        self._is_open = True
        self._hooks.append(self._optimizers[-1].register_step_post_hook(self._after_step))
        if self._settings.batch:
            self._hooks.append(self._outer.register_forward_pre_hook(self._before_forward, with_kwargs=True))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Watch no more, and compare once more if steps came after the last check and nothing was raised."""
        for each in self._hooks:
            each.remove()
        self._hooks.clear()
        self._is_open = False
        try:
            if kind is None and self._checked != self.steps:
                self.check()
        finally:
            if self._replayer is not None:
                self._replayer.drop()

    def __call__(self, *hook: Any) -> None:
        """Count a step, and compare if it is time: a callback, or a hook of an optimiser."""
        if self._is_open:
            raise StateError(
                f"{WHERE}: a step would count twice, got a call inside of the context, expected the one or the other"
            )
        if not (hook and is_inner_step(hook[0])):
            self._count()

    def run(self, step: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Make a step, which can be made once more if the guard bisects, and compare after it if it is time.

        Args:
            step: the job's function for one step, which calls the model and the optimiser.
            args: its arguments, as the batch, which are copied; no iterators.
            kwargs: likewise.
        Returns:
            Its result.
        Raises:
            StateError: a guard that bisects is not open, or a step is made inside of one.
            ArgumentTypeError: ``step`` cannot be called, or an argument is an iterator.
            UnsupportedError: an argument cannot be copied.
        """
        function = read_call(f"{WHERE}: run: step", step)
        if self._replayer is None:
            return function(*args, **kwargs)
        if not self._is_open or self._is_in_run:
            got = "a step inside of a step" if self._is_in_run else "a guard that is not open"
            raise StateError(f"{WHERE}: run makes no step, got {got}, expected calls in the guard's context")
        self._replayer.note(function, args, kwargs)
        self._is_in_run = True
        try:
            result = function(*args, **kwargs)
        finally:
            self._is_in_run = False
        if self._is_due:
            self._compare(with_batch=self._settings.batch)
        return result

    def batch(self, *inputs: Any) -> None:
        """Note the batch of the step that begins, which a context does by itself from the inputs of the model.

        Raises:
            StateError: the guard compares no batches.
        """
        if not self._settings.batch:
            raise StateError(
                f"{WHERE}: batches are not compared, got a batch, expected guard(..., batch='none')"
            )
        if (self.steps + 1) % self._settings.every == 0:
            self._note(inputs)

    def check(self) -> Checked:
        """Compare all values now; all ranks of the group call it.

        Returns:
            What was compared; with ``on_drift="warn"`` maybe with a difference.
        Raises:
            DriftError: as of ``guard``.
            RankError: as of ``guard``.
            StateError: the process group was destroyed.
            UnsupportedError: a value has no bytes to compare.
        """
        return self._compare(with_batch=False)

    def _after_step(self, optimizer: Any, *_: Any) -> None:
        if not is_inner_step(optimizer):
            self._count()

    def _count(self) -> None:
        if self._replayer is not None:
            if self._replayer.is_running:
                return
            if not self._is_in_run:
                raise StateError(
                    f"{WHERE}: a step cannot be made once more, got one that run did not make, expected "
                    "g.run(step, *batch) with bisect"
                )
        self._reach(self.steps + 1)

    def _reach(self, step: int) -> None:
        """Count up to a step, which the optimiser may have skipped, and compare once if it was time."""
        if step > self.steps:
            is_time = step // self._settings.every > self.steps // self._settings.every
            self.steps = step
            if is_time and self._replayer is not None:
                self._is_due = True
            elif is_time:
                self._compare(with_batch=self._settings.batch)

    def _before_forward(self, module: Any, args: Any, kwargs: Any) -> None:
        if self._replayer is not None and self._replayer.is_running:
            return
        if module.training and (self.steps + 1) % self._settings.every == 0:
            self._note((args, kwargs))

    def _note(self, inputs: Any) -> None:
        torch = framework(WHERE, "torch")
        leaves = torch.utils._pytree.tree_leaves(inputs)
        found = self._batch.hash
        for each in leaves:
            if isinstance(each, torch.Tensor):
                local = require_bytes(f"{WHERE}: a batch", each)
                with torch.no_grad():
                    found = (found * length_key() + int(device_hash(local)) + len(local.shape)) & _BITS
        self._batch = Batch(found - (1 << 64) if found >> 63 else found, self._batch.count + 1)

    def _compare(self, with_batch: bool) -> Checked:
        batch = self._batch if with_batch else Batch()
        groups = self._gathered_batch_groups() if with_batch else None
        table, finding = self._checker.check(self.steps, self._since, self._job.table, batch, groups)
        self._batch, self._checked, self._is_due = Batch(), self.steps, False
        if finding is not None and self._since is not None and not finding.sentence:
            finding = self._replay(finding)
        checked = self._report(table, finding)
        if finding is None:
            self._since = self.steps
            if self._replayer is not None:
                self._replayer.agree(self.steps)
            self._tell_of_shards(checked)
            self._settings.log(self.steps, checked)
            return checked
        self._act(table, checked, drift_error(WHERE, finding))
        return checked

    def _gathered_batch_groups(self) -> list[Any]:
        if self._batch_groups is None:
            torch = framework(WHERE, "torch")
            assert self._batch_share is not None
            mine = torch.zeros(self._ranks.size, dtype=torch.int64)
            mine[list(self._batch_share.members)] = 1
            rows = self._ranks.gather(mine).tolist()
            self._batch_groups = [tuple(i for i, each in enumerate(row) if each) for row in rows]
        return self._batch_groups

    def _replay(self, finding: Finding) -> Finding:
        if self._replayer is None:
            return finding
        return dataclasses.replace(finding, replayed=self._replayer.replay())

    def _report(self, table: Table, finding: Finding | None) -> Checked:
        compared, left_out = [], dict(table.left_out)
        for item, kind in zip(table.items, table.kinds, strict=True):
            share = table.shares[kind]
            if len(share.members) > 1:
                compared.append(item.name)
            else:
                left_out[item.name] = share.reason
        return Checked(self.steps, self._ranks.size, tuple(compared), left_out, finding)

    def _tell_of_shards(self, checked: Checked) -> None:
        """Warn once where no parameter has a second copy: agreement says little then."""
        names = {name for name, _ in self._model.named_parameters()}
        if not self._told and names and not names & set(checked.compared):
            self._told = True
            warnings.warn(
                ReplicaWarning(
                    f"{WHERE}: no parameter is compared, as no two ranks hold the same part of one"
                ),
                stacklevel=2,
            )

    def _act(self, table: Table, checked: Checked, error: DriftError) -> None:
        if self._settings.on_drift == "warn":
            self._settings.log(self.steps, checked)
            text = "\n".join((str(error), *getattr(error, "__notes__", ())))
            warnings.warn(ReplicaWarning(text), stacklevel=2)
            return
        try:
            self._settings.log(self.steps, checked)
        except Exception as failure:  # of the user's function, which must not stand before the difference
            error.add_note(f"the check could not be logged: {one_line(str(failure), 160)}")
        if self._settings.folder is not None:
            _save(self._settings.folder, table, error.drift, self._ranks, error)
        raise error


def _save(folder: Path, table: Table, finding: Finding, ranks: Ranks, error: DriftError) -> None:
    """Write this rank's values under the names that differ; a note of the error says where, or that it failed."""
    torch = framework(WHERE, "torch")
    place = folder / f"step_{finding.step}" / f"rank_{ranks.rank}.pt"
    names = set(finding.names)
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        torch.save({each.name: each.local.cpu() for each in table.items if each.name in names}, place)
    except (OSError, RuntimeError) as failure:
        error.add_note(f"the values could not be saved: {failure}")
    else:
        error.add_note(f"the values of this rank are in {place}")


def _optimizers(torch: Any, optimizer: Any) -> tuple[Any, ...]:
    if optimizer is None:
        return ()
    given = tuple(optimizer) if isinstance(optimizer, (list, tuple)) else (optimizer,)
    found = tuple(map(plain_optimizer, given))
    for each in found:
        if not (isinstance(each, torch.optim.Optimizer) and hasattr(each, "_optimizer_step_post_hooks")):
            raise ArgumentTypeError(
                f"{WHERE}: not an optimiser, got {shown(each)}, expected a torch.optim.Optimizer or several"
            )
    return found


def _others(bisect: Any) -> tuple[bool, tuple[Any, ...]]:
    """Whether steps are replayed, and objects whose states go along."""
    if not isinstance(bisect, (list, tuple)):
        return read_bool(f"{WHERE}: bisect", bisect), ()
    for each in bisect:
        if not (
            callable(getattr(each, "state_dict", None)) and callable(getattr(each, "load_state_dict", None))
        ):
            raise ArgumentTypeError(
                f"{WHERE}: bisect: an object has no state to keep, got {shown(each)}, expected state_dict and "
                "load_state_dict"
            )
    return True, tuple(bisect)


def _timeout(timeout: Any) -> float:
    seconds = read_number(f"{WHERE}: timeout", timeout)
    if not (0 < seconds < math.inf):
        raise AttributeValueError(f"{WHERE}: timeout, got {shown(timeout)}, expected seconds above 0")
    return seconds


def _device(torch: Any, model: Any) -> Any:
    return next((each.device for each in model.parameters()), torch.device("cpu"))
