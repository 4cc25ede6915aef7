"""The page of PyTorch says which ops of ATen's core set run, are analysed only, or are refused."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import popsr.bridge.torch as bridge
import popsr.bridge.torch._importer  # noqa: F401  # fills RULES
from popsr.bridge import UnsupportedOpsError
from popsr.bridge.torch._rules import RULES
from popsr.bridge.torch._tracing.decompositions import decompositions
from popsr.errors import UnsupportedError
from tests_py import ROOT

torch = pytest.importorskip("torch")

from tests_py.bridge.torch.ops.decomposed_rows import DECOMPOSED  # noqa: E402
from tests_py.bridge.torch.ops.test_rows import CLOSE, ELSEWHERE, EXACT, RANDOM, UNDEFINED  # noqa: E402

PAGE = ROOT / "docs" / "bridge_torch.md"
# Ops of dynamic shapes and of memory formats: numbers that a trace of fixed shapes knows.
SYMBOLIC = ("sym_numel", "sym_size", "sym_stride", "sym_storage_offset", "sym_is_contiguous")
X = torch.randn(4, 6, generator=torch.Generator().manual_seed(0))
# Steps whose results popsr knows the type and shape of, not the value.
ANALYSED: dict[str, Any] = {
    "_fft_r2c.default": lambda x: torch.fft.rfft(x).real,
    "_fft_c2r.default": lambda x: torch.fft.irfft(torch.complex(x, x)),
}
# Steps whose results have a shape of the data.
REFUSED: dict[str, Any] = {"nonzero.default": lambda x: x[torch.nonzero(x[:, 0] > 0)[:, 0]]}
# Steps with an op that writes, of which the functional graph has another one.
WRITES: dict[str, Any] = {"resize_.default": lambda x: x.clone().resize_(8, 3)}


def core_ops() -> list[str]:
    """Overloads with torch's tag of the core set, without those of dynamic shapes."""
    found = []
    known = torch._C._dispatch_get_all_op_names()  # dir(torch.ops.aten) has what was used
    for name in {each.removeprefix("aten::").split(".")[0] for each in known if each.startswith("aten::")}:
        packet = getattr(torch.ops.aten, name)
        for overload in packet.overloads() if hasattr(packet, "overloads") else ():
            tagged = torch.Tag.core in getattr(packet, overload).tags
            if tagged and name not in SYMBOLIC and not overload.endswith("out"):
                found.append(f"{name}.{overload}")
    return sorted(found)


def test_each_op_of_the_core_set_is_tried() -> None:
    """By a row of its rule or of its decomposition, or by a step below."""
    tried = {*EXACT, *CLOSE, *ELSEWHERE, *RANDOM, *UNDEFINED, *DECOMPOSED, *WRITES, *ANALYSED, *REFUSED}
    assert set(core_ops()) <= tried
    decomposed = {str(op).removeprefix("aten.") for op in decompositions()}
    assert set(DECOMPOSED) <= decomposed - set(RULES)
    assert not (set(ANALYSED) | set(REFUSED)) & (decomposed | set(RULES))


def test_page_has_the_coverage() -> None:
    ops = core_ops()
    counts = [
        len([op for op in ops if op in table])
        for table in (RULES, {**DECOMPOSED, **WRITES}, ANALYSED, REFUSED)
    ]
    assert sum(counts) == len(ops)
    page = PAGE.read_text()
    row = f"| {len(ops)} | {' | '.join(map(str, counts))} |"
    assert row in page, row
    for title, table in (("Analysed only", ANALYSED), ("Refused", REFUSED)):
        listed = re.search(rf"{title}: ([^.]+(?:\.default`[^.]*)*)\.", page)
        assert listed is not None, title
        assert sorted(re.findall(r"`([^`]+)`", listed[1])) == sorted(table), title


@pytest.mark.parametrize("name", DECOMPOSED)
def test_decomposed(name: str) -> None:
    packet, overload = name.rsplit(".", 1)
    op = getattr(getattr(torch.ops.aten, packet), overload)
    for args, options in DECOMPOSED[name]:
        places = [i for i, each in enumerate(args) if isinstance(each, torch.Tensor)]

        def step(
            _model: Any, *tensors: Any, args: Any = args, places: Any = places, options: Any = options
        ) -> Any:
            given = list(args)
            for i, t in zip(places, tensors, strict=True):
                given[i] = t
            return op(*given, **options)

        inputs = [args[i].clone() for i in places]
        got = bridge.trace_step(step, torch.nn.Module(), None, *inputs, replicas=2, equal=["*"]).run()
        made = op(*[each.clone() if isinstance(each, torch.Tensor) else each for each in args], **options)
        results = list(made) if isinstance(made, list | tuple) else [made]
        for i, expected in enumerate(results):
            path = f"result[{i}]" if isinstance(made, list | tuple) else "result"
            np.testing.assert_allclose(got[path][1], expected.numpy(), rtol=2e-5, atol=2e-5, err_msg=path)


@pytest.mark.parametrize("name", WRITES)
def test_writes(name: str) -> None:
    def step(_model: Any, x: Any) -> Any:
        return WRITES[name](x)

    got = bridge.trace_step(step, torch.nn.Module(), None, X, replicas=2, equal=["x"]).run()
    np.testing.assert_array_equal(got["result"][1], WRITES[name](X).numpy())


@pytest.mark.parametrize("name", ANALYSED)
def test_analysed_only(name: str) -> None:
    """Refused, unless analysed with results that are equal where the operands are."""

    def step(_model: Any, x: Any) -> Any:
        return ANALYSED[name](x)

    def trace(**options: Any) -> Any:
        return bridge.trace_step(step, torch.nn.Module(), None, X, replicas=2, **options)

    with pytest.raises(UnsupportedOpsError, match=name.split(".")[0]):
        trace()
    for equal, partition in (([], "{0}{1}"), (["x"], "{0,1}")):
        made = trace(unsupported="conservative", equal=equal)
        assert str(made.prove().facts.partition(made.results[0].tensor)) == partition
        with pytest.raises(UnsupportedOpsError):
            made.run()


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    for unsupported in ("error", "conservative"):
        with pytest.raises(UnsupportedError, match=r"at .*test_coverage.py:\d+"):
            bridge.trace_step(
                lambda _model, x: REFUSED[name](x),
                torch.nn.Module(),
                None,
                X,
                replicas=2,
                unsupported=unsupported,
            )
