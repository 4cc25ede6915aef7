"""``StochasticAdder``: additions whose rounding is random, with the randomness kept in one object."""

from __future__ import annotations

import secrets
from typing import Any, Literal, get_args, overload

import numpy as np

from popsr import _core
from popsr._support.host.arguments import read_choice, read_int
from popsr._support.settings import num_threads
from popsr._support.text.entry_points import public
from popsr._support.text.shown import shown
from popsr.errors import StateError
from popsr.sr._call import Key, broadcast_view, lay_out, read_options, run
from popsr.sr._formats import FORMATS, read_format
from popsr.sr._types import AnyArray, D, FormatLike, LibraryArray, Operand, OtherArray, Out, R

__all__ = ["StochasticAdder"]

Rng = Literal["value", "counter"]


@public
class StochasticAdder:
    """Adds arrays of one format with stochastic rounding.

    A sum that the format has is returned as it is. Otherwise the result is one of its two neighbours: with equal
    chance in ``add``, with a chance proportional to the distance from the other in ``add_biased``, which makes
    addition right, and associative, on average. ``add`` changes more elements than ``add_biased``.

    Where the coins come from:

    - ``rng="value"``: a hash of the seed and of the two values, the same for (x, y) and (y, x). The same operands give
      the same result, whatever the order of calls and elements. **Repeated updates freeze**: a weight that meets an
      update again meets the same coin again, so it stops for good at the first value whose coin says "stay". In bf16,
      20,000 weights of 256 with a constant update are all stuck within 10 steps; of an exact drift of 1,253 spacings in
      5,000 steps they make 0.3.
    - ``rng="counter"``: the element's number and the number of the call, so every call flips coins of its own. That is
      what weights need::

          adder = StochasticAdder(torch.bfloat16, seed=1, rng="counter")
          for update in updates:
              adder.add_biased(w, update, out=w)

      ``calls`` is part of the state: save it and set it again to go on with the same coins. Adders with equal seeds
      give equal sequences.

    Args:
        dtype: of all operands and results: a name, or a dtype of NumPy, ml_dtypes, torch or jax.
        seed: a 64-bit integer. Default: one from the OS, which ``repr`` shows.
        rng: "value" or "counter".
    Raises:
        TypeError: ``dtype`` is not a supported format, or ``seed`` no int.
        ValueError: ``seed`` is out of range, or ``rng`` unknown.
    """

    def __init__(self, dtype: FormatLike, seed: int | None = None, rng: Rng = "value") -> None:
        self._name = read_format("StochasticAdder", dtype).name
        self._rng: Rng = read_choice("StochasticAdder", "rng", rng, get_args(Rng))
        self._seed: int = secrets.randbits(64) if seed is None else seed
        self._key = Key(self._seed)
        self._numpy = FORMATS[self._name].numpy
        self._calls = 0

    @property
    def dtype(self) -> str:
        """Name of the format."""
        return self._name

    @property
    def seed(self) -> int:
        """The seed."""
        return self._seed

    @property
    def rng(self) -> Rng:
        """Source of the random decisions."""
        return self._rng

    @property
    def calls(self) -> int:
        """Number of the next call, with ``rng="counter"``; settable."""
        return self._calls

    @calls.setter
    def calls(self, number: int) -> None:
        if self._rng != "counter":
            raise StateError(
                f"StochasticAdder: calls are counted with rng='counter' only, got rng={shown(self._rng)}, "
                "expected StochasticAdder(..., rng='counter')"
            )
        self._calls = read_int("StochasticAdder: calls", number, 0, 2**63 - 1)

    @overload
    def add(self, x: Operand, y: Operand, *, out: Out) -> Out: ...
    @overload
    def add(self, x: np.ndarray[Any, D], y: Operand, *, out: None = None) -> AnyArray[D]: ...
    @overload
    def add(self, x: LibraryArray[R], y: Operand, *, out: None = None) -> R: ...
    @overload
    def add(self, x: OtherArray, y: Operand, *, out: None = None) -> Any: ...
    def add(self, x: Any, y: Any, *, out: Any = None) -> Any:
        """``x + y``: where it is not exact, either neighbour with equal chance.

        Args:
            x: array ``[...]`` of the adder's format: of NumPy, ml_dtypes, torch or jax, or integers with its bits.
            y: the same; ``x`` and ``y`` broadcast.
            out: memory for the result; may be ``x`` or ``y``.
        Returns:
            ``out``, or a new array of the kind of ``x``.
        Raises:
            TypeError: an operand or ``out`` has another dtype, or ``out`` is read-only.
            ValueError: shapes do not broadcast, or ``out`` has another one or overlaps an operand partly.
        """
        return self._add("add", x, y, out, False)

    @overload
    def add_biased(self, x: Operand, y: Operand, *, out: Out) -> Out: ...
    @overload
    def add_biased(self, x: np.ndarray[Any, D], y: Operand, *, out: None = None) -> AnyArray[D]: ...
    @overload
    def add_biased(self, x: LibraryArray[R], y: Operand, *, out: None = None) -> R: ...
    @overload
    def add_biased(self, x: OtherArray, y: Operand, *, out: None = None) -> Any: ...
    def add_biased(self, x: Any, y: Any, *, out: Any = None) -> Any:
        """``x + y``: the nearer a neighbour, the more likely it is; arguments and errors as in ``add``."""
        return self._add("add_biased", x, y, out, True)

    def _add(self, op: str, x: Any, y: Any, out: Any, biased: bool) -> Any:
        counted = self._rng == "counter"
        if not counted and getattr(x, "dtype", None) is self._numpy:
            result = _core.sr.fast_add_value(x, y, self._key, out, biased)
            if result is not NotImplemented:
                return result
        layout = lay_out(op, (("x", x), ("y", y)), dtype=self._name, out=out, all_named=True)
        if counted:
            mode = "sr" if biased else "sr_equal"
            options = read_options(op, self._key.at(self._calls), mode, "ieee", 0, None)
            run("add", layout.array, layout.form, layout.sources, (), options)
            self._calls += 1
        else:
            a, b = (broadcast_view(source.array, layout.array.shape) for source in layout.sources)
            _core.sr.add_value(a, b, layout.array, layout.form.index, self._key, biased, num_threads())
        return layout.result()

    def __repr__(self) -> str:
        state = f", calls={self._calls}" if self._rng == "counter" else ""
        return f"StochasticAdder({self._name!r}, seed={self._seed}, rng={self._rng!r}{state})"
