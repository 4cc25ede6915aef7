"""Loading into programs of other groups, shards, dtypes and names; the reference is written out per replica."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import popsr
from popsr import errors, io
from tests_py.checkpoints.cases import FORMATS, ONNX, SAFETENSORS, Format, Program, saved, weights
from tests_py.support.helpers import Array, assert_same_bits, np_dtype
from tests_py.support.unchecked import unchecked

torch = pytest.importorskip("torch")
TORCH = Format(".pt", io.save_torch, io.load_torch)
ALL = pytest.mark.parametrize("format", [*FORMATS, TORCH], ids=str)


def program(replicas: int, labels: Any, rows: Array, name: str = "w") -> Program:
    """``name`` in groups by label of each replica; ``rows`` has one a group."""
    result = Program(replicas, embed=True)
    first = list(dict.fromkeys(labels))
    order = [first.index(each) for each in labels]
    grouping = result.ir.replica_grouping_from_assignments(order)
    result.add(
        name, rows if grouping.num_groups > 1 else rows[0], grouping if grouping.num_groups > 1 else None
    )
    return result


def per_replica(session: popsr.Session, name: str = "w") -> Array:
    variable = next(v for v in session._access.variables if v.id == name)
    rows = session.get_tensor_data(variable)
    grouping = variable.replica_grouping
    return rows[grouping.assignment] if grouping.num_groups > 1 else np.stack([rows] * grouping.num_replicas)


def values(count: int, dtype: str = "float32") -> Array:
    return np.arange(count * 6).reshape(count, 2, 3).astype(np_dtype(dtype))


# Groups

LEGAL = {
    "refine-one": ((0, 0, 0, 0), (0, 0, 1, 1), [5]),
    "refine-pairs": ((0, 0, 1, 1), (0, 1, 2, 3), [5, 6]),
    "refine-strided": ((0, 1, 0, 1), (0, 1, 2, 3), [5, 6]),
    "coarsen-equal": ((0, 1, 2, 3), (0, 0, 1, 1), [5, 5, 6, 6]),
    "coarsen-all": ((0, 0, 1, 1), (0, 0, 0, 0), [5, 5]),
    "across-equal": ((0, 0, 1, 1), (0, 1, 0, 1), [5, 5]),
    "same": ((0, 1, 0, 1), (0, 1, 0, 1), [5, 6]),
}


@ALL
@pytest.mark.parametrize(("before", "after", "rows"), LEGAL.values(), ids=LEGAL)
def test_each_replica_gets_the_value_that_it_had(
    tmp_path: Path, format: Format, before: Any, after: Any, rows: list[int]
) -> None:
    data = np.array(rows, np.float32)[:, None] * np.ones(3, np.float32)
    first = program(4, before, data).session()
    path = saved(tmp_path, format, first)
    second = program(4, after, np.zeros((len(set(after)), 3), np.float32)).session()
    diff = second.reset_host_weights(path)
    assert_same_bits(per_replica(second), per_replica(first))
    assert diff.regrouped == (() if before == after else ("w",))


ILLEGAL = {
    "coarsen": (
        (0, 1, 2, 3),
        (0, 0, 1, 1),
        r"\{0\}\{1\}\{2\}\{3\} in the file, whose rows 0 and 1 differ at element 0",
    ),
    "across": (
        (0, 0, 1, 1),
        (0, 1, 0, 1),
        r"\{0,1\}\{2,3\} in the file, .* expected \{0,2\}\{1,3\}, or rows of equal",
    ),
    "all": ((0, 1, 0, 1), (0, 0, 0, 0), r"\{0,2\}\{1,3\} in the file, .* expected \{0,1,2,3\}"),
}


@ALL
@pytest.mark.parametrize(("before", "after", "match"), ILLEGAL.values(), ids=ILLEGAL)
def test_groups_that_would_lose_rows_are_refused(
    tmp_path: Path, format: Format, before: Any, after: Any, match: str
) -> None:
    path = saved(tmp_path, format, program(4, before, values(len(set(before)))).session())
    second = program(4, after, values(len(set(after)))).session()
    old = weights(second)
    with pytest.raises(errors.ReplicaError, match=match):
        second.reset_host_weights(path)
    diff = second.reset_host_weights(path, dry_run=True)
    assert diff.refused == ("w",)
    assert not diff.ok
    assert {name: each.tobytes() for name, each in old.items()} == {
        name: each.tobytes() for name, each in weights(second).items()
    }


def test_a_negative_zero_is_another_row(tmp_path: Path) -> None:
    path = saved(tmp_path, SAFETENSORS, program(2, (0, 1), np.array([[0.0], [-0.0]], np.float32)).ir)
    with pytest.raises(errors.ReplicaError, match="rows 0 and 1 differ at element 0"):
        program(2, (0, 0), np.zeros((1, 1), np.float32)).session().reset_host_weights(path)


OTHER_REPLICAS: dict[str, tuple[Any, Any, bool]] = {
    "consecutive": ((0, 0, 1, 1), (0, 1), True),
    "interleaved": ((0, 1, 0, 1), (0, 1, 0, 1, 0, 1, 0, 1), True),
    "from-singles": ((0, 1), (0, 1, 0, 1), True),
    "another-order": ((0, 0, 1, 1), (0, 1, 0, 1, 0, 1, 0, 1), False),
    "mixed": ((0, 1, 0, 1), (0, 1, 1, 0, 0, 1, 1, 0), False),
    "fewer": ((0, 0, 1, 1, 2, 2, 3, 3), (0, 0, 1, 1), False),
}


@pytest.mark.parametrize(("before", "after", "is_legal"), OTHER_REPLICAS.values(), ids=OTHER_REPLICAS)
def test_groups_of_another_number_of_replicas(
    tmp_path: Path, before: Any, after: Any, is_legal: bool
) -> None:
    count = len(set(before))
    path = saved(tmp_path, SAFETENSORS, program(len(before), before, values(count)).ir)
    target = program(len(after), after, np.zeros((len(set(after)), 2, 3), np.float32))
    if is_legal:
        target.session().reset_host_weights(path)
    else:
        with pytest.raises(errors.ReplicaError, match="cannot be mapped"):
            target.session().reset_host_weights(path)
    session = target.session()
    if count == len(set(after)):
        session.reset_host_weights(path, regroup="order")
        assert_same_bits(session.get_tensor_data(target.variables["w"]), values(count))


@st.composite
def groupings(draw: Any) -> tuple[list[int], list[int], list[int]]:
    """Two tilings of 6 or 8 replicas, and a value for each group of the first."""
    replicas = draw(st.sampled_from([4, 6, 8]))

    def labels() -> list[int]:
        size = draw(st.sampled_from([each for each in range(1, replicas + 1) if replicas % each == 0]))
        order = draw(st.permutations(range(replicas)))
        found = [0] * replicas
        for place, replica in enumerate(order):
            found[replica] = place // size
        first = list(dict.fromkeys(found))
        return [first.index(each) for each in found]

    before = labels()
    return before, labels(), draw(st.lists(st.integers(0, 1), min_size=replicas, max_size=replicas))


@settings(max_examples=60, deadline=None)
@given(case=groupings())
def test_random_groupings_load_what_each_replica_had_or_nothing(
    tmp_path_factory: pytest.TempPathFactory, case: tuple[list[int], list[int], list[int]]
) -> None:
    before, after, numbers = case
    rows = np.array(numbers[: len(set(before))], np.float32)[:, None]
    first = program(len(before), before, rows).session()
    path = saved(tmp_path_factory.mktemp("w"), SAFETENSORS, first)
    second = program(len(after), after, np.full((len(set(after)), 1), 9, np.float32)).session()
    had = [rows[label, 0] for label in before]
    groups = [{had[r] for r in range(len(after)) if after[r] == label} for label in set(after)]
    fits = all(len(each) == 1 for each in groups)
    assert second.reset_host_weights(path, dry_run=True).ok == fits
    if fits:
        second.reset_host_weights(path)
        assert per_replica(second)[:, 0].tolist() == had
    else:
        with pytest.raises(errors.ReplicaError):
            second.reset_host_weights(path)
        assert np.all(per_replica(second) == 9)


# Shards


def sharded(replicas: int, shards: int, whole: Array, axis: int) -> Program:
    """``whole`` cut into shards, each on ``replicas // shards`` replicas, ``shards`` apart."""
    result = Program(replicas, embed=True)
    rows = np.stack(np.split(whole, shards, axis))
    grouping = result.ir.replica_grouping(stride=shards, group_size=replicas // shards)
    result.add("layer.w", rows if shards > 1 else rows[0], grouping if shards > 1 else None)
    result.add("b", np.arange(3, dtype=np.float32))
    return result


@ALL
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_shards_two_four_one_two(tmp_path: Path, format: Format, axis: int) -> None:
    whole = np.arange(8 * 4 * 12).reshape(8, 4, 12).astype(np_dtype("bfloat16"))
    path = saved(tmp_path, format, sharded(4, 2, whole, axis).ir)
    for replicas, shards in ((4, 4), (2, 1), (8, 2), (4, 4), (4, 2)):
        target = sharded(replicas, shards, np.zeros_like(whole), axis)
        session = target.session()
        diff = session.reset_host_weights(path, reshard={"layer.*": axis})
        assert diff.resharded == ("layer.w",)
        expected = np.stack(np.split(whole, shards, axis)) if shards > 1 else whole
        assert_same_bits(session.get_tensor_data(target.variables["layer.w"]), expected)
        path = saved(tmp_path, format, session)
        session.reset_host_weights(path, reshard=lambda name: axis if name == "layer.w" else None)


@settings(max_examples=40, deadline=None)
@given(
    extents=st.lists(st.integers(1, 3), min_size=1, max_size=3),
    axis=st.integers(0, 2),
    way=st.lists(st.sampled_from([1, 2, 4, 8]), min_size=1, max_size=4),
)
def test_resharding_there_and_back_is_the_identity(
    tmp_path_factory: pytest.TempPathFactory, extents: list[int], axis: int, way: list[int]
) -> None:
    axis %= len(extents)
    extents[axis] *= 8
    whole = np.random.default_rng(0).normal(size=extents).astype(np.float32)
    folder = tmp_path_factory.mktemp("w")
    path = saved(folder, SAFETENSORS, sharded(8, 2, whole, axis).ir)
    for shards in (*way, 2):
        session = sharded(8, shards, np.zeros_like(whole), axis).session()
        session.reset_host_weights(path, reshard={"layer.w": axis})
        path = saved(folder, SAFETENSORS, session)
    expected = np.stack(np.split(whole, 2, axis))
    assert_same_bits(io.load_safetensors(path)["layer.w"], expected)


def test_shards_of_a_file_without_settings(tmp_path: Path) -> None:
    """One whole tensor of a foreign file is cut; rows of a leading dimension are joined."""
    numpy = pytest.importorskip("safetensors.numpy")
    whole = np.arange(24, dtype=np.float32).reshape(8, 3)
    for shards in (1, 4):
        data = whole if shards == 1 else np.stack(np.split(whole, shards))
        numpy.save_file({"layer.w": data, "b": np.zeros(3, np.float32)}, tmp_path / "f.safetensors")
        session = sharded(2, 2, np.zeros_like(whole), 0).session()
        session.reset_host_weights(tmp_path / "f.safetensors", reshard={"layer.*": 0}, ignore_missing=True)
        assert_same_bits(weights(session)["layer.w"], whole.reshape(2, 4, 3))


# Casts

CASTS: dict[str, tuple[str, str, list[float], Any]] = {
    "narrow": ("float32", "bfloat16", [1 + 2**-8, 1 + 3 * 2**-8, -0.0], [1, 1 + 2**-6, -0.0]),
    "once": ("float64", "bfloat16", [1 + 2**-8 + 2**-40, 1 + 2**-8 - 2**-40], [1 + 2**-7, 1]),
    "widen": ("bfloat16", "float32", [1.5, float("inf"), float("nan")], [1.5, float("inf"), float("nan")]),
    "float8": ("float32", "float8_e4m3fn", [1.0625, 448], [1, 448]),
    "ints": ("int64", "int32", [-5, 2**31 - 1], [-5, 2**31 - 1]),
    "int-float": ("int32", "float32", [-5, 2**24], [-5, 2**24]),
    "float-int": ("float32", "int32", [-5, 2**24], [-5, 2**24]),
}


@ALL
@pytest.mark.parametrize(("before", "after", "given", "expected"), CASTS.values(), ids=CASTS)
def test_casts_on_request(
    tmp_path: Path, format: Format, before: str, after: str, given: list[float], expected: Any
) -> None:
    first, second = Program(), Program()
    first.add("w", np.array(given, np_dtype(before)))
    second.add("w", np.zeros(len(given), np_dtype(after)))
    path, session = saved(tmp_path, format, first.ir), second.session()
    with pytest.raises(errors.DTypeError, match=r"dtypes differ for 'w', got .*\(or cast=True\)"):
        session.reset_host_weights(path)
    with pytest.raises(errors.DTypeError, match="dtypes differ"):
        session.reset_host_weights(path, cast=["uint8"])
    assert session.reset_host_weights(path, cast=before, dry_run=True).cast == ("w",)
    session.reset_host_weights(path, cast=True)
    assert_same_bits(weights(session)["w"], np.array(expected, np.float64).astype(np_dtype(after)))


def test_float64_is_rounded_once_as_exact_fractions_say(tmp_path: Path) -> None:
    from fractions import Fraction

    rng = np.random.default_rng(3)
    data = np.ldexp(1 + rng.integers(0, 1 << 9, 400) / 256 + rng.integers(-1, 2, 400) * 2.0**-45, 3)
    first, second = Program(), Program()
    first.add("w", data)
    second.add("w", np.zeros(400, np_dtype("bfloat16")))
    session = second.session()
    session.reset_host_weights(saved(tmp_path, SAFETENSORS, first.ir), cast=True)
    for got, x in zip(weights(session)["w"].astype(np.float64), data, strict=True):
        step = Fraction(2) ** (int(np.floor(np.log2(x))) - 7)
        expected = round(Fraction(x) / step) * step  # ties to even
        assert Fraction(got) == expected


TOO_FAR: dict[str, tuple[str, str, float]] = {
    "overflow": ("float32", "float16", 7e4),
    "no-infinity": ("float32", "float8_e4m3fn", float("inf")),
    "fp8-overflow": ("float32", "float8_e4m3fn", 1e4),
    "wraps": ("int64", "int32", 2**31),
    "sign": ("int32", "uint32", -1),
    "fraction": ("float32", "int32", 0.5),
    "inexact": ("int64", "float32", 2**24 + 1),
    "largest": ("int64", "float64", 2**63 - 1),
    "unsigned": ("uint64", "float64", 2**64 - 1),
    "nan": ("float32", "int32", float("nan")),
}


@pytest.mark.parametrize(("before", "after", "value"), TOO_FAR.values(), ids=TOO_FAR)
def test_casts_that_lose_a_value_are_refused(tmp_path: Path, before: str, after: str, value: float) -> None:
    first, second = Program(), Program()
    first.add("w", np.array([1, value], np_dtype(before)))
    second.add("w", np.zeros(2, np_dtype(after)))
    path, session = saved(tmp_path, SAFETENSORS, first.ir), second.session()
    with pytest.raises(errors.DTypeError, match=r"a value of 'w' has no counterpart in .* at element 1"):
        session.reset_host_weights(path, cast=True)
    assert session.reset_host_weights(path, cast=True, dry_run=True).refused == ("w",)


# Names, parts, diffs


def two_layers(value: float, prefix: str = "") -> Program:
    result = Program(2)
    for i in range(2):
        result.add(f"{prefix}layer{i}.w", np.full((2, 2), value + i, np.float32))
        result.add(f"{prefix}layer{i}.b", np.full(2, -value - i, np.float32))
    return result


PARTS: dict[str, tuple[Any, list[str]]] = {
    "pattern": ("layer0.*", ["layer0.b", "layer0.w"]),
    "patterns": (["*.b", "layer1.w"], ["layer0.b", "layer1.b", "layer1.w"]),
    "predicate": (lambda name: name.endswith("w"), ["layer0.w", "layer1.w"]),
}


@ALL
@pytest.mark.parametrize(("only", "names"), PARTS.values(), ids=PARTS)
def test_partial_load(tmp_path: Path, format: Format, only: Any, names: list[str]) -> None:
    path = saved(tmp_path, format, two_layers(5).session())
    session = two_layers(1).session()
    old = weights(session)
    diff = session.reset_host_weights(path, only=only)
    assert sorted(diff.loaded) == names
    assert (
        sorted(name for name, each in weights(session).items() if each.tobytes() != old[name].tobytes())
        == names
    )
    assert sorted(format.load(path, only=only)) == names  # type: ignore[call-arg]


@ALL
def test_names_are_mapped(tmp_path: Path, format: Format) -> None:
    path = saved(tmp_path, format, two_layers(5, "model.").session())
    session = two_layers(1).session()
    with pytest.raises(errors.UnknownNameError, match=r"lacks variables, got no 'layer0.w' and 3 more"):
        session.reset_host_weights(path)
    session.reset_host_weights(path, rename=lambda name: name.removeprefix("model."))
    assert weights(session)["layer1.w"][0, 0] == 6
    session = two_layers(1).session()
    session.reset_host_weights(path, rename={"model.layer0.w": "layer1.w"}, only="layer1.w")
    assert weights(session)["layer1.w"][0, 0] == 5
    found = format.load(path, rename=lambda name: name[6:] if name.endswith("w") else None)  # type: ignore[call-arg]
    assert sorted(found) == ["layer0.w", "layer1.w"]


BAD: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "only-nothing": (
        {"only": "nothing*"},
        errors.UnknownNameError,
        "only matches no variable, got none of 5",
    ),
    "only-type": ({"only": 3}, errors.ArgumentTypeError, "only is not a sequence of patterns"),
    "only-item": ({"only": [3]}, errors.ArgumentTypeError, "only has no pattern, got 3, expected a str"),
    "rename-type": ({"rename": 3}, errors.ArgumentTypeError, "rename cannot be called, got 3"),
    "rename-result": ({"rename": lambda _: 3}, errors.ArgumentTypeError, "rename gives no name, got 3"),
    "rename-twice": (
        {"rename": lambda _: "a"},
        errors.AttributeValueError,
        "one name to two tensors, got 'a' for",
    ),
    "rename-unknown": ({"rename": {"q": "r"}}, errors.UnknownNameError, "missing in the file, got 'q'"),
    "cast": ({"cast": 3.5}, errors.ArgumentTypeError, "cast is not a bool, got 3.5"),
    "cast-word": ({"cast": "float33"}, errors.DTypeError, "cast"),
    "reshard": ({"reshard": 3}, errors.ArgumentTypeError, "reshard cannot be called"),
    "reshard-axis": ({"reshard": {"*": 2}}, errors.OutOfRangeError, "has no such axis for .*got 2"),
    "reshard-key": ({"reshard": {3: 0}}, errors.ArgumentTypeError, "reshard has no pattern, got 3"),
    "regroup": ({"regroup": "rows"}, errors.AttributeValueError, "regroup.*'rows'"),
}


@pytest.mark.parametrize(("options", "kind", "match"), BAD.values(), ids=BAD)
def test_wrong_options(tmp_path: Path, options: dict[str, Any], kind: type[Exception], match: str) -> None:
    path, session = saved(tmp_path, SAFETENSORS, two_layers(5).session()), two_layers(1).session()
    with pytest.raises(kind, match=f"^reset_host_weights: .*{match}"):
        unchecked(session.reset_host_weights)(path, **options)
    assert weights(session)["layer0.w"][0, 0] == 1


def test_shards_that_make_another_whole_are_refused(tmp_path: Path) -> None:
    path = saved(tmp_path, SAFETENSORS, sharded(4, 2, np.zeros((8, 4)), 0).ir)
    session = sharded(4, 4, np.zeros((8, 4)), 0).session()
    with pytest.raises(
        errors.ShapeError, match=r"got 2 of \(4, 4\), expected 4 of \(2, 4\) or others of the"
    ):
        session.reset_host_weights(path, reshard={"layer.w": 1})


@ALL
def test_a_dry_run_writes_nothing_and_says_all(tmp_path: Path, format: Format) -> None:
    first, second = Program(4, embed=True), Program(4, embed=True)
    pairs = first.ir.replica_grouping(1, 2)
    first.add("cast", np.zeros(2))
    first.add("shape", np.zeros(3, np.float32))
    first.add("gone", np.zeros(3, np.float32))
    first.add("pairs", np.ones((2, 2), np.float32), pairs)
    second.add("cast", np.ones(2, np.float32))
    second.add("shape", np.zeros(4, np.float32))
    second.add("new", np.zeros(4, np.float32))
    second.add("pairs", np.zeros(2, np.float32))
    path, session = saved(tmp_path, format, first.ir), second.session()
    diff = session.reset_host_weights(path, cast=True, dry_run=True)
    assert (diff.loaded, diff.cast, diff.regrouped) == (("one", "cast", "pairs"), ("cast",), ("pairs",))
    assert (diff.missing, diff.refused, diff.unexpected) == (("new",), ("shape",), ("gone",))
    assert not diff.ok
    assert diff.is_dry
    assert np.all(weights(session)["cast"] == 1)
    text = str(diff)
    assert "does not fit: 1 refused, 1 missing, 1 regroup, 1 cast, 1 load, 1 unexpected" in text
    assert "{0,1}{2,3}" in text
    assert "shapes differ" in text
    assert diff._repr_html_().startswith('<div class="popsr">')
    assert len(repr(diff)) <= 200


# PyTorch


@pytest.mark.parametrize(
    "name",
    [
        "float32",
        "float64",
        "float16",
        "bfloat16",
        "float8_e4m3fn",
        "float8_e5m2",
        "int64",
        "int8",
        "uint8",
        "bool",
    ],
)
def test_state_dicts_of_torch_in_and_out(tmp_path: Path, name: str) -> None:
    data = np.arange(6).reshape(2, 3).astype(np_dtype(name))
    first = Program(4, embed=True)
    first.add("w", data, first.ir.replica_grouping(1, 2))
    path = saved(tmp_path, TORCH, first.ir)
    state = torch.load(path, weights_only=True, mmap=True)
    assert sorted(state) == ["one", "w"]
    assert str(state["w"].dtype) == f"torch.{name}"
    assert_same_bits(state["w"].reshape(-1).view(torch.uint8).numpy(), data.reshape(-1).view(np.uint8))
    found = io.load_torch(path)
    assert_same_bits(found["w"], data)
    assert found.replication_factor == 4
    assert found.settings["w"].replica_grouping(4).groups == ((0, 1), (2, 3))
    torch.save({"model": {"w": state["w"].t()}, "step": 3, "list": [torch.ones(())]}, tmp_path / "x.pt")
    assert_same_bits(io.load_torch(tmp_path / "x.pt")["model.w"], np.ascontiguousarray(data.T))
    assert sorted(io.load_torch(tmp_path / "x.pt")) == ["list.0", "model.w"]


def test_a_module_takes_what_popsr_saved(tmp_path: Path) -> None:
    model = torch.nn.Linear(3, 2)
    torch.save(model.state_dict(), tmp_path / "model.pt")
    ir = popsr.Ir()
    with ir.main_graph:
        popsr.variable(np.zeros((2, 3), np.float32), name="weight")
        popsr.ops.relu(popsr.variable(np.zeros(2, np.float32), name="bias"))
    session = popsr.Session(ir)
    session.reset_host_weights(tmp_path / "model.pt")
    io.save_torch(session, tmp_path / "back.pt")
    other = torch.nn.Linear(3, 2)
    other.load_state_dict(torch.load(tmp_path / "back.pt", weights_only=True), strict=True)
    assert torch.equal(other.weight, model.weight)
    assert torch.equal(other.bias, model.bias)


class Evil:
    """Calls what must not be called."""

    def __reduce__(self) -> Any:
        return Path.touch, (Path("called"),)


FAULTS: dict[str, tuple[Callable[[Path], object], type[Exception], str]] = {
    "empty": (lambda path: path.write_bytes(b""), errors.CheckpointError, "is empty, expected a checkpoint"),
    "text": (
        lambda path: path.write_bytes(b"hello" * 9),
        errors.CheckpointError,
        "'x.pt' is not a file of PyTorch or damaged; its pickle has",
    ),
    "cut": (
        lambda path: (torch.save({"w": torch.ones(9)}, path), path.write_bytes(path.read_bytes()[:-200])),
        errors.CheckpointError,
        "torch.load says",
    ),
    "code": (lambda path: torch.save({"w": Evil()}, path), errors.CheckpointError, "holds more than weights"),
    "sparse": (
        lambda path: torch.save({"w": torch.eye(2).to_sparse()}, path),
        errors.UnsupportedError,
        "is not a dense array, got float32 of layout torch.sparse_coo",
    ),
    "complex": (
        lambda path: torch.save({"w": torch.ones(2, dtype=torch.complex64)}, path),
        errors.UnsupportedError,
        "has a dtype without arrays, got complex64",
    ),
    "gone": (lambda path: None, errors.FileError, "cannot read"),
}


@pytest.mark.parametrize(("make", "kind", "match"), FAULTS.values(), ids=FAULTS)
def test_faults_of_torch_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Any, kind: type[Exception], match: str
) -> None:
    monkeypatch.chdir(tmp_path)
    make(tmp_path / "x.pt")
    with pytest.raises(kind, match=match):
        io.load_torch("x.pt")
    assert not (tmp_path / "called").exists()


# Hashes


@pytest.mark.parametrize("algorithm", ["sha256", "blake2b"])
@pytest.mark.parametrize("format", [ONNX, SAFETENSORS, TORCH], ids=str)
def test_hashes_are_those_of_hashlib(tmp_path: Path, format: Format, algorithm: Any) -> None:
    import hashlib

    first = two_layers(5)
    path = tmp_path / f"w{format.suffix}"
    unchecked(format.save)(first.session(), path, hashes=algorithm)
    found = format.load(path)
    assert sorted(found.hashes) == sorted(found)
    for name, array in found.items():
        assert found.hashes[name] == {algorithm: hashlib.new(algorithm, array.tobytes()).hexdigest()}
    with pytest.raises(errors.AttributeValueError, match="hashes"):
        unchecked(format.save)(first.session(), path, hashes="md5")


def test_others_check_a_file_by_hashlib(tmp_path: Path) -> None:
    import hashlib

    safetensors = pytest.importorskip("safetensors")
    io.save_safetensors(two_layers(5).session(), tmp_path / "w.safetensors", hashes="sha256")
    with safetensors.safe_open(tmp_path / "w.safetensors", framework="numpy") as file:
        texts = file.metadata()
        for name in file.keys():  # noqa: SIM118 - not a mapping
            assert (
                hashlib.sha256(file.get_tensor(name).tobytes()).hexdigest() == texts[f"{name}/popsr.sha256"]
            )


def test_others_check_an_onnx_model_by_hashlib(tmp_path: Path) -> None:
    import hashlib

    onnx = pytest.importorskip("onnx")
    io.save_onnx(two_layers(5).session(), tmp_path / "w.onnx", hashes="blake2b")
    for tensor in onnx.load(tmp_path / "w.onnx").graph.initializer:
        texts = {each.key: each.value for each in tensor.metadata_props}
        assert hashlib.blake2b(tensor.raw_data).hexdigest() == texts["popsr.blake2b"]


def _of_hash(*texts: str) -> Any:
    import onnx

    tensor = onnx.numpy_helper.from_array(np.ones(3, np.float32), "w")
    for text in texts:
        tensor.metadata_props.add(key="popsr.sha256", value=text)
    return onnx.helper.make_model(onnx.helper.make_graph([], "g", [], [], [tensor]))


@pytest.mark.parametrize(
    ("texts", "match"),
    [
        (("no",), "has a wrong popsr.sha256, got 'no', expected hexadecimal digits"),
        (("0" * 64, "1" * 64), "has metadata of one key, got 'popsr.sha256' twice"),
    ],
)
def test_wrong_hashes_of_onnx_models(tmp_path: Path, texts: tuple[str, ...], match: str) -> None:
    onnx = pytest.importorskip("onnx")
    onnx.save(_of_hash(*texts), tmp_path / "w.onnx")
    with pytest.raises(errors.CheckpointError, match=match):
        io.load_onnx(tmp_path / "w.onnx")


def test_loading_checks_the_hashes_of_torch_files(tmp_path: Path) -> None:
    path = tmp_path / "w.pt"
    io.save_torch(two_layers(5).session(), path, hashes="sha256")
    data = bytearray(path.read_bytes())
    at = data.index(np.full(4, 5, np.float32).tobytes())
    data[at] ^= 1
    path.write_bytes(data)
    with pytest.raises(
        errors.CheckpointError, match=r"is damaged, got data of 'layer0.w' whose sha256 is another one"
    ):
        two_layers(1).session().reset_host_weights(path)
