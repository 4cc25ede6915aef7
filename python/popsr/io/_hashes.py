"""Hashes of tensors in checkpoints, with which others can check the data by ``hashlib`` alone."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from typing import Literal

from popsr._session.rows import Array
from popsr._support.host.arguments import read_choice
from popsr._support.host.files import bytes_of, shown_name
from popsr.io._open_file import OpenFile
from popsr.io._program import Program

__all__ = [
    *("HASH_BYTES", "HASH_OF_KEY", "Hashes"),
    *("hash_texts", "hash_texts_of", "read_hash", "read_hashes"),
]

Hashes = Literal["sha256", "blake2b"] | None
"""A hash of ``hashlib`` for each tensor; None for none, as they take longer than the rest of a save."""

HASH_OF_KEY = {"popsr.sha256": "sha256", "popsr.blake2b": "blake2b"}
HASH_BYTES = 600
"""Of the objects that stand for the hash of a tensor, besides the tensor's name."""

_HEXADECIMAL = re.compile("[0-9a-f]{64}|[0-9a-f]{128}")
_KEY_OF_HASH = {name: key for key, name in HASH_OF_KEY.items()}


def read_hashes(where: str, hashes: Hashes) -> str | None:
    """The name of a hash, or None.

    Raises:
        AttributeValueError: it is another one.
    """
    return None if hashes is None else read_choice(where, "hashes", hashes, tuple(_KEY_OF_HASH))


def read_hash(file: OpenFile, key: str, value: str) -> tuple[str, str]:
    """Name and digits of the hash that a file has under one of the keys.

    Raises:
        CheckpointError: ``value`` does not consist of 64 or 128 hexadecimal digits.
    """
    if not _HEXADECIMAL.fullmatch(value):
        raise file.bad(f"has a wrong {key}, got {shown_name(value, 40)}, expected hexadecimal digits")
    return HASH_OF_KEY[key], value


def hash_texts_of(algorithm: str, parts: Iterable[Array]) -> dict[str, str]:
    """Metadata of one tensor, whose data comes in parts: a hash of its bytes as they are in the file."""
    found = hashlib.new(algorithm)
    for part in parts:
        found.update(bytes_of(part))
    return {_KEY_OF_HASH[algorithm]: found.hexdigest()}


def hash_texts(algorithm: str | None, program: Program) -> dict[str, str]:
    """Metadata of all tensors, each key with the tensor's name before it."""
    if algorithm is None:
        return {}
    return {
        f"{variable.id}/{key}": text
        for variable in program.variables
        for key, text in hash_texts_of(algorithm, program.parts(variable)).items()
    }
