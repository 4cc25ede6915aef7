"""Rotary position embedding, as an operator written in C++."""

from .rope import rope

__all__ = ["rope"]
