"""A line computes for a variable only where the source is certain of it."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from popsr.bridge._step.assigned import variable_at

ROWS = [
    ("h = f(x)  #", "h"),
    ("h: Array = f(x)  #", "h"),
    ("h += f(x)  #", "h"),
    ("self.seen = f(x)  #", "self.seen"),
    ("params['head'] = f(x)  #", "params['head']"),
    ("h = [f(y) for y in x]  #", "h"),
    ("h = f(\n    x,  #\n)", "h"),
    ("h = f(x) if g(x) else (  #\n    x\n)", "h"),
    ("if x:\n    h = f(x)  #", "h"),
    ("for y in x:\n    h = f(y)  #", "h"),
    ("if x:\n    h = f(x)\nelse:\n    k = f(x)  #", "k"),
    ("class A:\n    def f(self):\n        h = g(x)  #", "h"),
    ("f(x)  #", ""),
    ("return_ = f(x); k = g(x)  #", ""),
    ("a, b = f(x)  #", ""),
    ("[a] = f(x)  #", ""),
    ("a = b = f(x)  #", ""),
    ("*a, = f(x)  #", ""),
    ("grads[name] = f(x)  #", ""),
    ("f(x).grad = g(x)  #", ""),
    ("h = tree_map(lambda p: p - x, params)  #", ""),
    ("h = f(\n    lambda p: p  #\n)", ""),
    ("h = sum(f(y) for y in x)  #", ""),
    ("h = f(k := g(x))  #", ""),
    ("def f():\n    h = yield g(x)  #", ""),
    ("async def f():\n    h = await g(x)  #", ""),
    ("if x: h = f(x)  #", ""),
    ("for y in f(x): h = y  #", ""),
    ("for y in f(x):  #\n    h = y", ""),
    ("while f(x):  #\n    h = x", ""),
    ("with f(x) as h:  #\n    pass", ""),
    ("try:\n    pass\nexcept f(x): h = g(x)  #", ""),
    ("match f(x):\n    case y if g(y):  #\n        h = y", ""),
    ("match f(x):\n    case y: h = g(y)  #", ""),
    ("@f(x)  #\ndef g():\n    pass", ""),
    ("def g(x=f(x)): h = x  #", ""),
    ("h = f(x)\n#", ""),
    ("h = f(x  #", ""),
]


@pytest.mark.parametrize(("source", "variable"), ROWS)
def test_a_line_computes_for_the_target_of_its_one_assignment(
    source: str, variable: str, tmp_path: Path
) -> None:
    file = tmp_path / "model.py"
    file.write_text(textwrap.dedent(source) + "\n")
    [line] = [n for n, text in enumerate(source.split("\n"), 1) if "#" in text]
    assert variable_at(f"{file}:{line}") == variable


@pytest.mark.parametrize("location", ["", "no_such_file.py:3", "model.py:0", "Cell In[7], line 2"])
def test_a_line_that_cannot_be_read_has_none(location: str) -> None:
    assert variable_at(location) == ""
