"""Structs of the core stay small: a struct with many fields is several kinds of things with a tag."""

import re

import pytest

from tests_py import ROOT

CPP = ROOT / "cpp/popsr"
MOST_MEMBERS = 10

# The alternatives of the variants stand in these headers, too.
HEADERS = ["runtime/lowering/lowered_program.h"]
HEADERS += sorted(f"runtime/instructions/{f.name}" for f in (CPP / "runtime/instructions").glob("*.h"))


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
        if not declaration.strip() or re.search(r"\(|\busing\b|\bstatic\b|\benum\b", declaration):
            continue
        names += [re.split(r"[\s*&]", part.split("=")[0].strip())[-1] for part in declaration.split(",")]
    return names


def test_members_are_found():
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
"""
    assert members_of(body) == ["kind", "pairs", "lhs", "rhs", "op"]


@pytest.mark.parametrize("header", HEADERS)
def test_structs_have_few_members(header):
    for name, body in structs_of((CPP / header).read_text()).items():
        members = members_of(body)
        assert len(members) <= MOST_MEMBERS, f"{header}: {name} has {len(members)} members: {members}"


def test_instructions_and_lowered_ops_are_looked_at():
    found = {name for header in HEADERS for name in structs_of((CPP / header).read_text())}
    alternatives = "KernelRun Exchange FusedProduct FusedAccumulation CopyBlocks Loop Merged Conditional"
    assert {"Instruction", "LoweredOp", *alternatives.split()} <= found
