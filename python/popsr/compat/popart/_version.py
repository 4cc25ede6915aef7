"""The version of PopART whose names these are."""

from popsr._core import __version__

__all__ = ["versionString"]


def versionString() -> str:
    """PopART's version, and popsr's."""
    return f"3.4.0 (popsr {__version__})"
