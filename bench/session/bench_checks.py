"""Cost of comparing claims while a program runs: the training program, each replica stored on its own."""

import contextlib
import functools

import popsr
from bench.programs import basic
from bench.sides import compare

REPLICAS = 4


def test_checked_runs(benchmark):
    program = basic.training(REPLICAS, 8, 4, 4)
    images, labels = basic.batches(REPLICAS, 8, 4, 4)
    inputs = {program.images: images, program.labels: labels}
    options = {
        "unchecked": {"dedup": False},
        "check=True": {"check": True},
        "check=0.01": {"check": 0.01},
    }
    with contextlib.ExitStack() as stack:
        sides = {}
        for name, given in options.items():
            session = stack.enter_context(popsr.Session(program.ir, **given))
            sides[name] = functools.partial(session.run, inputs)
        times = compare.by_turns(benchmark, sides)
    base = times["unchecked"]
    for name, goal in (("check=True", 2.0), ("check=0.01", 1.05)):
        best, median = times[name].best / base.best, times[name].median / base.median
        print(f"\n{name} against dedup=False: best {best:.2f}, median {median:.2f} (goal: {goal})")
