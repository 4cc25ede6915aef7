"""JAX, imported when a step is read."""

from __future__ import annotations

from typing import Any

from popsr._support.host.frameworks import framework

__all__ = ["the_jax"]


def the_jax() -> Any:
    """The package.

    Raises:
        MissingPackageError: it is not installed, or too old.
    """
    return framework("from_jax", "jax")
