"""The table of ops that ``python -m popsr ops`` prints, made of what the registry says."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from popsr import _core, ops
from popsr._support.host.tables import markdown_table, table_to_string
from popsr._support.records import OpSchema
from popsr.ops import collectives, var_updates
from popsr.ops._facts import in_place, operand_dtypes

__all__ = ["main", "op_rows"]

_HEADER = ("op", "dtypes", "gradient", "replicas agree on it", "in place")

_INTRODUCTION = """# The ops

`python -m popsr ops` prints a table of all ops, `python -m popsr ops --markdown` this page with the table.

- dtypes: of all operands, or of each. *floats* are float16, bfloat16, float32 and float64, *ints* 8 to 64 bits wide,
  with and without sign, *numbers* both, *float8* the floats of 8 bits, *carriers* float8_e8m0fnu and
  float4_e2m1fn, *all* these and bool.
- gradient: *yes*; *zeros*; *none*: the op passes no gradient on, which is an error if one is required there;
  *error*: differentiating a graph that passes a gradient through it is an error.
- replicas agree on it: where the output is bitwise the same. *Meet of inputs*: on replicas that agree on all of them.
- in place: the form that writes its result into its first operand, which makes a graph one that cannot be
  differentiated, or that is a view of it.
"""


def main(argv: Sequence[str]) -> int:
    """Print the table; returns the exit status."""
    parser = argparse.ArgumentParser("python -m popsr ops", description="Print a table of all ops.")
    parser.add_argument(
        "--markdown", action="store_true", help="as a page of Markdown: docs/ops.md, and the table"
    )
    rows = [_HEADER, *op_rows()]
    if parser.parse_args(argv).markdown:
        print(f"{_INTRODUCTION}\n{markdown_table([_marked(row) for row in rows])}")
    else:
        print(table_to_string(rows))
    return 0


def op_rows() -> list[tuple[str, ...]]:
    """A row for each op that has a Python function; forms in place are in the row of their op."""
    schemas = {schema["name"]: schema for schema in _core.op_schemas() if not schema["internal"]}
    names = sorted((_path(name), name) for name in schemas if name[:-1] not in schemas or name[-1] != "_")
    return [_row(path, schemas[name], schemas.get(f"{name}_")) for path, name in names]


def _row(path: str, schema: OpSchema, form: OpSchema | None) -> tuple[str, ...]:
    return (path, operand_dtypes(schema), schema["gradient"], schema["partition"], in_place(schema, form))


def _path(name: str) -> str:
    """Path of the function below ``popsr.ops``."""
    for module in (collectives, var_updates):
        if name in module.__all__:
            return f"{module.__name__.removeprefix(f'{ops.__name__}.')}.{name}"
    return name


def _marked(row: Sequence[str]) -> tuple[str, ...]:
    """Names of code as Markdown has them."""
    if row == _HEADER:
        return tuple(row)
    name, *middle, form = row
    code, colon, rest = form.partition(":")
    marked = form if form in ("", "itself") else f"`{code}`{colon}{rest}"
    return (f"`{name}`", *middle, marked)
