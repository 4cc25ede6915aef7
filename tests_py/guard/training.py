"""Trainings of frameworks with a guard, and what goes wrong in them; each function runs on every rank."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from popsr.errors import DriftError, Error
from popsr.guard.torch import guard
from tests_py.guard.jobs import flip

__all__ = ["outcomes"]

STEPS = 5
SPOILED = 3  # the step in which a bit flips, if one does


class Model(nn.Module):
    """Two layers, whose loss both a Trainer and Lightning take."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.inner = nn.Linear(8, 16)
        self.outer = nn.Linear(16, 4)

    def forward(self, x: Any) -> Any:
        return {"loss": self.outer(self.inner(x).relu()).square().mean()}


def spoil(model: Model, step: int, broken: bool) -> None:
    if broken and step == SPOILED and dist.get_rank() == 2:
        flip(model.outer.weight, 11, 3)


def outcomes(framework: str) -> dict[str, Any]:
    """The result of each case of a framework, or its error."""
    return {name: _caught(case) for name, case in globals()[framework]()}


def _caught(case: Callable[[], Any]) -> Any:
    try:
        return case()
    except DriftError as error:
        drift = error.drift
        return "DriftError", drift.step, drift.since, drift.name, drift.found, drift.element
    except Error as error:
        return type(error).__name__, str(error)


def transformers() -> Iterator[tuple[str, Callable[[], Any]]]:
    from accelerate.state import AcceleratorState, GradientState
    from transformers import Trainer, TrainerCallback, TrainingArguments

    from popsr.guard.transformers import GuardCallback

    class Spoil(TrainerCallback):  # type: ignore[misc]
        def __init__(self, broken: bool, more: Any = None) -> None:
            self.broken, self.more = broken, more

        def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **given: Any) -> None:
            spoil(given["model"], state.global_step + 1, self.broken)
            if self.more is not None and state.global_step == 1:
                trainer.add_callback(self.more)
                self.more = None

    trainer: Any = None

    def train(*callbacks: Any) -> None:
        nonlocal trainer
        with tempfile.TemporaryDirectory() as folder:
            AcceleratorState._reset_state(reset_partial_state=True)
            GradientState._reset_state()
            options = TrainingArguments(
                folder,
                use_cpu=True,
                ddp_backend="gloo",
                max_steps=STEPS,
                per_device_train_batch_size=2,
                learning_rate=0.01,
                save_strategy="no",
                report_to=[],
                disable_tqdm=True,
                dataloader_pin_memory=False,
            )
            data = [{"x": torch.full((8,), i / 40)} for i in range(2 * 4 * STEPS)]
            trainer = Trainer(Model(), options, train_dataset=data, callbacks=[*callbacks])
            trainer.train()

    yield from _cases(GuardCallback, Spoil, train)


def lightning() -> Iterator[tuple[str, Callable[[], Any]]]:
    import lightning.pytorch as pl
    from lightning.pytorch.strategies import DDPStrategy

    from popsr.guard.lightning import GuardCallback

    class Module(pl.LightningModule, Model):  # type: ignore[misc]
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            return self(batch)["loss"]

        def configure_optimizers(self) -> Any:
            return torch.optim.AdamW(self.parameters(), lr=0.01)

    class Spoil(pl.Callback):  # type: ignore[misc]
        def __init__(self, broken: bool, more: Any = None) -> None:
            self.broken, self.more = broken, more

        def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
            spoil(pl_module, trainer.global_step + 1, self.broken)
            if self.more is not None and trainer.global_step == 1:
                trainer.callbacks.append(self.more)
                self.more = None

    def train(*callbacks: Any) -> None:
        trainer = pl.Trainer(
            accelerator="cpu",
            devices=dist.get_world_size(),
            strategy=DDPStrategy(process_group_backend="gloo"),
            max_steps=STEPS,
            callbacks=[*callbacks],
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        data: Any = [torch.full((8,), i / 40) for i in range(2 * 4 * STEPS)]
        trainer.fit(Module(), torch.utils.data.DataLoader(data, batch_size=2))

    yield from _cases(GuardCallback, Spoil, train)


def _cases(
    callback: Callable[..., Any], spoiler: Callable[..., Any], train: Callable[..., None]
) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Cases of a framework that has callbacks."""
    kept = callback(every=2, timeout=120)

    def right() -> Any:
        checks: list[tuple[int, bool]] = []
        train(
            callback(every=2, batch="none", timeout=120, log=lambda step, it: checks.append((step, bool(it))))
        )
        return checks

    yield "right", right
    yield "flipped", lambda: train(spoiler(True), kept)
    yield "again", lambda: train(spoiler(False), kept)  # after an error
    yield "twice", lambda: train(kept, kept)
    yield "late", lambda: train(spoiler(False, callback(every=2, timeout=120)))
    yield "unknown", lambda: callback(evry=2)


def accelerate() -> Iterator[tuple[str, Callable[[], Any]]]:
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState, GradientState

    def train(broken: bool, **options: Any) -> None:
        AcceleratorState._reset_state(reset_partial_state=True)
        GradientState._reset_state()
        accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
        plain = Model()
        model, optimizer = accelerator.prepare(plain, torch.optim.AdamW(plain.parameters(), lr=0.01))
        with guard(model, optimizer, every=2, timeout=120, **options):
            for batch in range(2 * STEPS):
                with accelerator.accumulate(model):
                    accelerator.backward(model(torch.full((2, 8), batch + dist.get_rank() / 4))["loss"])
                    spoil(plain, (batch + 1) // 2, broken)
                    optimizer.step()
                    optimizer.zero_grad()

    def right() -> Any:
        checks: list[tuple[int, bool]] = []
        train(False, batch="none", log=lambda step, it: checks.append((step, bool(it))))
        return checks

    yield "right", right
    yield "flipped", lambda: train(True)


def torchtitan() -> Iterator[tuple[str, Callable[[], Any]]]:
    """A stand-in: importing torchtitan's own Trainer needs Triton, and so a GPU."""
    from popsr.guard.torchtitan import guard as watch

    class Trainer:
        """Attributes that the guard reads of torchtitan's Trainer, and a loop that goes on from a checkpoint."""

        def __init__(self, broken: bool = False) -> None:
            self.broken, self.step = broken, 0
            self.model_parts = [nn.parallel.DistributedDataParallel(Model())]
            optimizers = [torch.optim.AdamW(self.model_parts[0].parameters(), lr=0.01)]
            self.optimizers = SimpleNamespace(optimizers=optimizers)

        def train_step(self, data: Iterator[Any]) -> None:
            [model], [optimizer] = self.model_parts, self.optimizers.optimizers
            optimizer.zero_grad()
            model(next(data))["loss"].backward()
            spoil(model.module, self.step - 100, self.broken)
            optimizer.step()

        def train(self) -> None:
            self.step = 100
            data = iter(torch.rand(STEPS, 2, 8))
            for _ in range(STEPS):
                self.step += 1
                self.train_step(data)

    def right() -> Any:
        checks: list[tuple[int, bool]] = []
        trainer = Trainer()
        options: Any = {"every": 2, "timeout": 120}
        with watch(trainer, **options, log=lambda step, it: checks.append((step - 100, bool(it)))):
            trainer.train()
        assert "train_step" not in vars(trainer)
        return checks

    def train(trainer: Any, **options: Any) -> None:
        with watch(trainer, every=2, timeout=120, **options):
            trainer.train()

    def twice() -> None:
        trainer = Trainer()
        with watch(trainer):
            train(trainer)

    def stages() -> None:
        trainer = Trainer()
        trainer.model_parts *= 2
        train(trainer)

    yield "right", right
    yield "flipped", lambda: train(Trainer(broken=True))
    yield "twice", twice
    yield "unknown", lambda: train(Trainer(), evry=2)
    yield "bisect", lambda: train(Trainer(), bisect=True)
    yield "stages", stages
    yield "no trainer", lambda: train(nn.Linear(2, 2))
