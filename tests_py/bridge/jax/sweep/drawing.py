"""Drawing operands for the moves of a random step, with a record of what each value was made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

__all__ = ["FLOATS", "INTS", "SIDE", "Drawing", "Made", "fitted", "is_complex", "is_float"]

SIDE = 4
INTS = (jnp.int32, jnp.uint32, jnp.int8, jnp.uint8, jnp.int16)
FLOATS = (jnp.float32, jnp.bfloat16, jnp.float16, jnp.float8_e4m3fn, jnp.float8_e5m2)


def is_float(x: Any) -> bool:
    return bool(jnp.issubdtype(x.dtype, jnp.floating))


def is_complex(x: Any) -> bool:
    return bool(jnp.issubdtype(x.dtype, jnp.complexfloating))


def fitted(x: Any) -> Any:
    """A value of any shape as four by four: elements repeated or left out."""
    x = jnp.asarray(x)
    if x.shape == (SIDE, SIDE):
        return x
    flat = x.reshape(-1)
    if flat.size == 0:
        return jnp.zeros((SIDE, SIDE), x.dtype)
    if flat.size < SIDE * SIDE:
        flat = jnp.concatenate([flat] * -(-SIDE * SIDE // flat.size))
    return flat[: SIDE * SIDE].reshape(SIDE, SIDE)


@dataclass(frozen=True)
class Made:
    """The origin of a value: the move that made it, and the places of its operands."""

    move: str
    operands: tuple[int, ...]


@dataclass
class Drawing:
    """The values of a step so far.

    Attributes:
        rng: decides.
        axes: names and sizes of the mesh.
        wide: whether 64 bits are allowed.
        values: arrays of four by four.
        made: for each value its origin; of arguments none.
    """

    rng: np.random.Generator
    axes: dict[str, int]
    wide: bool
    values: list[Any]
    made: list[Made | None] = field(default_factory=list)
    _taken: list[int] = field(default_factory=list)
    _kind: str = ""

    def pick(self, fits: Callable[[Any], bool] = lambda x: not is_complex(x)) -> Any:
        """A value that fits; later ones are drawn more often."""
        places = [place for place, x in enumerate(self.values) if fits(x)]
        place = places[max(self.rng.integers(len(places)), self.rng.integers(len(places)))]
        self._taken.append(place)
        return self.values[place]

    def like(self, x: Any) -> Any:
        """A value of the element type of another."""
        return self.pick(lambda y: y.dtype == x.dtype)

    def number(self) -> Any:
        """A float of 32 bits."""
        return self.pick(lambda x: not is_complex(x)).astype(jnp.float32)

    def whole(self) -> Any:
        """An integer of 32 bits, small where it comes from a float."""
        x = self.pick(lambda x: not is_complex(x))
        return x.astype(jnp.int32) if not is_float(x) else (x > 0.1).astype(jnp.int32)

    def one(self, moves: Sequence[tuple[str, Callable[[], Any]]]) -> Any:
        """The result of one of several moves."""
        name, move = moves[int(self.rng.integers(len(moves)))]
        self._kind = name
        return move()

    def add(self, name: str, move: Callable[[Drawing], Any]) -> None:
        """Append what a move makes."""
        self._taken, self._kind = [], ""
        value = fitted(move(self))
        self.values.append(value)
        self.made.append(
            Made(f"{name}:{self._kind}" if self._kind else name, tuple(dict.fromkeys(self._taken)))
        )

    def below(self, stop: int) -> int:
        return int(self.rng.integers(stop))

    def axis(self) -> Any:
        """An axis, or all in one of two orders."""
        names = [*self.axes]
        many: list[Any] = names if len(names) == 1 else [*names, tuple(names), tuple(names[::-1])]
        return many[self.below(len(many))]

    def one_axis(self) -> str:
        return [*self.axes][self.below(len(self.axes))]

    def size(self, axis: Any) -> int:
        return int(np.prod([self.axes[each] for each in (axis if isinstance(axis, tuple) else (axis,))]))

    def groups(self, axis: Any, equal: int | None = None) -> list[list[int]]:
        """Parts of the indices along an axis, of one size."""
        size = self.size(axis)
        each = equal or [d for d in (1, 2, 4, size) if size % d == 0][self.below(3)]
        order = np.arange(size) if self.below(2) else np.arange(size).reshape(each, -1).T.reshape(-1)
        return [[int(i) for i in part] for part in order.reshape(-1, each)]

    def agreed(self) -> Any:
        """A number that all devices agree on."""
        return lax.pmax(self.whole()[0, 0], tuple(self.axes))
