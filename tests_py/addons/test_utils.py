"""Small modules of popsr.addons: utils, debugging, and the hints and patterns that have no effect."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import popsr
from popsr import errors, ops
from popsr.addons import debugging, patterns, utils
from popsr.addons.transforms import available_memory_proportion, use_fc_pass
from popsr.addons.utils import OrderedDict, WeightsDict
from tests_py.support.helpers import assert_refused, evaluate, make_variable
from tests_py.support.unchecked import unchecked

Argument, Attr = errors.ArgumentTypeError, errors.AttributeValueError
Array = np.ndarray[Any, Any]


# Utils


@pytest.mark.parametrize(
    ("items", "text"),
    [
        ({}, "{\n}"),
        ({"w": 1}, "{\nw: 1,\n}"),
        ({"fc.w": "x", "b": [2]}, "{\nfc.w: 'x',\nb: [2],\n}"),
    ],
)
def test_ordered_dicts_print_a_line_for_each_item(items: dict[str, Any], text: str) -> None:
    assert repr(OrderedDict(items)) == text
    assert f"{OrderedDict(items)}" == text


@given(st.dictionaries(st.text(), st.integers()))
def test_values_by_position_are_those_of_a_list(items: dict[str, int]) -> None:
    found: OrderedDict[str, int] = OrderedDict(items)
    values = list(items.values())
    for position in range(-len(values), len(values)):
        assert found.idx(position) == values[position]
    for outside in (len(values), -len(values) - 1):
        with pytest.raises(
            IndexError, match=r"idx: position out of range, got -?\d+, expected -?\d+ <= idx < \d+"
        ):
            found.idx(outside)


@given(st.lists(st.integers(0, 5)))
def test_duplicate_items_are_those_that_occur_twice(items: list[int]) -> None:
    wanted = [item for i, item in enumerate(items) if items.count(item) > 1 and item not in items[:i]]
    assert utils.duplicate_items(iter(items)) == wanted


@pytest.mark.parametrize(
    ("name", "suffix", "result"),
    [
        ("Linear_subgraph(0)", "grad", "Linear_grad"),
        ("Linear_subgraph(12)_grad", "mean", "Linear_grad_mean"),
        ("Linear", "grad", "Linear_grad"),
        ("Linear_subgraph()", "grad", "Linear_subgraph()_grad"),
    ],
)
def test_graph_names_get_suffixes(name: str, suffix: str, result: str) -> None:
    assert utils.suffix_graph_name(name, suffix) == result


class Base:
    def method(self) -> None: ...

    def other(self) -> None: ...


class Derived(Base):
    def method(self) -> None: ...


class Below(Derived):
    def other(self) -> None: ...


def test_overridden_methods_are_found() -> None:
    found = {
        cls.__name__: [utils.overrides(cls, Base, name) for name in ("method", "other")]
        for cls in (Base, Derived, Below)
    }
    assert found == {"Base": [False, False], "Derived": [True, False], "Below": [True, True]}
    assert not utils.overrides(Below, Derived, "method")


@pytest.mark.parametrize(
    ("arguments", "title"), [((), "duration"), (("compiling",), "compiling"), (("x", False), "x")]
)
def test_timers_print_a_title_and_seconds(
    arguments: tuple[Any, ...], title: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with utils.timer(*arguments):
        print("body")
    assert re.fullmatch(rf"body\n{title}: \d+\.\d{{3}} s\n", capsys.readouterr().out)


def test_timers_print_when_the_body_raises(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KeyError), utils.timer("failed"):
        raise KeyError
    assert capsys.readouterr().out.startswith("failed: ")


def test_null_contexts_can_be_entered() -> None:
    with utils.null_context() as nothing:
        assert nothing is None


def test_weights_are_checked_where_they_are_put_in() -> None:
    ir = popsr.Ir(replication=2)
    with ir.main_graph:
        w = make_variable(np.zeros((2, 3), np.float32), "w")
        groups = make_variable(
            np.zeros((2, 3), np.float32), "g", replica_grouping=ir.replica_grouping(group_size=1)
        )
        ops.print_tensor(w + groups)
    weights = WeightsDict({w: np.ones((2, 3), np.float32)})
    weights[groups] = np.full((2, 3), 2, np.float32)
    assert list(weights) == [w, groups]
    for key, value, error, match in [
        (
            w,
            np.ones((3, 2), np.float32),
            ValueError,
            r"data of 'w' is of another shape, got \(3, 2\), expected \(2, 3\)",
        ),
        (
            groups,
            np.ones(3, np.float32),
            ValueError,
            r"data of 'g' is of another shape, got \(3,\), expected \(2, 3\)",
        ),
        (
            w,
            np.ones((2, 3), np.float64),
            TypeError,
            "data of 'w' is of another dtype, got float64, expected float32",
        ),
        (w, [[1.0] * 3] * 2, TypeError, "data of 'w' is not an array"),
        ("w", np.ones((2, 3), np.float32), TypeError, "not a Variable, got 'w'"),
    ]:
        with pytest.raises(error, match=f"^WeightsDict: {match}") as caught:
            weights[key] = value  # type: ignore[index,assignment]
        assert isinstance(caught.value, popsr.Error)
    session = popsr.Session(ir)
    session.write_variables_data(weights)
    assert (session.get_tensor_data(w) == 1).all()
    assert (session.get_tensor_data(groups) == 2).all()
    del weights[w]
    assert len(weights) == 1
    assert w not in weights
    assert repr(weights).startswith("WeightsDict({'g': array([[2., 2., 2.]")


# Debugging

LEVELS = ("TRACE", "DEBUG", "INFO", "WARN")


def _imported(monkeypatch: pytest.MonkeyPatch, level: str | None) -> ModuleType:
    """A copy of the module that was imported with that level in the environment."""
    monkeypatch.delenv("MODEL_LOG_LEVEL", raising=False)
    if level is not None:
        monkeypatch.setenv("MODEL_LOG_LEVEL", level)
    spec = importlib.util.spec_from_file_location("debugging_copy", debugging.__file__)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("threshold", [None, *LEVELS])
@pytest.mark.parametrize("level", [None, *LEVELS])
def test_messages_below_the_level_of_the_environment_add_no_op(
    threshold: str | None, level: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = _imported(monkeypatch, threshold)
    printed = LEVELS.index(level or "DEBUG") >= LEVELS.index(threshold or "INFO")
    options = {} if level is None else {"level": level}
    with popsr.Ir().create_empty_graph() as graph:
        t = popsr.graph_input((2,), popsr.float32)
        result = module.print_tensor(t, "title", digits=3, **options)
        module.print_text("text", **options)
        module.print_text("number", t, **options)
        assert [op.attributes["title"] for op in graph.ops] == (
            ["title", "text", "number"] if printed else []
        )
        assert (result is t) is not printed


def test_unknown_levels_of_the_environment_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        ValueError, match="debugging: unknown MODEL_LOG_LEVEL, got 'LOUD', expected one of 'TRACE', "
    ):
        _imported(monkeypatch, "LOUD")


def test_texts_are_printed_each_time(capsys: pytest.CaptureFixture[str]) -> None:
    def program(x: popsr.Tensor) -> popsr.Tensor:
        def body(y: popsr.Tensor) -> popsr.Tensor:
            debugging.print_text("in the loop", level="WARN")
            y = debugging.print_tensor(y + 1, title="y", level="WARN", digits=2)
            debugging.print_text("y is", y, level="WARN")
            return y

        return ops.repeat(popsr.gir().create_graph(body, x), 2, x)[0]

    (result,) = evaluate(program, [np.array([1.0], np.float32)])
    assert result == [3.0]
    lines = [line.rstrip() for line in capsys.readouterr().err.splitlines() if line]
    assert lines == [
        "in the loop:",
        "y: [2.0]",
        "y is: [2.0000000]",
        "in the loop:",
        "y: [3.0]",
        "y is: [3.0000000]",
    ]


def test_texts_have_a_block_a_replica(capsys: pytest.CaptureFixture[str]) -> None:
    def program(x: popsr.Tensor) -> popsr.Tensor:
        debugging.print_text("here", level="WARN")
        return x + 1

    evaluate(program, [np.array([1.0], np.float32)], replication=2)
    lines = [line.rstrip() for line in capsys.readouterr().err.splitlines() if line]
    assert lines == ["here_replica_0:", "here_replica_1:"]


# Hints and patterns


@pytest.mark.parametrize(
    "call",
    [
        use_fc_pass.disable_fc_pass,
        use_fc_pass.enable_fc_pass,
        patterns.apply_pre_alias_patterns,
        lambda ir: patterns.apply_pre_alias_patterns(ir, level="all"),
        lambda ir: available_memory_proportion.set_available_memory_proportion_by_ipu(ir, [0.1, 1]),
        lambda ir: available_memory_proportion.set_graph_available_memory_proportion_by_ipu(
            ir.main_graph, iter([0.0])
        ),
    ],
)
def test_hints_and_patterns_change_nothing(call: Callable[[popsr.Ir], None]) -> None:
    ir = popsr.Ir()
    with ir.main_graph:
        ops.print_tensor(
            ops.matmul(popsr.constant(np.ones((2, 2), np.float32)), popsr.constant(np.eye(2, dtype="f4")))
        )
    before, options = str(ir.main_graph), repr(ir.options)
    assert call(ir) is None  # type: ignore[func-returns-value]
    assert (str(ir.main_graph), repr(ir.options)) == (before, options)


@pytest.mark.parametrize("group_size", [1, 2, 4])
def test_identical_inputs_need_no_patterns(group_size: int) -> None:
    """The reference refuses to prepare a session of this program unless the patterns were applied."""

    def program(x: popsr.Tensor) -> popsr.Tensor:
        group = popsr.gir().replica_grouping(group_size=group_size)
        return ops.collectives.replicated_all_reduce_identical_inputs(x, group=group)

    data = np.arange(8, dtype=np.float32).reshape(4, 2)
    (result,) = evaluate(program, [data], replication=4, replicated=True)
    assert (result == data).all()


# Refused

IR = popsr.Ir()
REFUSED: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (
        lambda: OrderedDict(a=1).idx(unchecked("a")),
        errors.ArgumentTypeError,
        "^idx: idx is not an int, got 'a'",
    ),
    (
        lambda: utils.suffix_graph_name(unchecked(1), "x"),
        Argument,
        "^suffix_graph_name: name is not a str, got 1",
    ),
    (
        lambda: utils.suffix_graph_name("x", unchecked(None)),
        Argument,
        "^suffix_graph_name: suffix is not a str, got None",
    ),
    (
        lambda: utils.overrides(Base, Derived, "method"),
        Argument,
        "^overrides: not derived from the base, got Base",
    ),
    (lambda: utils.overrides(unchecked(Base()), Base, "method"), Argument, "^overrides: not a class"),
    (
        lambda: utils.overrides(Derived, Base, "mehtod"),
        Attr,
        "^overrides: the base has no such method, got 'mehtod'",
    ),
    (lambda: debugging.print_tensor(unchecked(1)), Argument, "^print_tensor: t is not a Tensor, got 1"),
    (
        lambda: debugging.print_tensor(popsr.constant(1), level=unchecked("LOUD")),
        Attr,
        "^print_tensor: unknown level, got 'LOUD'",
    ),
    (lambda: debugging.print_text(unchecked(1)), Argument, "^print_text: text is not a str, got 1"),
    (lambda: debugging.print_text("x", unchecked(1)), Argument, "^print_text: num is not a Tensor, got 1"),
    (
        lambda: debugging.print_text("x", level=unchecked("debug")),
        Attr,
        "^print_text: unknown level, got 'debug', expected one",
    ),
    (lambda: use_fc_pass.disable_fc_pass(unchecked(1)), Argument, "^disable_fc_pass: ir is not an Ir, got 1"),
    (
        lambda: use_fc_pass.enable_fc_pass(unchecked(IR.main_graph)),
        Argument,
        "^enable_fc_pass: ir is not an Ir, got main graph",
    ),
    (
        lambda: patterns.apply_pre_alias_patterns(unchecked(1)),
        Argument,
        "^apply_pre_alias_patterns: ir is not an Ir, got 1",
    ),
    (
        lambda: patterns.apply_pre_alias_patterns(IR, unchecked("some")),
        Attr,
        "^apply_pre_alias_patterns: unknown level, got 'some'",
    ),
    *[
        (lambda hint=hint, at=at, given=given: hint(at, given), error, f"^{hint.__name__}: {match}")
        for hint, right, wrong, what in [
            (
                available_memory_proportion.set_available_memory_proportion_by_ipu,
                IR,
                IR.main_graph,
                "ir is not an Ir",
            ),
            (
                available_memory_proportion.set_graph_available_memory_proportion_by_ipu,
                IR.main_graph,
                IR,
                "graph is not a Graph",
            ),
        ]
        for at, given, error, match in [
            (wrong, [0.5], Argument, f"{what}, got "),
            (right, 0.5, Argument, "proportions is not a sequence of floats, got 0.5"),
            (right, [0.5, "1"], Argument, "a proportion is not a number, got '1'"),
            (right, [True], Argument, "a proportion is not a number, got True"),
            (right, [1.5], Attr, "a proportion is out of range, got 1.5, expected 0 to 1"),
            (right, [float("nan")], Attr, "a proportion is out of range, got nan"),
        ]
    ],
]


@pytest.mark.parametrize(("call", "error", "match"), REFUSED, ids=[str(i) for i in range(len(REFUSED))])
def test_refused(call: Callable[[], Any], error: type[Exception], match: str) -> None:
    assert_refused(call, error, match)
