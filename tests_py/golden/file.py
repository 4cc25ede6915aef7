"""The committed digests: reading, writing and comparing them. One line a program."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

PATH = Path(__file__).parent / "digests.json"
PARTS = ("outputs", "variables", "blocks", "blocks without sharing", "blocks without rewrites")
Digests = dict[str, dict[str, str]]


def read() -> Digests:
    """By program."""
    found: Digests = json.loads(PATH.read_text())
    return found


def write(digests: Digests) -> None:
    """Replace the file."""
    lines = (f"{json.dumps(name)}: {json.dumps(parts)}" for name, parts in digests.items())
    PATH.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def differences(expected: Mapping[str, str], found: Iterable[tuple[Any, Mapping[str, str]]]) -> list[str]:
    """Each part that differs from the expected digests, and the configurations in which it does."""
    by_part: dict[str, list[str]] = {}
    for configuration, digests in found:
        for part, digest in digests.items():
            if digest != expected.get(part):
                by_part.setdefault(part, []).append(f"({configuration})")
    return [f"{part} differ with {', '.join(by_part[part])}" for part in PARTS if part in by_part]
