"""Facts of the registry in docstrings of ops: ``python tests_py/repo/documentation/op_docstrings.py --write``.

The section ``Facts:`` of each op's Python function follows ``Returns:``. It stands in the source, so editors and
``help`` show it and an import costs nothing; test_op_docstrings.py compares it with the registry.
"""

from __future__ import annotations

import ast
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

from popsr import _core
from popsr._support.records import OpSchema
from popsr._tools.show.ops_table import in_place, operand_dtypes

FOLDER = Path(__file__).resolve().parents[3] / "python" / "popsr" / "ops"
HEADING = "Facts:"
WIDTH = 110
_SECTION = re.compile(r" {4}[A-Z]\w*:")

Schema = OpSchema


def facts(schema: Schema, form: Schema | None) -> list[str]:
    """The lines of the section, indented as the body of a docstring."""
    items = {
        "dtypes": operand_dtypes(schema),
        "gradient": schema["gradient"],
        "replicas": schema["partition"],
        "rounding": _rounding(schema),
        "in place": re.sub(r"\b\w+_(?=:|$)", r"``\g<0>``", in_place(schema, form)),  # not a reference
    }
    lines = [f"    {HEADING}"]
    for name, text in items.items():
        if text:
            wrapped = textwrap.wrap(f"{name}: {text}", WIDTH - 12)
            lines += [f"        {wrapped[0]}", *(f"            {line}" for line in wrapped[1:])]
    return lines


def _rounding(schema: Schema) -> str:
    if schema["control"] != "none":
        return "by the ops of the graphs it runs"
    return "stochastic where stochastic rounding is on" if schema["rounding"] else "never stochastic"


def with_facts(lines: list[str], section: list[str]) -> list[str]:
    """The lines of a docstring, the closing quotes the last of them, with the section in its place."""
    kept = _without_section(lines)
    heads = [number for number, line in enumerate(kept) if _SECTION.fullmatch(line)]
    returns = next((number for number in heads if kept[number].strip() == "Returns:"), None)
    later = [number for number in heads if number > (-1 if returns is None else returns)]
    if returns is None:
        later = [number for number in heads if kept[number].strip() != "Args:"]
    at = later[0] if later else len(kept) - 1
    if not heads:  # the summary is followed by a blank line
        section = ["", *section]
    return [*kept[:at], *section, *kept[at:]]


def updated(source: str, family: str) -> str:
    """The source of a family's module, its docstrings with the facts of today's registry."""
    lines = source.split("\n")
    for function, schema, form in reversed(list(_functions(source, family))):
        docstring = function.body[0]
        first, last = docstring.lineno - 1, docstring.end_lineno or docstring.lineno
        old = lines[first:last]
        if len(old) == 1:
            old = [old[0].removesuffix('"""'), '    """']
        lines[first:last] = with_facts(old, facts(schema, form))
    return "\n".join(lines)


def source_file(family: str) -> Path:
    """The module that has the functions of a family."""
    (file,) = (file for file in FOLDER.rglob(f"{family}.py") if "_exact" not in file.parts)
    return file


def families() -> list[str]:
    """Names of the modules that have functions of ops."""
    return sorted({schema["family"] for schema in _core.op_schemas() if not schema["internal"]})


def _functions(source: str, family: str) -> Iterator[tuple[ast.FunctionDef, Schema, Schema | None]]:
    schemas = {s["name"]: s for s in _core.op_schemas() if not s["internal"]}
    for node in ast.parse(source).body:
        if (
            isinstance(node, ast.FunctionDef)
            and node.name in schemas
            and schemas[node.name]["family"] == family
        ):
            yield node, schemas[node.name], schemas.get(f"{node.name}_")


def _without_section(lines: list[str]) -> list[str]:
    heading = f"    {HEADING}"
    if heading not in lines:
        return lines
    start = lines.index(heading)
    end = next(n for n in range(start + 1, len(lines)) if not lines[n].startswith("        "))
    others = [line for line in (*lines[:start], *lines[end:]) if _SECTION.fullmatch(line)]
    if not others and start and not lines[start - 1]:
        start -= 1  # the blank line came with the section
    return [*lines[:start], *lines[end:]]


def main() -> int:
    """Name the stale modules, or write them; returns the exit status."""
    stale = []
    for family in families():
        path = source_file(family)
        source = path.read_text()
        fresh = updated(source, family)
        if fresh != source:
            stale.append(family)
            if "--write" in sys.argv[1:]:
                path.write_text(fresh)
    print("changed:" if "--write" in sys.argv[1:] else "stale:", ", ".join(stale) or "none")
    return int(bool(stale) and "--write" not in sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
