"""Options of an Ir."""

from __future__ import annotations

from typing import Any

from popsr.errors import AttributeValueError
from popsr.utils import read_choice, read_int

__all__ = ["Options"]

# The one table of PopART's spellings.
_ALIASES = {
    "enableStochasticRounding": "enable_stochastic_rounding",
    "stochasticRoundingMode": "stochastic_rounding_mode",
}


class Options:
    """Options that a session reads when it is made. PopART's camelCase names work too.

    Attributes:
        enable_stochastic_rounding: narrow floats are rounded stochastically, not to nearest.
        stochastic_rounding_mode: "partition": replicas that are proved to hold the same value round it the same way;
            "identical": all replicas round with the same random numbers.
        seed: seed of the random numbers, 0 <= seed < 2**64; ``Session(seed=...)`` goes first.
    """

    enable_stochastic_rounding: bool
    stochastic_rounding_mode: str
    seed: int

    def __init__(self) -> None:
        """The defaults: rounding to nearest."""
        self.enable_stochastic_rounding = False
        self.stochastic_rounding_mode = "partition"
        self.seed = 0

    def __getattr__(self, name: str) -> Any:
        if name in _ALIASES:
            return getattr(self, _ALIASES[name])
        raise AttributeError(
            f"options: unknown option, got {name!r}, expected one of {', '.join(vars(self))}"
        )

    def __setattr__(self, name: str, value: Any) -> None:
        name = _ALIASES.get(name, name)
        check = _CHECKS.get(name)
        if check is None:
            raise AttributeError(
                f"options: unknown option, got {name!r}, expected one of {', '.join(_CHECKS)}"
            )
        check(value)
        object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        return f"Options({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"


def _check_bool(value: Any) -> None:
    if not isinstance(value, bool):
        raise AttributeValueError(f"options: enable_stochastic_rounding is not a bool, got {value!r}")


def check_mode(value: Any) -> None:
    """Raise AttributeValueError unless it is a mode of stochastic rounding."""
    if value == "popart":
        raise AttributeValueError(
            "options: stochastic_rounding_mode 'popart' is not available yet: it arrives with the analysis of that "
            "name, expected 'partition' or 'identical'"
        )
    read_choice("options", "stochastic_rounding_mode", value, ("partition", "identical"))


def _check_seed(value: Any) -> None:
    read_int("options: seed", value, 0, 2**64 - 1)


_CHECKS = {
    "enable_stochastic_rounding": _check_bool,
    "stochastic_rounding_mode": check_mode,
    "seed": _check_seed,
}
