"""Sources that the build writes: one that stays as it is keeps its time, so that its page is not read again."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

__all__ = ["write_files"]


def write_files(folder: Path, texts: Mapping[str, str]) -> None:
    """Write these files, by their paths below the folder, and remove all others there."""
    for name, text in texts.items():
        file = folder / name
        if not file.exists() or file.read_text() != text:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
    for file in folder.rglob("*"):
        if file.is_file() and str(file.relative_to(folder)) not in texts:
            file.unlink()
