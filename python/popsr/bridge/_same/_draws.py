"""Random values of states and data, the same of a step and its reference."""

from __future__ import annotations

import hashlib
import math

import numpy as np

from popsr.bridge._same._pairs.pair import Both, Pair, UnknownError, example_rows, whole_example
from popsr.bridge._step.arguments import Argument, Array

__all__ = ["constant_integers", "equal_integers", "is_float", "kept", "moved", "numbers"]


def is_float(both: Both) -> bool:
    """True for values that are drawn at random."""
    is_kept = isinstance(both.many, Argument) and both.many.placement.start == "kept"
    return bool(both.one.dtype.is_floating_point) and not is_kept


def kept(both: Both) -> Array:
    """The integers or truth values that the step was read with.

    Raises:
        UnknownError: it was read with a shape alone.
    """
    found = whole_example(both)
    if found is None:
        raise UnknownError(f"{both.role} '{both.path}' is integers of a shape alone: give an array")
    return found


def constant_integers(pair: Pair) -> list[str]:
    """Paths of data whose integers are all one number: of others a comparison says more."""
    data = [each for each in pair.arguments if each.role == "data" and not is_float(each)]
    found = []
    for each in data:
        example = whole_example(each)
        if example is not None and example.size > 1 and (example == example.flat[0]).all():
            found.append(each.path)
    return found


def equal_integers(pair: Pair) -> list[str]:
    """Paths of data of which replicas have parts, whose integers are the same on all of them."""
    found = []
    for each in pair.arguments:
        many = each.many
        is_cut = each.role == "data" and not is_float(each) and many.shape != each.one.shape
        if is_cut and isinstance(many, Argument) and many.example is not None:
            rows = [row for _, row in example_rows(each)]
            if len(rows) > 1 and all(row.tobytes() == rows[0].tobytes() for row in rows):
                found.append(each.path)
    return found


def numbers(both: Both, draw: int, step: int) -> Array:
    """Random floats of the size of the user's; of odd draws positive where the user's are, as of second moments."""
    shape = both.whole.shape
    rng = _generator(both.key, draw, step)
    example = whole_example(both)
    scale = 0.0 if example is None or not example.size else float(np.std(example.astype(np.float64)))
    if not (np.isfinite(scale) and scale > 0):
        scale = 1 / math.sqrt(shape[-2]) if len(shape) > 1 and shape[-2] else 0.5
    drawn = rng.standard_normal(shape) * scale
    positive = example is not None and bool((example >= 0).all())
    return np.abs(drawn) + scale / 8 if positive and draw % 2 else drawn


def moved(value: Array, path: str, draw: int, step: int) -> Array:
    """Floats moved by one unit in the last place, up or down."""
    up = _generator("moved " + path, draw, step).integers(0, 2, value.shape).astype(bool)
    return np.nextafter(value, np.where(up, np.inf, -np.inf))


def _generator(path: str, draw: int, step: int) -> np.random.Generator:
    seed = hashlib.blake2b(f"{path} {draw} {step}".encode(), digest_size=8).digest()
    return np.random.default_rng(int.from_bytes(seed, "little"))
