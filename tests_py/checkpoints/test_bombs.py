"""Whatever a file contains, loading it takes memory in proportion to its size, and comes to an end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from popsr import io
from popsr.io._budget import Budget
from popsr.io._settings import groups_text_of
from tests_py.checkpoints.bombs import BOMBS, all_replicas, grouped, header, one_group
from tests_py.support.helpers import run_python

ALLOCATOR = 1 << 20  # bytes: pages that malloc has begun, of which the budget knows nothing


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    return measured([name for name, bomb in BOMBS.items() if not bomb.is_slow], tmp_path_factory.mktemp("q"))


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    return measured([name for name, bomb in BOMBS.items() if bomb.is_slow], tmp_path_factory.mktemp("s"))


def measured(names: list[str], folder: Path) -> dict[str, list[dict[str, Any]]]:
    """Memory of loading each file, in one process that forks: imports take longer than most files."""
    pytest.importorskip("onnx")
    code = f"from tests_py.checkpoints.bombs import measure; measure({names!r}, {str(folder)!r})"
    # Large blocks come from the system and go back to it, so that memory which is taken is seen.
    lines = map(json.loads, run_python(code, MALLOC_MMAP_THRESHOLD_="65536").splitlines())
    result: dict[str, list[dict[str, Any]]] = {}
    for line in lines:
        result.setdefault(line["name"], []).append(line)
    return result


@pytest.mark.parametrize("name", [name for name, bomb in BOMBS.items() if not bomb.is_slow])
def test_memory_is_bounded(name: str, quick: dict[str, list[dict[str, Any]]]) -> None:
    check(name, quick[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, bomb in BOMBS.items() if bomb.is_slow])
def test_memory_of_big_files_is_bounded(name: str, slow: dict[str, list[dict[str, Any]]]) -> None:
    check(name, slow[name])


@pytest.mark.parametrize("settings", [one_group, all_replicas], ids=["stride", "kind"])
def test_equal_groups_of_many_tensors_are_made_once(tmp_path: Path, settings: Any) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(header(grouped(300, settings)))
    found = io.load_safetensors(path)
    groups_text_of.cache_clear()
    assert {found._groups_of(name) for name in found} == {"all"}
    assert groups_text_of.cache_info().misses == 1


def check(name: str, found: list[dict[str, Any]]) -> None:
    load, reset = found
    assert (load["what"], reset["what"]) == ("load", "reset")
    for each in found:
        print({key: value for key, value in each.items() if key != "text"})
        assert each["memory"] <= Budget.PER_BYTE * each["bytes"] + Budget.FIXED + ALLOCATOR
        assert len(each["text"]) <= 500
        assert "\n" not in each["text"]
    match = BOMBS[name].match
    if match:
        assert load["error"] in ("CheckpointError", "FileError", "UnsupportedError")
        assert match in load["text"]
    else:
        assert (load["error"], load["text"]) == ("", "")
    assert reset["error"] in (load["error"], "UnknownNameError")  # it has none of the session's variables
