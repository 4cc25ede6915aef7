"""Trainings whose weights are rounded to nearest, stochastically or with compensated sums, beside fp32.

``python -m bench.training.bench_rounding [--tasks GPT] [--seeds 3]`` trains small networks on data that packages bring,
on one thread, and then ``python -m bench.tables`` writes the tables of docs/rounding_evidence.md. Networks compute in
fp32 from their weights, so that they differ by the weights and the optimiser alone; times are processor time, medians.
Losses are means over the seeds, and the largest distance of a seed from them. "Above fp32" is the loss of training less
that of fp32 with the same seed.

"Unmoved" is the share of weights that end as they began. "Resumed" says whether a new process that loads weights and
the optimiser's state of the middle ends with the bits of the run that went on.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import popsr
from bench.pictures import BLUE, GREEN, GREY, ORANGE, coloured, picture
from bench.programs.rounding_models import TASKS, batch_of, logits_of, loss_of, rate
from bench.record import Recorder, duration
from bench.sides.adamws import POPSR, TRAINED, held, set_rate

record = Recorder(Path(__file__))
RESUMED = 10  # steps of the runs that are stopped in the middle
JUDGED = 1000  # samples that losses are taken of, at most
SWEPT, CURVED = "MLP on digits", "GPT on characters"
SWEEP = f"{SWEPT}: training loss by the highest learning rate, half of the steps"
CURVE = f"{CURVED}: training loss, means of 25 steps"
RATES = (1e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2)
BASE = "fp32, torch"
SIDES = {BASE: GREY, "to nearest, torch": ORANGE, "Kahan, optimi": GREEN, POPSR: BLUE}
"""Sides of the picture, and their colours."""
SWEPT_SIDES = (BASE, "to nearest, torch", POPSR)


class Run:
    """A training that can be stopped and gone on with."""

    def __init__(self, task: str, side: str, seed: int, lr: float, steps: int) -> None:
        self.task, self.seed, self.lr, self.steps = TASKS[task], seed, lr, steps
        self.train, self.validation = self.task.data()
        torch.manual_seed(seed)
        self.model = self.task.model().to(TRAINED[side].dtype)
        self.first = [p.detach().clone() for p in self.model.parameters()]
        self.optimizer = TRAINED[side].make(self.model.parameters(), lr, seed)
        self.done = 0
        self.losses: list[float] = []
        self.times: list[tuple[float, float]] = []
        """Seconds of each step, and of the optimiser's part of it."""

    def go(self, until: int) -> Run:
        """Train up to a step."""
        for step in range(self.done, until):
            start = time.process_time()
            x, y = batch_of(self.train, self.task.batch, self.seed, step)
            set_rate(self.optimizer, rate(step, self.lr, self.steps))
            loss = loss_of(logits_of(self.model, x), y)
            loss.backward()
            middle = time.process_time()
            self.optimizer.step()
            end = time.process_time()
            self.optimizer.zero_grad()
            self.losses.append(loss.item())
            self.times.append((end - start, end - middle))
        self.done = until
        return self

    def save(self, file: str) -> None:
        """Write weights, the optimiser's state, and beside them torch's generator."""
        saved = {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}
        torch.save({**saved, "done": self.done, "random": torch.get_rng_state()}, file)

    def load(self, file: str, *, random: bool) -> Run:
        """Read what was saved, the generator if told so."""
        saved = torch.load(file)
        self.model.load_state_dict(saved["model"])
        self.optimizer.load_state_dict(saved["optimizer"])
        self.done = saved["done"]
        if random:
            torch.set_rng_state(saved["random"])
        return self

    def digest(self) -> str:
        """Hash of the bits of all weights and states."""
        weights = list(self.model.parameters())
        states = [
            v for p in weights for _, v in sorted(self.optimizer.state[p].items()) if torch.is_tensor(v)
        ]
        found = hashlib.sha256()
        for each in (*weights, *states):
            found.update(each.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
        return found.hexdigest()

    def weights(self) -> int:
        """Number of weights."""
        return sum(p.numel() for p in self.first)


@dataclass(frozen=True)
class Outcome:
    """Figures of a training."""

    training: float
    validation: float
    accuracy: float
    unmoved: float
    step: float
    optimiser: float
    bytes: float
    """Memory of weights and states, for each weight."""
    losses: list[float]


@torch.no_grad()
def outcome(run: Run) -> Outcome:
    """Losses of a run that is done, over samples that do not depend on the seed."""
    x, y = (each[:JUDGED] for each in run.train)
    unseen, labels = (each[:JUDGED] for each in run.validation)
    shown = logits_of(run.model, unseen)
    same = sum(int((p == q).sum()) for p, q in zip(run.model.parameters(), run.first, strict=True))
    steps, parts = zip(*run.times, strict=True)
    return Outcome(
        loss_of(logits_of(run.model, x), y).item(),
        loss_of(shown, labels).item(),
        (shown.argmax(-1) == labels).float().mean().item(),
        same / run.weights(),
        statistics.median(steps),
        statistics.median(parts),
        held(run.optimizer) / run.weights(),
        run.losses,
    )


def resumed_digest(task: str, side: str, file: str, random: bool) -> str:
    """Digest of a run that begins from a file, in a process of its own."""
    one_thread()
    return Run(task, side, 0, TASKS[task].lr, RESUMED).load(file, random=random).go(RESUMED).digest()


def resumed(task: str, side: str, pool: Any) -> str:
    """Cell of whether a run that is stopped in the middle ends with the bits of one that is not."""
    with tempfile.TemporaryDirectory() as folder:
        file = f"{folder}/checkpoint.pt"
        run = Run(task, side, 0, TASKS[task].lr, RESUMED).go(RESUMED // 2)
        run.save(file)
        expected = run.go(RESUMED).digest()
        for random, cell in ((False, "yes"), (True, "with torch's generator")):
            if pool.apply(resumed_digest, (task, side, file, random)) == expected:
                return cell
    return "no"


def trained(task: str, sides: Sequence[str], seeds: int, steps: int) -> dict[str, list[Outcome]]:
    """Outcomes of each side for each seed; sides take turns."""
    found: dict[str, list[Outcome]] = {side: [] for side in sides}
    for seed in range(seeds):
        for side in sides:
            run = Run(task, side, seed, TASKS[task].lr, steps)
            found[side].append(outcome(run.go(steps)))
            print(f"{task}, {side}, seed {seed}: {found[side][-1].training:.4f}", flush=True)
    return found


def spread(values: Sequence[float], digits: int = 3, factor: float = 1) -> str:
    """Mean, and the largest distance from it."""
    mean = statistics.fmean(values)
    most = max(abs(value - mean) for value in values)
    return f"{mean * factor:.{digits}f} ± {most * factor:.{digits}f}"


def add_rows(task: str, found: Mapping[str, list[Outcome]], resumes: Mapping[str, str]) -> None:
    """Rows of a table of a task."""
    bases = found[BASE]
    for side, each in found.items():
        cells = {
            "training loss": spread([one.training for one in each]),
            "above fp32": spread(
                [one.training - base.training for one, base in zip(each, bases, strict=True)]
            ),
            "validation loss": spread([one.validation for one in each]),
            "accuracy, %": spread([100 * one.accuracy for one in each], 1),
            "unmoved": f"{statistics.fmean(one.unmoved for one in each):.0%}",
            "step": duration(statistics.median(one.step for one in each)),
            "of it the optimiser": duration(statistics.median(one.optimiser for one in each)),
            "bytes a weight": f"{each[0].bytes:.0f}",
            "resumed": resumes[side],
        }
        record(task, side, **cells)


def add_curve(found: Mapping[str, list[Outcome]], width: int = 25) -> None:
    """Rows of the losses on the way, each a mean over the seeds and the last few steps."""
    curves = {side: [one.losses for one in each] for side, each in found.items() if side in SIDES}
    for end in range(width, len(next(iter(curves.values()))[0]) + 1, width):
        means = {
            side: statistics.fmean(loss for losses in each for loss in losses[end - width : end])
            for side, each in curves.items()
        }
        record(CURVE, str(end), **{side: f"{mean:.3f}" for side, mean in means.items()})


def sweep(seeds: int, steps: int) -> None:
    """Rows of losses of training by the learning rate."""
    for lr in RATES:
        cells, unmoved = {}, {}
        for side in SWEPT_SIDES:
            runs = [outcome(Run(SWEPT, side, seed, lr, steps).go(steps)) for seed in range(seeds)]
            cells[side] = spread([run.training for run in runs])
            unmoved[side] = f"{statistics.fmean(run.unmoved for run in runs):.0%}"
        nearest = {"unmoved to nearest": unmoved["to nearest, torch"]}
        record(SWEEP, f"{lr:.0e}".replace("e-0", "e-"), **cells, **nearest)


def draw() -> None:
    """Write the picture of what the file of results has: by the step, and by the learning rate, losses less fp32's."""
    tables = {table["title"]: table["runs"] for table in json.loads(record.path.read_text())}
    rows = {title: [row for run in runs for row in run["rows"]] for title, runs in tables.items()}
    with picture("rounding_evidence", (9.6, 4.2)) as figure:
        left, right = figure.subplots(1, 2)
        for axes, title, style in ((left, CURVE, "-"), (right, SWEEP, "o-")):
            cases = [float(row["case"]) for row in rows[title]]
            losses = {
                side: [float(row[side].split()[0]) for row in rows[title]]
                for side in SIDES
                if side in rows[title][0]
            }
            for side, values in losses.items():
                above = [value - base for value, base in zip(values, losses[BASE], strict=True)]
                axes.plot(cases, above, style, color=SIDES[side], label=side if axes is left else None)
        right.set_xscale("log")
        coloured(left, "steps of the GPT, means of 25", "training loss above fp32")
        coloured(right, "highest learning rate of the MLP", "training loss above fp32, at the end")
        figure.legend(loc="outside upper center", ncols=4, frameon=False, labelcolor=GREY)


def one_thread() -> None:
    torch.set_num_threads(1)
    popsr.set_num_threads(1)


def main() -> None:
    """Print the tables, and draw the picture once the results have what it shows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--tasks", nargs="+", default=["MLP", "ViT", "GPT", "rates"], help="their first words"
    )
    parser.add_argument("--seeds", type=int, default=3)
    args = parser.parse_args()
    one_thread()
    sides = [side for side, variant in TRAINED.items() if variant.is_here()]
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        for task in (each for each in TASKS if each.split()[0] in args.tasks):
            resumes = {side: resumed(task, side, pool) for side in sides}
            found = trained(task, sides, args.seeds, TASKS[task].steps)
            add_rows(task, found, resumes)
            if task == CURVED:
                add_curve(found)
    if "rates" in args.tasks:
        sweep(args.seeds, TASKS[SWEPT].steps // 2)
    record.save()
    kept = record.path.read_text()
    if f'"{CURVE}"' in kept and f'"{SWEEP}"' in kept:
        draw()


if __name__ == "__main__":
    main()
