"""The programs of the golden digests: examples, test programs and random programs, as functions that build them.

Programs are taken as they stand in their files. Execution stops where a file makes its session, and all data is
replaced then (``golden.digest``). Data sets that a file loads are replaced by small integers.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import math
import runpy
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import numpy as np

import popsr
from popsr import analysis, compat
from tests_py import ROOT
from tests_py.support.helpers import FLOATS, INTS, Array, np_dtype
from tests_py.support.programs import PUBLISHED, Rounding
from tests_py.support.programs import start_published as published
from tests_py.support.programs.bit_judge import program_of, quiet
from tests_py.support.programs.random_programs import RandomProgram
from tests_py.support.programs.training import Training

EXAMPLES = ROOT / "examples"


class Built(BaseException):
    """Ends a file where it makes its session."""

    def __init__(self, ir: popsr.Ir) -> None:
        super().__init__()
        self.ir = ir


@contextlib.contextmanager
def stop_at_session(number: int = 1) -> Iterator[None]:
    """Raise Built where the session of that number would be made."""
    made, init = 0, popsr.Session.__init__

    def counted(self: popsr.Session, ir: popsr.Ir, *args: Any, **kwargs: Any) -> None:
        nonlocal made
        made += 1
        if made == number:
            raise Built(ir)
        init(self, ir, *args, **kwargs)

    with mock.patch.object(popsr.Session, "__init__", counted):
        yield


def digits(**_: Any) -> tuple[Array, Array]:
    """Stands for the data set of scikit-learn: small integers of the same shapes."""
    rng = np.random.default_rng(0)
    return rng.integers(0, 17, (1797, 64)).astype(np.float64), rng.integers(0, 10, 1797)


@contextlib.contextmanager
def stand_ins() -> Iterator[None]:
    """The packages that examples need beside popsr: scikit-learn gives ``digits``, matplotlib draws nothing."""
    datasets = ModuleType("sklearn.datasets")
    datasets.load_digits = digits  # type: ignore[attr-defined]
    pyplot = mock.MagicMock()
    pyplot.subplots.side_effect = lambda *grid, **_: (
        mock.MagicMock(),
        [mock.MagicMock(), mock.MagicMock()] if grid else mock.MagicMock(),
    )
    modules: dict[str, Any] = {
        "sklearn": ModuleType("sklearn"),
        "sklearn.datasets": datasets,
        "matplotlib": mock.MagicMock(pyplot=pyplot),
        "matplotlib.pyplot": pyplot,
    }
    # mock.patch.dict would forget what files import meanwhile, and import it again: classes would exist twice.
    before = {name: sys.modules.get(name) for name in modules}
    sys.modules.update(modules)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        for name, module in before.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module


@contextlib.contextmanager
def popxl_names() -> Iterator[None]:
    """PopXL's modules can be imported."""
    compat.install()
    try:
        yield
    finally:
        compat.uninstall()


def of_file(path: Path, *args: str, session: int = 1) -> popsr.Ir:
    """The program that a file gives to its session of that number."""
    names = popxl_names() if "popxl" in path.read_text() else contextlib.nullcontext()
    argv = mock.patch.object(sys, "argv", [str(path), *args])
    with stand_ins(), stop_at_session(session), argv, names:
        try:
            runpy.run_path(str(path), run_name="__main__")
        except Built as built:
            return built.ir
    raise AssertionError(f"{path.name}: makes fewer than {session} sessions")


def of_mnist() -> popsr.Ir:
    """The training program of examples/popxl, with few hidden units."""
    with popxl_names(), stop_at_session():
        names = runpy.run_path(str(EXAMPLES / "popxl/mnist.py"))
        try:
            names["train_program"](names["Options"](hidden=24), 64, np.random.default_rng(0))
        except Built as built:
            return built.ir
    raise AssertionError("mnist.py: makes no session")


def of_notebook() -> popsr.Ir:
    """The program of the notebook about replica groupings."""
    cells = json.loads((EXAMPLES / "replica_grouping.ipynb").read_text())["cells"]
    names: dict[str, Any] = {}
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        try:
            with stop_at_session():
                for cell in cells:
                    if cell["cell_type"] == "code":
                        exec("".join(cell["source"]), names)
        except Built as built:
            return built.ir
        finally:
            compat.uninstall()
    return next(value for value in names.values() if isinstance(value, popsr.Ir))


@contextlib.contextmanager
def rounded_host_functions() -> Iterator[None]:
    """Transcendental functions of the host give 12 digits after the point, which all libraries agree on."""

    def rounded(function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args, **kwargs: np.round(np.asarray(function(*args, **kwargs), np.float64), 12)

    with contextlib.ExitStack() as stack:
        for module, name in (
            (np, "log"),
            (np, "sin"),
            (np, "cos"),
            (np, "exp"),
            (np, "power"),
            (math, "log"),
        ):
            stack.enter_context(mock.patch.object(module, name, rounded(getattr(module, name))))
        yield


def of_published(name: str, config: str) -> popsr.Ir:
    """A program in the style of model repositories."""
    with published.importable(), stop_at_session(), rounded_host_functions():
        try:
            published.START[name](config)
        except Built as built:
            return built.ir
    raise AssertionError(f"{name}: makes no session")


def of_training(mode: Rounding) -> popsr.Ir:
    """The bf16 training program; its rounding uses seeds of that mode."""
    ir = Training(stochastic=mode != "off").ir
    if mode != "off":
        ir.options.stochastic_rounding_mode = mode
    return ir


class ExactProgram(RandomProgram):
    """A random program whose data is integers, scaled by a power of two and rounded to the dtype.

    ``unary`` is fixed: an op that is added must not change the programs of the digests.
    """

    unary = (
        *("tanh", "exp", "log", "sqrt", "sin", "cos", "sigmoid", "gelu", "swish", "relu"),
        *("abs", "negate", "sign", "floor", "isnan", "rsqrt"),
    )

    @staticmethod
    def draw(rng: np.random.Generator, shape: tuple[int, ...], name: str) -> Array:
        if name in FLOATS:
            return (rng.integers(-1024, 1025, shape) / 512).astype(np_dtype(name))
        if name in INTS:
            return rng.integers(0, 9, shape).astype(np_dtype(name))
        return RandomProgram.draw(rng, shape, name)


def of_random(number: int) -> ExactProgram:
    """The random program of that number."""
    axes, steps = program_of(number)
    program = ExactProgram(axes, number)
    with quiet():
        program.build(steps)
        analysis.analyze(program.ir)
    return program


def rounds(number: int) -> bool:
    """True if the random program mostly computes in a format that its mode rounds stochastically."""
    axes, _ = program_of(number)
    modes, formats = ("partition", "identical"), ("bfloat16", "float16")
    return axes.rounding in modes and axes.name in formats and math.prod(axes.shape) > 0


def is_plain(number: int) -> bool:
    """True if the random program does not round stochastically; these have all dtypes and shapes."""
    return program_of(number)[0].rounding == "off"


def first_random(count: int, kind: Callable[[int], bool]) -> dict[str, int]:
    """The first random programs of a kind, by name."""
    return {f"random {number}": number for number in itertools.islice(filter(kind, itertools.count()), count)}


def _example(name: str, *args: str, session: int = 1) -> Callable[[], popsr.Ir]:
    return partial(of_file, EXAMPLES / name, *args, session=session)


def _test_program(name: str, *args: str) -> Callable[[], popsr.Ir]:
    return partial(of_file, PUBLISHED / f"{name}.py", *args)


TRAINED: tuple[Rounding, ...] = ("off", "partition", "identical", "popart")
IRS: dict[str, Callable[[], popsr.Ir]] = {
    "examples/grouped_weights": _example("grouped_weights.py"),
    "examples/replica_grouping": of_notebook,
    "examples/sharded_mlp whole": _example("sharded_mlp.py"),
    "examples/sharded_mlp split": _example("sharded_mlp.py", session=2),
    "examples/sharded_optimiser plain": _example("sharded_optimiser.py"),
    "examples/sharded_optimiser sharded": _example("sharded_optimiser.py", session=2),
    "examples/train_digits": _example("train_digits.py"),
    "examples/transformer_parallel whole": _example("transformer_parallel.py"),
    "examples/transformer_parallel split": _example("transformer_parallel.py", session=2),
    "examples/two_ipus": _example("two_ipus.py"),
    "examples/popxl/mnist": of_mnist,
    "examples/popxl/tensor_parallel": _example("popxl/tensor_parallel.py"),
    "programs/clipped_adam": _test_program("clipped_adam"),
    "programs/gpt2": _test_program("gpt2"),
    "programs/outlined_mlp": _test_program("outlined_mlp"),
    "programs/outlined_mlp inlined": _test_program("outlined_mlp", "--style", "inlined"),
    "programs/phased": _test_program("phased"),
    "programs/pipelined": _test_program("pipelined"),
    "programs/sharded_training": _test_program("sharded_training"),
    **{
        f"programs/{name} {config}": partial(of_published, name, config) for name, config in published.CONFIGS
    },
    **{f"training {mode}": partial(of_training, mode) for mode in TRAINED},
}
"""Programs of one session."""

ARRAYS: dict[str, tuple[str, ...]] = {
    "examples/sr_euler": ("sr_euler.py", "sr_euler.png", "100"),
    "examples/sr_harmonic": ("sr_harmonic.py", "sr_harmonic.png", "200"),
    "examples/sr_least_squares": ("sr_least_squares.py", "sr_least_squares.png", "100"),
    "examples/sr_small_updates": ("sr_small_updates.py", "sr_small_updates.png", "50"),
}
"""Examples of popsr.sr, which have no session: file and arguments."""

ROUNDING = first_random(40, rounds)
"""Random programs with stochastic rounding, by name."""

RANDOM = ROUNDING | first_random(20, is_plain)
"""All random programs."""

NAMES = (*IRS, *ARRAYS, *RANDOM)
