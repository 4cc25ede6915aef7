"""Random ops that draw the same numbers: those for which torch's generator is in the same state.

Activation checkpoints rely on it: they compute dropout a second time, and put the generator back before. A generator
that the step gives to an op is followed the same way on each rank: ranks whose generators have the same state draw the
same numbers.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from typing import Any

from popsr.bridge._step.replaced import replaced
from popsr.bridge.torch._tracing.generators import Generators, state_of
from popsr.bridge.torch._user.locations import current_place, shown_place
from popsr.bridge.torch._user.notes import note_of, noted
from popsr.errors import UnsupportedError

__all__ = ["Draws", "draw_of", "generator_draw_of", "is_uncounted", "kept_generator", "of_stage"]

_KEY = "popsr_draw"
_GENERATOR_KEY = "popsr_generator"

# Ops whose operands say how many numbers they take from a generator.
_UNCOUNTED = frozenset({"poisson", "binomial", "_standard_gamma", "_sample_dirichlet", "rrelu"}) | {
    "rrelu_with_noise",
    "rrelu_with_noise_functional",
}


class Draws:
    """Notes with each random op of a trace the state of the generator that it draws from.

    Args:
        generators: those that the step gives to ops.
    """

    def __init__(self, generators: Generators) -> None:
        """Before the first op."""
        self._generators = generators
        self._count = 0

    @contextlib.contextmanager
    def noted(self, op: Any, operands: Any, generator: Any) -> Iterator[None]:
        """Inside, nodes are of one random op; the generator goes on to a state that depends on the op.

        Args:
            op: the op.
            operands: its operands.
            generator: the one that it is given; None: torch's own.
        """
        import torch
        from torch.utils._python_dispatch import _disable_current_modes

        self._count += 1
        own = torch.default_generator if generator is None else generator
        with _disable_current_modes():
            state = state_of(own)
            if generator is not None:
                _check_counted(op)
                self._generators.note_draw(generator, state, self._count)
            _advance(own, f"{state} {op} {_shown(operands)}")
            self._generators.note_state(generator)
        with noted(_KEY if generator is None else _GENERATOR_KEY, (state, self._count)):
            yield


def is_uncounted(op: Any) -> bool:
    """True for a random op that draws as many numbers as its operands say."""
    return getattr(op, "namespace", "") == "aten" and str(op).split(".")[1].rstrip("_") in _UNCOUNTED


def _check_counted(op: Any) -> None:
    if is_uncounted(op):
        name = str(op).split(".")[1]
        raise UnsupportedError(
            f"bridge.torch: generator= of {name} at {shown_place(current_place())} draws as many numbers as its "
            "operands say, expected an op that draws one for each element"
        )


def _advance(generator: Any, made_of: str) -> None:
    """Put a generator into a state that is a function of a text; its initial seed stays."""
    import torch

    number = int(hashlib.sha256(made_of.encode()).hexdigest()[:15], 16)
    if generator.device.type != "cpu":
        generator.manual_seed(number)
        return
    new = torch.Generator().manual_seed(number).get_state()
    new[:8] = generator.get_state()[:8]  # the seed, which the step may ask for
    generator.set_state(new)


def _shown(value: Any) -> str:
    """Operands as a text: of tensors the shape and type."""
    if hasattr(value, "untyped_storage"):
        return f"{value.dtype}{list(value.shape)}"
    if isinstance(value, list | tuple):
        return f"({', '.join(map(_shown, value))})"
    if isinstance(value, dict):
        return _shown([item for item in value.items() if item[0] != "generator"])
    return repr(value)


def draw_of(node: Any) -> tuple[str, int] | None:
    """State of torch's generator, and number of the op that a node comes from; None if no trace noted it."""
    found: tuple[str, int] | None = note_of(node, _KEY)
    return found


def of_stage(node: Any, stage: int) -> None:
    """Let a random op of a stage draw other numbers than those of the stages before, on any rank."""
    found = draw_of(node)
    if found is not None and stage:
        state, count = found
        node.meta["custom"] = {**node.meta["custom"], _KEY: (f"{stage} {state}", count + (stage << 32))}


def generator_draw_of(node: Any) -> int | None:
    """Number of the op that a node comes from, which draws from a generator that it is given; None for others."""
    found: tuple[str, int] | None = note_of(node, _GENERATOR_KEY)
    return None if found is None else found[1]


@contextlib.contextmanager
def kept_generator() -> Iterator[None]:
    """Leave torch's generator as it is, and refuse the question for its seed, which ranks need not share.

    Inside, its state is one that no seed of the user gives: a generator with the seed that it had is not a copy.

    Raises:
        UnsupportedError: with the line that asks.
    """
    import torch

    def refuse() -> int:
        raise UnsupportedError(
            f"bridge.torch: the seed of torch's generator is asked for at {shown_place(current_place())}, got "
            "torch.initial_seed or torch.seed, expected a seed that the step is given"
        )

    state = torch.get_rng_state()
    modules = (torch, torch.random)
    try:
        with replaced((module, name, refuse) for module in modules for name in ("initial_seed", "seed")):
            _advance(torch.default_generator, f"{state_of(torch.default_generator)} as a step begins")
            yield
    finally:
        torch.set_rng_state(state)
