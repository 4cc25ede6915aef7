"""Options of an Ir."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from popsr.errors import AttributeValueError
from popsr.utils import read_choice, read_int

__all__ = ["Options"]

# The one table of PopART's spellings.
_ALIASES = {
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
    """

    enable_stochastic_rounding: bool
    stochastic_rounding_mode: str
    seed: int
    throw_if_log2_scale_tensor_not_in_range: bool

    def __init__(self) -> None:
        """The defaults: rounding to nearest."""
        self.enable_stochastic_rounding = False
        self.stochastic_rounding_mode = "partition"
        self.seed = 0
        self.throw_if_log2_scale_tensor_not_in_range = True

    def __getattr__(self, name: str) -> Any:
        if name in _ALIASES:
            return getattr(self, _ALIASES[name])
        if name == _RNG_STATES:
            return self.stochastic_rounding_mode == "popart"
        raise AttributeError(
            f"options: unknown option, got {name!r}, expected one of {', '.join(vars(self))}"
        )

    def __setattr__(self, name: str, value: Any) -> None:
        name = _ALIASES.get(name, name)
        if name == _RNG_STATES:
            _check_bool(name, value)
            name, value = "stochastic_rounding_mode", "popart" if value else "identical"
        check = _CHECKS.get(name)
        if check is None:
            raise AttributeError(
                f"options: unknown option, got {name!r}, expected one of {', '.join(_CHECKS)}"
            )
        check(value)
        object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        return f"Options({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"


def _check_bool(name: str, value: Any) -> None:
    if not isinstance(value, bool):
        raise AttributeValueError(f"options: {name} is not a bool, got {value!r}")


def check_mode(value: Any) -> None:
    """Raise AttributeValueError unless it is a mode of stochastic rounding."""
    read_choice("options", "stochastic_rounding_mode", value, ("partition", "popart", "identical"))


def _check_seed(value: Any) -> None:
    read_int("options: seed", value, 0, 2**64 - 1)


_CHECKS: dict[str, Callable[[Any], None]] = {
    "enable_stochastic_rounding": partial(_check_bool, "enable_stochastic_rounding"),
    "stochastic_rounding_mode": check_mode,
    "seed": _check_seed,
    "throw_if_log2_scale_tensor_not_in_range": partial(
        _check_bool, "throw_if_log2_scale_tensor_not_in_range"
    ),
}
