"""Share of a guard in training: checks of a model under DistributedDataParallel beside its steps, on gloo.

``python -m bench.training.bench_guard [--bisect] [--parameters 100] [--ranks 2 4]`` trains a model of so many millions
of parameters with AdamW, and times steps and checks by turns in one run, in processor time of a rank, medians of
several. The share is that of one check in 100 steps.

With ``--bisect`` the same loop runs by turns without a guard, with one, and with one that bisects. Memory is what a
rank holds at most in a replay beyond what it held before the guard, over the bytes of parameters and the optimiser's
states.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bench.record import Recorder, at_most, duration, number
from popsr.guard.torch import guard

record = Recorder(Path(__file__))
EVERY, BISECTED = 100, 3  # steps in which there is a check, and that are replayed
WIDTH = 2048


class Job:
    """A rank of a job that trains, until it is left."""

    def __init__(self, rank: int, world: int, millions: float, store: str) -> None:
        import torch

        self.dist: Any = torch.distributed
        torch.set_num_threads(1)
        self.dist.init_process_group(
            "gloo", store=self.dist.FileStore(store, world), rank=rank, world_size=world
        )
        torch.manual_seed(0)
        layers = max(1, round(millions * 1e6 / WIDTH**2))
        self.model = torch.nn.parallel.DistributedDataParallel(
            torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH) for _ in range(layers)))
        )
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)
        self.x = torch.randn(8, WIDTH)
        self.parameters = sum(each.numel() for each in self.model.parameters())

    def step(self, x: Any) -> None:
        self.optimizer.zero_grad()
        self.model(x).square().mean().backward()
        self.optimizer.step()

    def __enter__(self) -> Job:
        return self

    def __exit__(self, *_: object) -> None:
        self.dist.barrier()
        self.dist.destroy_process_group()


def seconds(run: Callable[..., object], *args: object) -> float:
    start = time.process_time()
    run(*args)
    return time.process_time() - start


def rank_times(rank: int, world: int, millions: float, rounds: int, store: str, told: Any) -> None:
    """Send the processor time of steps and of checks, and the number of parameters."""
    with Job(rank, world, millions, store) as job:
        watch = guard(job.model, job.optimizer, every=EVERY)
        steps, checks = [], []
        for i in range(rounds + 1):
            step, check = seconds(job.step, job.x), seconds(watch.check)
            if i:
                steps.append(step)
                checks.append(check)
        if rank == 0:
            told.put((statistics.median(steps), statistics.median(checks), job.parameters))


def bisected_times(rank: int, world: int, millions: float, rounds: int, store: str, told: Any) -> None:
    """Send for each way to train the processor time of steps and of checks, and what a check with a replay takes.

    That is its processor time, and bytes at most beyond those before the guard.
    """
    with Job(rank, world, millions, store) as job:
        job.step(job.x)  # makes the optimiser's state
        names = ("no guard", "guard", "guard that bisects")
        ways: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in names}
        for i in range(rounds):
            for way in names[i % 3 :] + names[: i % 3]:
                steps, checks = ways[way]
                if way == "no guard":
                    steps += [seconds(job.step, job.x) for _ in range(BISECTED)]
                    continue
                with guard(job.model, job.optimizer, every=EVERY, bisect=way != "guard") as watch:
                    steps += [seconds(watch.run, job.step, job.x) for _ in range(BISECTED)]
                    checks.append(seconds(watch.check))
        plain = resident()
        with (
            warnings.catch_warnings(action="ignore"),
            guard(job.model, job.optimizer, every=EVERY, bisect=True, on_drift="warn") as watch,
        ):
            for _ in range(BISECTED):
                watch.run(job.step, job.x)
            if rank == 0:
                next(job.model.parameters()).data[0, 0] += 1
            with peak() as highest:
                replay = seconds(watch.check)
        if rank == 0:
            told.put((ways, replay, highest[0] - plain, job.parameters))


def resident() -> int:
    """Bytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@contextlib.contextmanager
def peak() -> Iterator[list[int]]:
    """Most bytes in memory meanwhile, as seen every few milliseconds."""
    highest, done = [resident()], threading.Event()

    def look() -> None:
        while not done.wait(0.005):
            highest[0] = max(highest[0], resident())

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield highest
    finally:
        done.set()
        thread.join()


def told_by_ranks(target: Callable[..., None], world: int, args: argparse.Namespace) -> Any:
    """The message of rank 0 of a job."""
    import multiprocessing

    start = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        told = start.Queue()
        parts = (world, args.parameters, args.rounds, f"{folder}/store", told)
        ranks = [start.Process(target=target, args=(rank, *parts)) for rank in range(world)]
        for each in ranks:
            each.start()
        message = told.get()
        for each in ranks:
            each.join()
    return message


def add_checks(world: int, args: argparse.Namespace) -> None:
    """A row of checks."""
    step, check, parameters = told_by_ranks(rank_times, world, args)
    share = check / (EVERY * step)
    goal = at_most(0.01, share, "{:.0%}".format)
    cells = {"step": duration(step), "check": duration(check), "share": f"{share:.2%}"}
    record("AdamW on gloo, a check in 100 steps", case(parameters, world), **cells, **goal)


def add_bisected(world: int, args: argparse.Namespace) -> None:
    """Rows of what each way to train costs, and one of a replay."""
    ways, replay, highest, parameters = told_by_ranks(bisected_times, world, args)
    table, state = f"AdamW on gloo, steps of `run`, and {BISECTED} steps replayed", 12 * parameters
    plain = statistics.median(ways["no guard"][0])
    for way, (steps, checks) in ways.items():
        step = statistics.median(steps)
        cells = {"step": duration(step), "ratio": number(step / plain)}
        if checks:
            check = statistics.median(checks)
            share = check / (EVERY * plain)
            cells |= {"check": duration(check), "share": f"{share:.2%}"}
        record(table, case(parameters, world), way, **cells)
    cells = {"check": duration(replay), "memory": f"{highest / state:.2f} of the state"}
    record(table, case(parameters, world), "check with a replay", **cells)


def case(parameters: int, world: int) -> str:
    return f"{parameters / 1e6:.0f} M parameters, {world} ranks"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parameters", type=float, default=100, help="millions of parameters")
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--bisect", action="store_true", help="guards that bisect, beside others and none")
    args = parser.parse_args()
    for world in args.ranks:
        (add_bisected if args.bisect else add_checks)(world, args)
    record.save()


if __name__ == "__main__":
    main()
