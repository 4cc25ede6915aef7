"""Options of an Ir."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from popsr._args import read_bool, read_choice, read_int
from popsr._suggestions import unknown_name

__all__ = ["Options"]

# The one table of PopART's spellings.
_ALIASES = {
    "enableInplaceAmbiguityChecking": "enable_inplace_ambiguity_checking",
    "enableStochasticRounding": "enable_stochastic_rounding",
    "stochasticRoundingMode": "stochastic_rounding_mode",
    "throwIfLog2ScaleTensorNotInRange": "throw_if_log2_scale_tensor_not_in_range",
}
# PopART's switch between two of the modes.
_RNG_STATES = "_enableRngStateManagement"


class Options:
    """Options that sessions and analyses read when they are made. PopART's camelCase names work too.

    Attributes:
        enable_stochastic_rounding: narrow floats are rounded stochastically, not to nearest.
        stochastic_rounding_mode: "partition": replicas that are proved to hold the same value round it the same way;
            "identical": all replicas round with the same random numbers; "popart": those of an op do, or none, as
            PopART's own analysis decides. PopART's ``_enableRngStateManagement`` sets it: True is "popart", False is
            "identical", as PopART rounds without it.
        seed: seed of the random numbers, 0 <= seed < 2**64; ``Session(seed=...)`` goes first.
        throw_if_log2_scale_tensor_not_in_range: float8 ops whose ``log2_scale`` is outside [-32, 32) when they run
            raise AttributeValueError; else the scale is clamped to that range.
        enable_inplace_ambiguity_checking: ops that modify and use one tensor in an order that neither data nor
            ``in_sequence`` gives are a GraphError when the program is analysed or a session is made; else they run in
            program order, and lint L12 names them.
    """

    enable_stochastic_rounding: bool
    stochastic_rounding_mode: str
    seed: int
    throw_if_log2_scale_tensor_not_in_range: bool
    enable_inplace_ambiguity_checking: bool

    def __init__(self) -> None:
        """The defaults: rounding to nearest."""
        self.enable_stochastic_rounding = False
        self.stochastic_rounding_mode = "partition"
        self.seed = 0
        self.throw_if_log2_scale_tensor_not_in_range = True
        self.enable_inplace_ambiguity_checking = False

    def __getattr__(self, name: str) -> Any:
        if name in _ALIASES:
            return getattr(self, _ALIASES[name])
        if name == _RNG_STATES:
            return self.stochastic_rounding_mode == "popart"
        raise unknown_name("options", "option", name, _READERS, _ALIASES)

    def __setattr__(self, name: str, value: Any) -> None:
        name = _ALIASES.get(name, name)
        if name == _RNG_STATES:
            popart = read_bool(f"options: {name}", value)
            name, value = "stochastic_rounding_mode", "popart" if popart else "identical"
        read = _READERS.get(name)
        if read is None:
            raise unknown_name("options", "option", name, _READERS, _ALIASES)
        object.__setattr__(self, name, read(value))

    def __repr__(self) -> str:
        return f"Options({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"


def read_mode(value: Any) -> Any:
    """A mode of stochastic rounding.

    Raises:
        AttributeValueError: it is none.
    """
    return read_choice("options", "stochastic_rounding_mode", value, ("partition", "popart", "identical"))


_READERS: dict[str, Callable[[Any], Any]] = {
    "enable_stochastic_rounding": partial(read_bool, "options: enable_stochastic_rounding"),
    "stochastic_rounding_mode": read_mode,
    "seed": partial(read_int, "options: seed", least=0, most=2**64 - 1),
    "throw_if_log2_scale_tensor_not_in_range": partial(
        read_bool, "options: throw_if_log2_scale_tensor_not_in_range"
    ),
    "enable_inplace_ambiguity_checking": partial(read_bool, "options: enable_inplace_ambiguity_checking"),
}
