"""A package that lies where packages are installed, for tests of lines; lines of explanations."""

from __future__ import annotations

import importlib.util
import os
import re
from pathlib import Path
from types import ModuleType
from typing import Any

__all__ = ["check_told", "installed", "line_of", "told"]


def installed(folder: Path, site: str, name: str, source: str) -> ModuleType:
    """The module of a source in a package below ``folder``."""
    file = folder / "lib" / site / "package" / f"{name}.py"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(source)
    spec = importlib.util.spec_from_file_location(f"package.{name}", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def line_of(file: str, text: str) -> str:
    """``file:line`` of the only line with a text in it."""
    lines = Path(file).read_text().splitlines()
    [number] = [n for n, each in enumerate(lines, 1) if each.rstrip().endswith(f"# {text}")]
    return f"{os.path.abspath(file)}:{number}"


def told(explanation: Any, file: str) -> list[str]:
    """Lines of an explanation without their places and groups; places of a file inside of them are HERE."""
    place = rf"(?:{re.escape(os.path.dirname(file))}/)?{re.escape(os.path.basename(file))}:\d+"
    lines = [re.sub(rf"^( *|root: ){place}: ", r"\1", line) for line in str(explanation).splitlines()]
    return [re.sub(place, "HERE", line.strip().partition(": differs between")[0]) for line in lines]


def check_told(proof: Any, path: str, lines: list[str], file: str, folder: Path) -> None:
    """An explanation has these lines, and no text of a proof names that popsr gave; its report is written below."""
    why = told(proof.explain(path), file)
    missing = [line for line in lines if line not in why]
    assert not missing, why
    proof.report(folder / "proof.txt")
    for text in (*why, *map(str, proof.lints), str(proof), (folder / "proof.txt").read_text()):
        text = text.partition("\nVariables\n")[0]
        assert not re.search(r"_out\b|_load\b|__t\d|copy_var_update_|replicated_all_reduce\(", text)
