"""Claims of popsr about a program, read in a process of its own, as a trace may crash."""

from __future__ import annotations

import contextlib
import gc
import importlib
import multiprocessing
import os
import warnings
from dataclasses import dataclass, field
from typing import Any

from tests_py.bridge.torch.gloo import PRELOADED
from tests_py.bridge.torch.steps.drawing import Program
from tests_py.bridge.torch.steps.mixed import Mixed
from tests_py.bridge.torch.steps.mutants import faulty
from tests_py.bridge.torch.steps.running import STEPS, loaded

__all__ = ["Claims", "Tracer"]


@dataclass
class Claims:
    """Facts that a proof states.

    Attributes:
        outcome: "proved", "refused" by an error of popsr, "untyped" by another, "leak" of global state, "crash" of the
            process, or "endless".
        text: of the error, its type first.
        labels: for each state and result a number for each rank, equal where the proof says equal.
        ok: True if the proof says that no state may differ.
        gaps: number of ops that popsr lacks.
        drifting: states that the proof says may differ.
        runs: values of popsr's own run after each step, a row for each rank; none where it does not run.
    """

    outcome: str
    text: str = ""
    labels: dict[str, tuple[int, ...]] = field(default_factory=dict)
    ok: bool = False
    gaps: int = 0
    drifting: list[str] = field(default_factory=list)
    runs: list[dict[str, Any]] = field(default_factory=list)


class Tracer:
    """A process that traces programs, started anew when it dies.

    Args:
        fault: name of a fault of ``mutants`` that popsr has while it traces; it may be set anew.
        seconds: after which a trace is taken to be endless.
    """

    def __init__(self, fault: str | None = None, seconds: float = 60.0) -> None:
        """No process yet."""
        self.fault, self._seconds = fault, seconds
        self._pipe: Any = None
        self._process: Any = None

    def send(self, program: Program | Mixed, runs: bool = True) -> None:
        """Begin to trace a program; ``receive`` has its claims."""
        if self._process is None:
            self._start()
        with contextlib.suppress(BrokenPipeError):  # it died after the program before: receive tells
            self._pipe.send((program.text(), program.options(), runs, self.fault))

    def receive(self) -> Claims:
        """The claims about the program that was sent."""
        try:
            if self._pipe.poll(self._seconds):
                found: Claims = self._pipe.recv()
                return found
            outcome, text = "endless", f"no answer after {self._seconds:g} s"
        except (EOFError, OSError):
            self._process.join(10)
            outcome, text = "crash", f"exit {self._process.exitcode}"
        self.close()
        return Claims(outcome, text)

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._pipe.close()
            self._process = None

    def _start(self) -> None:
        start = multiprocessing.get_context("forkserver")  # as ranks are: PyTorch is imported once
        start.set_forkserver_preload(list(PRELOADED))
        self._pipe, there = start.Pipe()
        self._process = start.Process(target=_serve, args=(there,), daemon=True)
        self._process.start()
        there.close()


def _serve(pipe: Any) -> None:
    """Trace what comes until the other end is closed."""
    import logging

    import torch

    logging.disable(logging.CRITICAL)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    importlib.import_module("popsr.bridge.torch")
    gc.collect()
    gc.freeze()  # a collection after each program looks at what it left alone
    with contextlib.suppress(EOFError, KeyboardInterrupt, BrokenPipeError):
        while True:
            text, options, runs, fault = pipe.recv()
            kept = dict(os.environ)
            before = _global_state()
            with faulty(fault):
                found = _claims(text, options, runs)
            changed = [name for name, value in _global_state().items() if value != before[name]]
            if changed:
                found = Claims("leak", f"the trace leaves {', '.join(changed)} changed ({found.text})")
                torch.set_grad_enabled(True)
            gc.collect()
            pipe.send(found)
            os.environ.clear()
            os.environ.update(kept)


def _global_state() -> dict[str, object]:
    """Global state that a trace must leave as it was, for the next one and for the user."""
    import torch
    import torch.distributed as dist
    from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")
    return {
        "grad mode": torch.is_grad_enabled(),
        "default dtype": torch.get_default_dtype(),
        "dispatch modes": len(_get_current_dispatch_mode_stack()),
        "the process group": dist.is_initialized(),
        "the random state": torch.get_rng_state().numpy().tobytes(),
        "the environment": [os.environ.get(name) for name in names],
        "autocast": torch.is_autocast_enabled("cpu"),
        "dispatch keys": (
            str(torch._C._dispatch_tls_local_include_set()),
            str(torch._C._dispatch_tls_local_exclude_set()),
        ),
        "MKLDNN": torch._C._get_mkldnn_enabled(),
    }


def _claims(text: str, options: dict[str, Any], runs: bool) -> Claims:
    from popsr.bridge import UnsupportedOpsError
    from popsr.errors import Error

    for unsupported in ("error", "conservative"):
        try:
            return _proved(loaded(text), {**options, "unsupported": unsupported}, runs)
        except UnsupportedOpsError as error:
            refused = error
        except Error as error:
            return Claims("refused", f"{type(error).__name__}: {error}")
        except Exception as error:
            return Claims("untyped", f"{type(error).__name__}: {error}")
    return Claims("refused", f"UnsupportedOpsError: {refused}")


def _proved(names: dict[str, Any], options: dict[str, Any], runs: bool) -> Claims:
    from popsr.bridge.torch import trace_step

    made = trace_step(names["step"], names["make"], names["optimizer"], names["batch"], **options)
    proof = made.prove()
    labels = {each.path: tuple(each.proved.labels) for each in proof.states}
    labels |= {each.path: tuple(proof.facts.partition(each.tensor).labels) for each in made.results}
    drifting = [each.path for each in (*proof.drifting, *proof.undeclared)]
    found = Claims("proved", "", labels, proof.verdict != "not ok", len(made.gaps), drifting)
    str(proof)
    draws = any(path == "random seed" or path.startswith("generator ") for path in labels)
    if runs and not made.gaps and not draws:
        world = options["replicas"]
        for number in range(STEPS):
            rows = [names["batch"](rank, number) for rank in range(world)]
            fed = {}
            for k, path in enumerate(("x", "y")):
                if any(each.path == path for each in made.arguments):
                    grouping = made.argument(path).grouping
                    firsts = [rows[members[0]][k].numpy() for members in grouping.groups]
                    fed[path] = firsts[0] if len(firsts) == 1 else _stacked(firsts)
            found.runs.append(made.run(fed))
    return found


def _stacked(rows: list[Any]) -> Any:
    import numpy as np

    return np.stack(rows)
