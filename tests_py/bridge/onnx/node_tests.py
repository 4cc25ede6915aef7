"""The node tests of ONNX's own suite through the backend, and the table of those that do not pass.

``python -m tests_py.bridge.onnx.node_tests`` prints the table of ``docs/bridge_onnx.md``.
"""

from __future__ import annotations

import re
import warnings
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx

from popsr.bridge.onnx import backend
from popsr.errors import Error, UnsupportedOpsError

__all__ = ["Outcome", "outcome", "table"]

# Reasons why values are not close, by the beginning of the test's name.
_OTHER_VALUES = {
    "test_attention_": "narrow floats: each product and sum of the expected values is rounded to them in NumPy",
    "test_bernoulli": "random bits of NumPy's generator",
    "test_dft_inverse": "noise of the expected float32 values, 2e-7, where the result is 0",
    "test_training_dropout": "random bits of NumPy's generator",
}
_UNTYPED = re.compile(r"input \(element type (\w+)\)|\(element type (\w+)\)")


@dataclass
class Outcome:
    """Names of tests that pass, and reasons of those that do not."""

    passed: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)

    @property
    def count(self) -> int:
        return len(self.passed) + len(self.failed)

    def by_reason(self) -> dict[str, list[str]]:
        found = defaultdict(list)
        for name, reason in self.failed.items():
            found[reason].append(name)
        return dict(sorted(found.items(), key=lambda item: (-len(item[1]), item[0])))


def outcome() -> Outcome:
    """All node tests, in the order of their names."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NumPy's, of the expected values
        from onnx.backend.test.loader import load_model_tests

        cases = sorted(load_model_tests(kind="node"), key=lambda case: case.name)
        made = Outcome()
        for case in cases:
            try:
                _run(case)
            except (Error, AssertionError) as error:
                made.failed[case.name] = _reason(case.name, error)
            else:
                made.passed.append(case.name)
    return made


def _run(case: Any) -> None:
    model = backend.prepare(case.model)
    for inputs, expected in case.data_sets:
        results = model.run(inputs)
        assert len(results) == len(expected)
        for result, value in zip(results, expected, strict=True):
            _compare(_expected(value), result, case.rtol, case.atol)


def _expected(value: Any) -> Any:
    return onnx.numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else np.asarray(value)


def _compare(expected: Any, result: Any, rtol: float, atol: float) -> None:
    assert (result.dtype, result.shape) == (expected.dtype, expected.shape)
    if expected.dtype.kind == "V":  # of ml_dtypes
        expected, result = expected.astype(np.float32), result.astype(np.float32)
    np.testing.assert_allclose(result, expected, rtol=rtol, atol=atol)


def _reason(name: str, error: Exception) -> str:
    if isinstance(error, UnsupportedOpsError):
        first = error.gaps[0].op
        if found := _UNTYPED.search(first):
            return f"element type {found[1] or found[2]}"
        if first.startswith(("input", "output")):
            kind = first.split("(")[1].split(" instead")[0].removeprefix("of a ").rstrip(")")
            return f"{kind} at the edge of a model"
        op, _, case = first.partition(" ")
        return f"`{op}` {case.strip('()')}".strip() if case else f"`{op}` has no rule"
    for begin, reason in _OTHER_VALUES.items():
        if name.startswith(begin) and isinstance(error, AssertionError):
            return reason
    return f"{type(error).__name__}: {error}"[:100]


def table(failed: Mapping[str, Iterable[str]]) -> list[str]:
    """Lines of the table: a reason, how many tests it has, and their names without ``test_``."""
    lines = ["| reason | tests | names |", "| --- | --- | --- |"]
    for reason, names in failed.items():
        short = [name.removeprefix("test_") for name in names]
        lines.append(f"| {reason} | {len(short)} | {' '.join(f'`{each}`' for each in short)} |")
    return lines


if __name__ == "__main__":
    found = outcome()
    print(f"{len(found.passed)} of {found.count} pass.")
    print("\n".join(table(found.by_reason())))
