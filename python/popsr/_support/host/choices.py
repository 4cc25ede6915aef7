"""Enumerations whose look-up by a wrong value is an error of popsr."""

from __future__ import annotations

import enum
from typing import NoReturn

from popsr._support.text.shown import shown
from popsr.errors import AttributeValueError

__all__ = ["Choices"]


class Choices(enum.Enum):
    """An enumeration; ``Choices(value)`` of no member is an AttributeValueError."""

    @classmethod
    def _missing_(cls, value: object) -> NoReturn:
        members = ", ".join(str(member.value) for member in cls)
        raise AttributeValueError(
            f"{cls.__name__}: no such member, got {shown(value)}, expected one of {members}"
        )
