"""JAX, imported when a step is read."""

from __future__ import annotations

import importlib
from typing import Any

__all__ = ["the_jax"]


def the_jax() -> Any:
    """The package.

    Raises:
        ImportError: it is not installed.
    """
    try:
        return importlib.import_module("jax")
    except ImportError as error:
        raise ImportError("from_jax: JAX is not installed, expected `pip install jax`") from error
