"""Structs of the core stay small: a struct with many fields is several kinds of things with a tag."""

import re
from typing import Any

import pytest

from tests_py import ROOT

CPP = ROOT / "cpp/popsr"
MOST_MEMBERS = 10

# The program, its analysis, transforms, ops and run time: all headers of these folders.
LAYERS = "ir", "analysis", "transform", "ops", "runtime"
HEADERS = sorted(str(f.relative_to(CPP)) for layer in LAYERS for f in (CPP / layer).rglob("*.h"))


def structs_of(text: str) -> dict[str, str]:
    """The body of each struct that is defined at the start of a line, by its name."""
    return {
        m[1]: m[2] for m in re.finditer(r"^struct (\w+)[^;{]*\{\n(.*?)^\};", text, re.MULTILINE | re.DOTALL)
    }


def members_of(body: str) -> list[str]:
    """Names of the data members of a struct, in order."""
    body = re.sub(r"//.*", "", body)
    body = re.sub(r"template <[^<>]*>", "", body)
    while re.search(r"\{[^{}]*\}", body):
        body = re.sub(r"(\)(?: const)?)\s*\{[^{}]*\}", r"\1;", body)  # functions
        body = re.sub(r"=?\s*\{[^{}]*\}", "", body, count=1)  # initialisers
    while re.search(r"<[^<>]*>", body):
        body = re.sub(r"<[^<>]*>", "", body)
    names: list[str] = []
    for declaration in body.split(";"):
        if pointer := re.search(r"\(\*(\w+)\)\(", declaration):  # to a function
            names.append(pointer[1])
            continue
        if not declaration.strip() or re.search(r"\(|\busing\b|\bstatic\b|\benum\b", declaration):
            continue
        names += [re.split(r"[\s*&]", part.split("=")[0].strip())[-1] for part in declaration.split(",")]
    return names


def test_members_are_found() -> None:
    body = """
  Kind kind = Kind::kCopy;        ///< A tag; with a semicolon.
  std::vector<std::pair<int, int>> pairs = {};
  std::vector<const void*> lhs, rhs;
  template <class T>
  bool is() const {
    return std::holds_alternative<T>(form);
  }
  static int count(int x) { return x; }
  const Op* op = nullptr;
  bool (*refuses)(const Op&, int) = nullptr;
  bool exists() const { return op != nullptr; }
"""
    assert members_of(body) == ["kind", "pairs", "lhs", "rhs", "op", "refuses"]


@pytest.mark.parametrize("header", HEADERS)
def test_structs_have_few_members(header: Any) -> None:
    for name, body in structs_of((CPP / header).read_text()).items():
        members = members_of(body)
        assert len(members) <= MOST_MEMBERS, f"{header}: {name} has {len(members)} members: {members}"


def test_the_large_structs_are_looked_at() -> None:
    found = {name for header in HEADERS for name in structs_of((CPP / header).read_text())}
    program = "Tensor TensorState Op OpSchedule Graph Stream RemoteBuffer OpDef EmitArgs Context"
    alternatives = (
        "KernelRun CollectiveCall FusedProduct FusedAccumulation CopyBlocks Loop Merged Conditional"
    )
    assert {"Instruction", "LoweredOp", *program.split(), *alternatives.split()} <= found
