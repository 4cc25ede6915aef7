"""An op is one definition in a few aspects: attributes by handle, gradients as expressions, no dispatch on names."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from popsr import _core
from tests_py import ROOT

CORE = ROOT / "cpp/popsr"
FILES = sorted([*CORE.rglob("*.cpp"), *CORE.rglob("*.h")])
OPS = [file for file in FILES if file.is_relative_to(CORE / "ops")]
OTHERS = [file for file in FILES if not file.is_relative_to(CORE / "ops")]


def _code(file: Path) -> str:
    """The file without comments."""
    return re.sub(r"//[^\n]*", "", file.read_text())


def _found(files: list[Path], pattern: str) -> list[str]:
    return [
        f"{file.relative_to(CORE)}: {match.group(0).strip()}"
        for file in files
        for match in re.finditer(pattern, _code(file))
    ]


# Habits that the definitions left behind -> the form that replaced them.
LEFT_BEHIND = {
    r"\battr<[^()]*>\(": "op.get(kHandle)",
    r"\battribute\(\s*\"": "op.get(kHandle)",
    r"\b(?:get|find)\(\s*(?:Choice)?Attr<": "a handle that is declared once, beside the op",
    r"\b(?:required|optional|internal)\(\s*\"": "required(kHandle)",
    r"\b(?:ir\(\)|ir_)\.emit\(": "g.call(…)",
    r"\bcotangent\(": "g.dy()",
}


@pytest.mark.parametrize("habit", LEFT_BEHIND)
def test_ops_have_no_attributes_by_string_and_no_gradients_by_ids(habit: str) -> None:
    found = _found(OPS, habit)
    assert not found, f"got {found}, expected {LEFT_BEHIND[habit]}"


def test_only_ops_know_the_names_of_ops() -> None:
    """A property of the OpDef says what an analysis or a transform wants to know."""
    names = "|".join(re.escape(schema["name"]) for schema in _core.op_schemas())
    comparison = (
        rf"(?:name|op)(?:\(\))?\s*[!=]=\s*\"(?:{names})\"|\"(?:{names})\"\s*[!=]=\s*[\w.>-]*(?:name|op)\b"
    )
    found = _found(OTHERS, comparison)
    assert not found, f"ops are told apart by name, got {found}, expected a member of OpDef"


def _listed(node: ast.AST) -> list[object]:
    """Elements of a set, and of a list or tuple that is made one or searched."""
    if isinstance(node, ast.Set):
        return [each.value for each in node.elts if isinstance(each, ast.Constant)]
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in ("set", "frozenset")
    ):
        lists = node.args
    elif isinstance(node, ast.Compare) and isinstance(node.ops[0], (ast.In, ast.NotIn)):
        lists = node.comparators
    else:
        return []
    found = [each for each in lists if isinstance(each, (ast.List, ast.Tuple))]
    return [each.value for one in found for each in one.elts if isinstance(each, ast.Constant)]


def test_lists_of_ops_are_in_ops() -> None:
    """Readers of programs ask the registry's facts, or the sets of ``popsr.ops._kinds``.

    Importers, and modules with the names of other frameworks, have names of these.
    """
    names = {schema["name"] for schema in _core.op_schemas()}
    package = ROOT / "python/popsr"
    elsewhere = ("ops", "compat", "addons", "bridge/jax", "bridge/torch", "bridge/onnx")
    found = [
        f"{file.relative_to(package)}:{node.lineno}: {listed}"
        for file in sorted(package.rglob("*.py"))
        if not str(file.relative_to(package)).startswith(elsewhere)
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.expr)
        if len(listed := _listed(node)) > 2 and names.issuperset(map(str, listed))
    ]
    assert not found, (
        f"lists of ops, got {found}, expected a fact of the registry or a set of popsr.ops._kinds"
    )


def test_lists_of_ops_are_found() -> None:
    lists = ['{"add", "sub", "mul"}', 'frozenset(["add", "sub", "mul"])', 'x in ("add", "sub", "mul")']
    for text in lists:
        found = [_listed(node) for node in ast.walk(ast.parse(text))]
        assert ["add", "sub", "mul"] in found


def _members(struct: str) -> list[str]:
    """Names of the data members of a struct of op_def.h."""
    text = _code(CORE / "ir" / "op_def.h")
    body = re.search(rf"struct {struct} \{{\n(.*?)\n\}};", text, re.DOTALL)
    assert body, struct
    declarations = re.sub(r"(?<=[)t]) \{[^{}]*\}", ";", body.group(1))  # functions without their bodies
    members = []
    for declaration in re.sub(r"\{[^{}]*\}", "", declarations).split(";"):
        declared = declaration.split("=")[0].strip()
        pointer = re.search(r"\(\*(\w+)\)", declared)
        if pointer:
            members.append(pointer.group(1))
        elif declared and "(" not in declared:
            members.append(declared.split()[-1])
    return members


def _aspects() -> list[str]:
    return re.findall(r"^struct (\w+Aspect) ", (CORE / "ir" / "op_def.h").read_text(), re.MULTILINE)


@pytest.mark.parametrize("struct", ["OpDef", *_aspects()])
def test_an_aspect_of_an_op_has_at_most_ten_members(struct: str) -> None:
    assert 2 < len(_members(struct)) <= 10, _members(struct)


def test_members_are_counted() -> None:
    assert _members("OpDef")[:4] == ["name", "inputs", "attrs", "infer"]
    assert _members("GradAspect") == ["rule", "inputs", "each", "of_whole", "missing", "refuses"]
    assert len(_aspects()) == len(_members("OpDef")) - 4


def test_schemas_show_choices() -> None:
    choices = {
        (schema["name"], attr["name"]): attr["choices"]
        for schema in _core.op_schemas()
        for attr in schema["attrs"]
        if attr["choices"]
    }
    assert choices["init", "init_type"] == ["zero", "undef"]
    assert choices["replicated_all_reduce", "op"][:3] == ["add", "mean", "mul"]
    defaults = {
        (schema["name"], attr["name"]): attr["default"]
        for schema in _core.op_schemas()
        for attr in schema["attrs"]
    }
    assert all(defaults[key] is None or defaults[key] in names for key, names in choices.items())
