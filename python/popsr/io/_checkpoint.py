"""The contents of a checkpoint file, as the loaders return them."""

from __future__ import annotations

import difflib
import heapq
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from popsr._session.rows import Array
from popsr._support.host.arguments import is_a, read_a
from popsr._support.host.files import shown_name, shown_path
from popsr._support.text.entry_points import public
from popsr._support.text.shown import shown
from popsr._support.text.summary import Summarised, Summary, line
from popsr.errors import UnknownNameError
from popsr.io._settings import StoredSettings, groups_text_of
from popsr.io._stored import StoredFile
from popsr.replicas import VariableSettings

__all__ = ["Checkpoint", "close_names"]

_SHOWN_NAMES = 5
_COMPARED_NAMES = 500  # comparing texts takes time with the square of their length
_COMPARED_LENGTH = 100


@public
class Checkpoint(Summarised, Mapping[str, Array]):
    """The tensors of a file by name, and what the file says about them.

    ``replication_factor``, ``settings`` (by name) and ``step`` are there when the file has them; ``unknown`` says what
    cannot be known when it has not. ``hashes`` has, by name, hexadecimal digits by the name of the hash, where the file
    was saved with some.
    """

    def __init__(self, stored: StoredFile, names: Mapping[str, str] | None = None) -> None:
        """Reads all tensors, or those of ``names``: the file's name by the new one."""
        read_a("Checkpoint: stored", stored, StoredFile)
        self.path = stored.file.path
        self.replication_factor = stored.replication
        self.step = stored.step
        taken = {name: name for name in stored.tensors} if names is None else dict(names)
        tensors = {new: stored.tensors[name] for new, name in taken.items()}
        self.settings: Mapping[str, VariableSettings] = _Settings(
            {new: tensor.settings for new, tensor in tensors.items() if tensor.settings is not None}
        )
        self.hashes: Mapping[str, Mapping[str, str]] = {
            new: stored.hashes[name] for new, name in taken.items() if name in stored.hashes
        }
        for tensor in tensors.values():
            if tensor.are_varints:  # the data of all others is as large as what the file has of it
                stored.budget.take_memory(tensor.nbytes)
        arrays = stored.arrays(taken.values())
        self._arrays = {new: arrays[name] for new, name in taken.items()}

    @property
    def unknown(self) -> str:
        """The facts that the file lacks, as text; empty when it has all."""
        if self.replication_factor is None:
            return (
                "no replication factor is embedded, so a leading dimension of groups looks like a dimension of the "
                "replica's tensor: call ir.embed_replication_factor() before saving, or load with "
                "session.reset_host_weights(), which knows the groups"
            )
        without = [name for name in self._arrays if name not in self.settings]
        more = f" and {len(without) - _SHOWN_NAMES} more" if len(without) > _SHOWN_NAMES else ""
        return (
            f"no groups are saved for {', '.join(map(shown_name, without[:_SHOWN_NAMES]))}{more}"
            if without
            else ""
        )

    def __getitem__(self, name: str) -> Array:
        if not is_a(name, str) or name not in self._arrays:
            text = name if is_a(name, str) else ""
            close = ", ".join(close_names(text, self._arrays, cutoff=0.0)) or "none: it has no tensors"
            raise UnknownNameError(
                f"Checkpoint: no such tensor in {shown_path(self.path)}, got {shown(name)}, expected one of "
                f"[{close}]"
            )
        return self._arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "settings": dict(self.settings)}

    def __repr__(self) -> str:
        factor = "" if self.replication_factor is None else f", replication factor {self.replication_factor}"
        unknown = "; groups are unknown, see .unknown" if self.unknown else ""
        return line(f"Checkpoint[{shown_path(self.path)}: {len(self)} tensors{factor}{unknown}]")

    def _summary(self) -> Summary:
        rows = ((name, a.dtype.name, a.shape, self._groups_of(name)) for name, a in self._arrays.items())
        title = f"{self!r}: {self.unknown}" if self.unknown else repr(self)
        return Summary(title, ("tensor", "dtype", "shape", "groups"), rows, len(self))

    def _groups_of(self, name: str) -> str:
        """The groups of a tensor as blocks of replicas, or the settings where the number of replicas is unknown."""
        settings = self.settings.get(name)
        if settings is None:
            return ""
        if self.replication_factor is None:
            return repr(settings)
        return groups_text_of(settings, self.replication_factor)


class _Settings(Mapping[str, VariableSettings]):
    """Settings by name, made when they are asked for."""

    def __init__(self, stored: dict[str, StoredSettings]) -> None:
        self._stored = stored

    def __getitem__(self, name: str) -> VariableSettings:
        return self._stored[name].value

    def __contains__(self, name: object) -> bool:
        return name in self._stored

    def __iter__(self) -> Iterator[str]:
        return iter(self._stored)

    def __len__(self) -> int:
        return len(self._stored)

    def __repr__(self) -> str:
        return f"Settings[{len(self)} tensors]"


def close_names(name: str, names: Iterable[str], cutoff: float = 0.6) -> list[str]:
    """Up to three names that resemble ``name``, quoted; of many, names of about its length are compared."""
    short = (each for each in names if len(each) <= _COMPARED_LENGTH)
    compared = heapq.nsmallest(_COMPARED_NAMES, short, key=lambda each: abs(len(each) - len(name)))
    return [
        shown_name(each)
        for each in difflib.get_close_matches(name[:_COMPARED_LENGTH], compared, n=3, cutoff=cutoff)
    ]
