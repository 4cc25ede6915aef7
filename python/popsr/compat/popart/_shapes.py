"""Types and shapes of inputs that a model leaves open."""

from __future__ import annotations

from popsr._host.arguments import read_a, read_text
from popsr._popart.types import TensorInfo
from popsr._text.shown import shown
from popsr.errors import UnknownNameError

__all__ = ["InputShapeInfo"]


class InputShapeInfo:
    """Types and shapes of inputs that a model leaves open."""

    def __init__(self) -> None:
        """None."""
        self._infos: dict[str, TensorInfo] = {}

    def add(self, id: str, info: TensorInfo) -> None:
        """The type and shape of an input."""
        self._infos[read_text("InputShapeInfo.add: id", id)] = read_a(
            "InputShapeInfo.add: info", info, TensorInfo
        )

    def has(self, id: str) -> bool:
        """True if an input was added."""
        return read_text("InputShapeInfo.has: id", id) in self._infos

    def get(self, id: str) -> TensorInfo:
        """The type and shape that was added.

        Raises:
            UnknownNameError: none was.
        """
        if read_text("InputShapeInfo.get: id", id) not in self._infos:
            raise UnknownNameError(
                f"InputShapeInfo.get: no such input, got {shown(id)}, expected {shown(self.getAllTensorIds())}"
            )
        return self._infos[id]

    def getAllTensorIds(self) -> list[str]:
        """Ids of all inputs that were added."""
        return list(self._infos)
