"""Share of a guard in training: checks of a model under DistributedDataParallel beside its steps, on gloo.

``python -m bench.training.bench_guard [--parameters 100] [--ranks 2 4]`` trains a model of so many millions of
parameters with AdamW, and times steps and checks by turns in one run, in processor time of a rank, medians of several.
The share is that of one check in 100 steps.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.record import Recorder, at_most, duration
from popsr.guard.torch import guard

record = Recorder(Path(__file__))
EVERY = 100
WIDTH = 2048


def rank_times(rank: int, world: int, millions: float, rounds: int, store: str, told: Any) -> None:
    """Send the processor time of steps and of checks, and the bytes that are checked."""
    import torch

    dist: Any = torch.distributed

    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=dist.FileStore(store, world), rank=rank, world_size=world)
    torch.manual_seed(0)
    layers = max(1, round(millions * 1e6 / WIDTH**2))
    model = torch.nn.parallel.DistributedDataParallel(
        torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH) for _ in range(layers)))
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    watch = guard(model, optimizer, every=EVERY)
    x = torch.randn(8, WIDTH)
    steps, checks = [], []
    for i in range(rounds + 1):
        start = time.process_time()
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
        middle = time.process_time()
        watch.check()
        if i:
            steps.append(middle - start)
            checks.append(time.process_time() - middle)
    parameters = sum(each.numel() for each in model.parameters())
    if rank == 0:
        told.put((statistics.median(steps), statistics.median(checks), parameters))
    dist.barrier()
    dist.destroy_process_group()


def main() -> None:
    """Print the table."""
    import multiprocessing

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parameters", type=float, default=100, help="millions of parameters")
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    start = multiprocessing.get_context("spawn")
    for world in args.ranks:
        with tempfile.TemporaryDirectory() as folder:
            told = start.Queue()
            parts = (world, args.parameters, args.rounds, f"{folder}/store", told)
            ranks = [start.Process(target=rank_times, args=(rank, *parts)) for rank in range(world)]
            for each in ranks:
                each.start()
            step, check, parameters = told.get()
            for each in ranks:
                each.join()
        share = check / (EVERY * step)
        goal = at_most(0.01, share, "{:.0%}".format)
        cells = {"step": duration(step), "check": duration(check), "share": f"{share:.2%}"}
        record(
            "AdamW on gloo, a check in 100 steps",
            f"{parameters / 1e6:.0f} M parameters, {world} ranks",
            **cells,
            **goal,
        )
    record.save()


if __name__ == "__main__":
    main()
