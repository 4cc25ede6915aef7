"""The type of a tensor that is still to come."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from popsr import dtypes
from popsr._support.host.arguments import is_a, read_dtype, read_shape
from popsr._support.text.entry_points import public
from popsr._support.text.shown import shown
from popsr.errors import UnknownNameError

__all__ = ["TensorSpec"]


@public
class TensorSpec(Mapping[str, Any]):
    """Shape, dtype and meta shape of a tensor that is still to come; usable as ``**spec``."""

    def __init__(self, shape: Iterable[int], dtype: dtypes.dtype, meta_shape: Iterable[int] = ()) -> None:
        """The spec of a tensor.

        Args:
            shape: shape on one replica.
            dtype: element type.
            meta_shape: shape before sharding, if it is a shard.
        """
        self.shape = read_shape("TensorSpec", shape)
        self.dtype = read_dtype("TensorSpec", dtype)
        self.meta_shape = read_shape("TensorSpec", meta_shape)

    def to_dict(self) -> dict[str, Any]:
        """Shape, dtype and meta shape by name."""
        return {"shape": self.shape, "dtype": self.dtype, "meta_shape": self.meta_shape}

    def to_tuple(self) -> tuple[tuple[int, ...], dtypes.dtype, tuple[int, ...]]:
        """Shape, dtype and meta shape."""
        return (self.shape, self.dtype, self.meta_shape)

    def __iter__(self) -> Iterator[str]:
        return iter(self.to_dict())

    def __len__(self) -> int:
        return len(self.to_dict())

    def __getitem__(self, key: str) -> Any:
        found = self.to_dict()
        if not is_a(key, str) or key not in found:
            raise UnknownNameError(
                f"TensorSpec: unknown key, got {shown(key)}, expected one of {', '.join(found)}"
            )
        return found[key]

    def __hash__(self) -> int:
        return hash(self.to_tuple())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TensorSpec) and self.to_tuple() == other.to_tuple()

    def __repr__(self) -> str:
        return f"TensorSpec(shape={self.shape}, dtype={self.dtype}, meta_shape={self.meta_shape})"
