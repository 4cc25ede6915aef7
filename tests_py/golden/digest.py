"""Digests of what programs compute.

A program has one digest of its ``outputs`` (streams of two runs), one of its ``variables`` after each run, and one of
its ``blocks`` (op and number of blocks of each instruction of the plan) with and without sharing, and without rewrites
of the plan. A digest covers name, dtype, shape and bits of each array; all NaNs are one. A run that ends with an error
has the error's class instead.

No digest depends on the processor, the versions of NumPy and other packages, or the build: inputs are integers scaled
by powers of two from PCG64; variables that have several values start with such numbers too, other variables as the
program says. No bit comes from NumPy's exp, sine or sums. A program that gives nothing to the host also stores the
result of its last op.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import re
import runpy
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from unittest import mock

import numpy as np

import popsr
from popsr import _core, ops
from popsr._session.rows import keeps_all_replicas
from tests_py.golden.sources import ARRAYS, EXAMPLES, IRS, RANDOM, of_random, stand_ins
from tests_py.support.helpers import FLOAT8, FLOATS, Array, bits, np_dtype, plain
from tests_py.support.programs.bit_judge import kernels, quiet

RUNS, SEED = 2, 5
Data = dict[Any, Array]


@dataclass(frozen=True)
class Configuration:
    """Settings of a run; no bit depends on them."""

    threads: int
    level: str
    dedup: bool
    optimise: bool = True

    def __str__(self) -> str:
        optimise = "" if self.optimise else ", optimise=False"
        return f"{self.threads} threads, {self.level}, dedup={self.dedup}{optimise}"

    @property
    def blocks(self) -> str:
        """The key of one of a program's digests of blocks."""
        if not self.optimise:
            return "blocks without rewrites"
        return "blocks" if self.dedup else "blocks without sharing"


ALL = (
    Configuration(1, "v3", True),
    Configuration(2, "v4", True),
    Configuration(2, "v3", False),
    Configuration(2, "v4", True, optimise=False),
    Configuration(1, "v4", False),
)


def configurations() -> list[Configuration]:
    """``ALL``, with the best level of this processor in place of levels that it lacks."""
    levels = _core.kernel_levels()
    best = popsr.build_info()["instruction set"]
    return list(
        dict.fromkeys(replace(each, level=each.level if each.level in levels else best) for each in ALL)
    )


@dataclass
class Record:
    """Outputs and variables after the runs of a program."""

    outputs: dict[str, Array] = field(default_factory=dict)
    variables: dict[str, Array] = field(default_factory=dict)
    plan: str = ""
    error: str = ""


def digest(arrays: Mapping[str, Array], *more: str) -> str:
    """Of names, dtypes, shapes and bits, in order."""
    found = hashlib.blake2b(digest_size=8)
    for name, array in arrays.items():
        shape, dtype, data = np.shape(array), plain(np.asarray(array)).dtype, bits(np.asarray(array))
        found.update(f"{name} {dtype.name} {shape}\n".encode())
        found.update(data.astype(data.dtype.newbyteorder("<")).tobytes())
    for text in more:
        found.update(text.encode())
    return found.hexdigest()


def instructions(plan: str) -> list[tuple[str, int]]:
    """Op and number of blocks of each instruction of a printed plan; loops and branches have no blocks: -1."""
    found = []
    for line in plan.splitlines():
        match = re.search(r"^(?:.* = )?(.*?)\s+blocks=(\d+)", line.strip())
        if match:
            found.append((match[1], int(match[2])))
        elif line.strip():
            found.append((line.strip(), -1))
    return found


def digests(record: Record, blocks: str = "blocks") -> dict[str, str]:
    """The digests of a record; ``blocks`` names the plan's digest."""
    return {
        "outputs": digest(record.outputs, record.error),
        "variables": digest(record.variables),
        blocks: digest({}, *(f"{op} {count}\n" for op, count in instructions(record.plan))),
    }


def exact(rng: np.random.Generator, shape: tuple[int, ...], name: str) -> Array:
    """Integers scaled by a power of two; 0 and 1 for types that may hold indices, flags or labels."""
    if name in FLOAT8:
        return rng.integers(0, 64, shape, np.uint8).view(np_dtype(name))
    if name == "uint16":  # packed weights
        return rng.integers(0, 1 << 16, shape, np.uint16)
    if name not in FLOATS:
        return rng.integers(0, 2, shape).astype(np_dtype(name))
    return (rng.integers(-32, 33, shape) / 64).astype(np_dtype(name))


def stream_data(session: popsr.Session, rng: np.random.Generator) -> Data:
    """Of one run; scalars, such as rates, are 1/64."""
    data: Data = {}
    for stream in sorted(session.expected_inputs(), key=lambda stream: str(stream.tensor_id)):
        shape, name = session._full_input_shape(stream.shape), stream.dtype.name
        rate = stream.shape == () and name in FLOATS
        data[stream] = np.full(shape, 1 / 64, np_dtype(name)) if rate else exact(rng, shape, name)
    return data


def start_data(session: popsr.Session, rng: np.random.Generator) -> Data:
    """Of variables that do not start with one value everywhere; some programs draw those anew each time."""
    data: Data = {}
    found: dict[Any, Any] = dict(session.get_tensors_data(list(session._access.variables)))
    for variable, array in found.items():
        array = plain(array)
        if array.size and not keeps_all_replicas(variable) and bool(np.any(array != array.flat[0])):
            data[variable] = exact(rng, tuple(variable.shape_on_host), variable.dtype.name)
    return data


def record_session(
    ir: popsr.Ir,
    configuration: Configuration,
    inputs: Callable[[popsr.Session, int], Data],
    writes: Callable[[popsr.Session, int], Data],
    seed: int = SEED,
) -> Record:
    """Two runs of a session with that seed."""
    record = Record()
    options: dict[str, Any] = {
        "num_threads": configuration.threads,
        "dedup": configuration.dedup,
        "optimise": configuration.optimise,
        "seed": seed,
    }
    with (
        quiet(),
        kernels(configuration.level),
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
        popsr.Session(ir, **options) as session,
    ):
        record.plan = session.plan
        for run in range(RUNS):
            session.write_variables_data(writes(session, run))
            try:
                results = session.run(inputs(session, run), downcast_inputs=False)
            except popsr.errors.InternalError:
                raise
            except popsr.Error as error:
                record.error = type(error).__name__
                return record
            outputs = results.values()
            record.outputs |= {f"run {run} output {k}": np.asarray(array) for k, array in enumerate(outputs)}
            data = session.get_tensors_data(list(session._access.variables))
            record.variables |= {f"run {run} {variable.name}": array for variable, array in data.items()}
    return record


def record_ir(build: Callable[[], popsr.Ir], configuration: Configuration) -> Record:
    """Two runs of a program of a file, with data of ``exact``."""
    rng = np.random.default_rng(SEED)
    ir = build()
    if not ir.get_all_d2h_streams():
        with ir.main_graph, popsr.in_sequence():
            result = ir.main_graph.ops[-1].outputs[0]
            ops.host_store(popsr.d2h_stream(result.shape, result.dtype, "result"), result)
    return record_session(
        ir,
        configuration,
        lambda session, run: stream_data(session, rng),
        lambda session, run: start_data(session, rng) if run == 0 else {},
    )


def record_random(number: int, configuration: Configuration, seed: int = SEED) -> Record:
    """Two runs of a random program; the second gets the same numbers in another order."""
    program, rng = of_random(number), np.random.default_rng(SEED)

    def inputs(session: popsr.Session, run: int) -> Data:
        used = session.expected_inputs()
        return {
            stream: rng.permuted(data, axis=0) if run else data
            for stream, data in program.io.inputs.items()
            if stream in used
        }

    return record_session(program.ir, configuration, inputs, lambda session, run: {}, seed)


def record_arrays(name: str, configuration: Configuration) -> Record:
    """Arrays that an example of popsr.sr rounds; what it adds to them is replaced by exact numbers."""
    file, *args = ARRAYS[name]
    record, rng = Record(), np.random.default_rng(SEED)

    def watched(call: Callable[..., Array], op: str) -> Callable[..., Array]:
        def inner(*operands: Any, **options: Any) -> Array:
            if op == "add_" and np.ndim(operands[1]) == 2:  # a sum of products, by NumPy
                operands = operands[0], exact(rng, np.shape(operands[1]), "float32")
            result = call(*operands, **options, num_threads=configuration.threads)
            record.outputs[f"{len(record.outputs)} {op}"] = np.array(result)
            return result

        return inner

    with contextlib.ExitStack() as stack:
        stack.enter_context(kernels(configuration.level))
        stack.enter_context(stand_ins())
        stack.enter_context(mock.patch.object(sys, "argv", [file, *args]))
        for name_of_call in ("cast", "add_", "axpy_"):
            call = getattr(popsr.sr, name_of_call)
            stack.enter_context(mock.patch.object(popsr.sr, name_of_call, watched(call, name_of_call)))
        runpy.run_path(str(EXAMPLES / file), run_name="__main__")
    return record


def record(name: str, configuration: Configuration) -> Record:
    """Build and run the program of that name."""
    if name in RANDOM:
        return record_random(RANDOM[name], configuration)
    return record_arrays(name, configuration) if name in ARRAYS else record_ir(IRS[name], configuration)


def all_digests(name: str) -> Iterator[tuple[Configuration, dict[str, str]]]:
    """Digests of a program by configuration."""
    for configuration in configurations():
        yield configuration, digests(record(name, configuration), configuration.blocks)
