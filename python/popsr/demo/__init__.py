"""The main job, `python -m popsr demo`: train a small network on four replicas with three kinds of weights.

fp32, bf16 rounded to nearest and bf16 rounded stochastically, on real images, with the same keys. `data`
reads the images, `model` holds the two programs, `train` runs them and `report` prints and draws.
"""

import argparse
import importlib.util
import math
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from popsr._support.lazy import LazyModule

if TYPE_CHECKING:
    from popsr.demo import data, model, report, train
    from popsr.demo.data import Dataset
else:  # they need packages that are not always installed
    data, model, report, train = (
        LazyModule(f"popsr.demo.{name}") for name in ("data", "model", "report", "train")
    )

Number = TypeVar("Number", int, float)


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(prog="python -m popsr demo", description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    add("--data", type=Path, metavar="DIR", help="folder of IDX files, as MNIST's, .gz or not")
    add("--limit", type=int, default=6000, help="with --data: images to use at most (6000)")
    add("--out", type=Path, default=Path("popsr_demo.png"), help="figure to write (popsr_demo.png)")
    add("--keys", type=_list_of(int), default=[0, 1, 2, 3, 4], help="seeds of the runs (0,1,2,3,4)")
    add("--lrs", type=_list_of(float), default=[0.01, 0.03, 0.1], help="rates (0.01,0.03,0.1)")
    add("--epochs", type=int, help="passes over the images (20; with --data 5)")
    add("--quick", action="store_true", help="two keys, two epochs: to see that it works")
    add("--tables", action="store_true", help="print scores of all seeds, what is proved, and the speed")
    options = parser.parse_args(argv)
    if options.quick:
        options.keys = options.keys[:2]
    if options.epochs is None:
        options.epochs = 2 if options.quick else 5 if options.data else 20
    for wrong, reason in (
        (options.epochs < 1 or options.limit < 1, "--epochs and --limit must be at least 1"),
        (
            len({*options.keys}) != len(options.keys) or min(options.keys) < 0,
            "--keys must differ and be >= 0",
        ),
        (len({*options.lrs}) != len(options.lrs), "--lrs must differ"),
        (not all(0 < rate < math.inf for rate in options.lrs), "--lrs must be positive numbers"),
        (not options.out.parent.is_dir(), f"--out: there is no folder {options.out.parent}"),
    ):
        if wrong:
            parser.error(reason)
    return options


def _list_of(kind: type[Number]) -> Callable[[str], list[Number]]:
    def parse(text: str) -> list[Number]:
        return [kind(part) for part in text.split(",")]

    parse.__name__ = f"list of {kind.__name__}"  # argparse's errors say "invalid <name> value"
    return parse


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the demo; returns the exit code of the process."""
    options = arguments(argv)
    missing = [m for m in ("sklearn", "matplotlib", "tqdm") if importlib.util.find_spec(m) is None]
    if missing:
        print(f"the demo needs {', '.join(missing)}: pip install 'popsr[examples]'", file=sys.stderr)
        return 2
    try:
        images = data.idx_folder(options.data, options.limit) if options.data else data.digits()
    except (OSError, ValueError) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 2
    return run(images, options)


def run(images: "Dataset", options: argparse.Namespace) -> int:
    """Trains, then reports."""
    from tqdm import tqdm

    start = time.perf_counter()
    steps = train.steps_per_epoch(images)
    if steps == 0:
        print(
            f"demo: {len(images.x_train)} training images, expected at least {model.BATCH}", file=sys.stderr
        )
        return 2
    print(
        f"{images.name}: {len(images.x_train)} images to train, {len(images.x_test)} to test; "
        f"{'-'.join(map(str, (images.features, *model.HIDDEN, model.CLASSES)))} network with gelu; "
        f"{model.REPLICAS} replicas, micro batch {model.MICRO_BATCH}, {model.ACCUMULATION} accumulated"
    )
    results: dict[tuple[float, str], list[train.Curve]] = {}
    total = len(options.lrs) * len(model.RECIPES) * len(options.keys) * options.epochs
    with train.Evaluator(images) as evaluator, tqdm(total=total, unit="epoch", disable=None) as bar:
        for rate in options.lrs:
            for recipe in model.RECIPES:
                program = model.build_training(images.features, recipe, rate, steps)
                bar.set_description(f"lr {rate:g} {recipe.name}")
                results[rate, recipe.name] = [
                    train.train(program, images, key, options.epochs, evaluator, bar.update)
                    for key in options.keys
                ]
    forgetful = model.build_training(images.features, model.RECIPES[-1], options.lrs[0], steps, reduced=False)
    verdict = train.check_replicas(images, model.RECIPES[-1], options.lrs[0], options.keys[0])
    if options.tables:
        for table in (report.scores(results, options.keys, options.epochs), report.partitions(program)):
            print(table, end="\n\n")
        print(f"training speed, images/s: {report.speed(results)}\n")
    print(report.drift(forgetful))
    print(report.in_step(program, verdict))
    print(report.findings(results, options.keys, options.epochs))
    title = f"{images.name}: mean and s.d. over keys {', '.join(map(str, options.keys))}"
    report.figure(results, options.out, title)
    tables = "" if options.tables else "; --tables prints all figures"
    print(f"wrote the learning curves to {options.out}; {time.perf_counter() - start:.0f} s in all{tables}")
    return 0 if verdict.startswith("passed") else 1
