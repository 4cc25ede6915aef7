"""The type of a module's calls."""

from __future__ import annotations

from typing import ParamSpec, Protocol, TypeVar

__all__ = ["Built", "P", "R_co"]

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)


class Built(Protocol[P, R_co]):
    """A module as type checkers see it: calls take what its ``build`` takes, and return what that returns."""

    def build(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...
