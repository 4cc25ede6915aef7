"""The page of PyTorch says which ops of ATen's core set have a rule, are decomposed, or are lacking."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import popsr.bridge.torch._importer  # noqa: F401  # fills RULES
from popsr.bridge.torch._decompositions import decompositions
from popsr.bridge.torch._rules import RULES

torch = pytest.importorskip("torch")

PAGE = Path(__file__).parents[3] / "docs" / "bridge_torch.md"
SYMBOLIC = ("sym_numel", "sym_size", "sym_stride", "sym_storage_offset")  # of dynamic shapes


def core_ops() -> list[str]:
    """Overloads with torch's tag of the core set, without those of dynamic shapes."""
    found = []
    for name in dir(torch.ops.aten):
        packet = getattr(torch.ops.aten, name)
        for overload in packet.overloads() if hasattr(packet, "overloads") else ():
            tagged = torch.Tag.core in getattr(packet, overload).tags
            if tagged and name not in SYMBOLIC and not overload.endswith("out"):
                found.append(f"{name}.{overload}")
    return sorted(found)


def test_page_has_the_coverage() -> None:
    decomposed = {str(op).removeprefix("aten.") for op in decompositions()}
    ops = core_ops()
    ruled = [op for op in ops if op in RULES]
    others = [op for op in ops if op not in RULES and op in decomposed]
    lacking = [op for op in ops if op not in RULES and op not in decomposed]
    page = PAGE.read_text()
    row = f"| {len(ops)} | {len(ruled)} | {len(others)} | {len(lacking)} |"
    assert row in page, row
    listed = re.search(r"Lacking: ([^\n]+(?:\n[^\n]+)*)\n\n", page)
    assert listed is not None
    assert re.findall(r"`([^`]+)`", listed[1]) == lacking, lacking
