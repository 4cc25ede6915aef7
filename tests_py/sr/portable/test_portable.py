"""The portable form of casts, in array operations, beside the core: NumPy's here, then torch's and JAX's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from popsr import errors, sr
from popsr.sr._formats import FORMATS
from popsr.sr._portable.arrays import NumpyArrays
from popsr.sr._portable.cast import cast_bits
from popsr.sr._portable.noise import digits_of, fold_text
from tests_py.support.oracles import ars

KEY = sr.Key(7).fold_in("w").at(3)
MODES = (
    "sr",
    "sr_equal",
    "rn",
    "ru",
    "rd",
    "rz",
    "sr_bits=1",
    "sr_bits=7",
    "sr_bits=16",
    "sr_bits=17",
    "sr_bits=32",
)
SPECIAL = (0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1e-45, 65520.0, 448.0, 464.1, -57345.0)
PAIRS = [
    (source, target)
    for source in ("float32", "float64")
    for target, form in FORMATS.items()
    if form.itemsize < FORMATS[source].itemsize
]


def values(source: Any, n: int, seed: int) -> Any:
    """Random bits, numbers of all sizes that formats of 8 bits have, and those at which rules change."""
    rng = np.random.default_rng(seed)
    size = FORMATS[source].itemsize
    bits = rng.integers(0, 256, (n, size), np.uint8).reshape(-1).view(source)
    near = (rng.normal(size=n) * 2.0 ** rng.integers(-30, 20, n)).astype(source)
    x = np.where(rng.random(n) < 0.5, near, bits)
    x[: len(SPECIAL)] = np.array(SPECIAL).astype(source)
    return x


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_bits_are_those_of_the_core(source: str, target: str, mode: Any) -> None:
    digits = [digit for word in KEY.words for digit in digits_of(word)]
    for offset in (0, 3, 2**33 + 5, 2**60 + 1):
        for overflow in ("ieee", "saturate"):
            x = values(source, 1500, offset % 97)
            options: Any = {"mode": mode, "overflow": overflow, "offset": offset}
            want = sr.cast(x, target, key=KEY, **options).view(FORMATS[target].raw)
            bits = x.view(f"i{x.itemsize}")
            got = cast_bits(NumpyArrays(), bits, source, target, digits, **options)
            assert np.array_equal(got.astype(want.dtype), want), (offset, overflow)


@pytest.mark.slow
@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_bits_of_many_numbers(source: str, target: str) -> None:
    digits = [digit for word in KEY.words for digit in digits_of(word)]
    for turn in range(100):
        x = values(source, 1_000_000, turn)
        want = sr.cast(x, target, key=KEY, offset=turn * x.size).view(FORMATS[target].raw)
        bits = x.view(f"i{x.itemsize}")
        got = cast_bits(
            NumpyArrays(), bits, source, target, digits, mode="sr", overflow="ieee", offset=turn * x.size
        )
        assert np.array_equal(got.astype(want.dtype), want), turn


@pytest.mark.parametrize("text", ["", "w", "layers.11.weight", "Gewicht für Schicht ⅔"])
def test_texts_in_keys_are_those_of_the_description(text: str) -> None:
    root = ars.seed_key(5)
    found = fold_text(NumpyArrays(), [digit for word in root for digit in digits_of(word)], text)
    want = [digit for word in ars.fold_str(root, text) for digit in digits_of(word)]
    assert [int(digit) for digit in found] == want


# Torch


@pytest.fixture
def torch() -> Any:
    return pytest.importorskip("torch")


@pytest.fixture
def st() -> Any:
    pytest.importorskip("torch")
    return pytest.importorskip("popsr.sr.torch")


def same(torch: Any, a: Any, b: Any) -> bool:
    return (
        a.dtype == b.dtype
        and a.shape == b.shape
        and torch.equal(a.contiguous().view(torch.uint8), b.contiguous().view(torch.uint8))
    )


@pytest.mark.parametrize("source", ["float64", "float32", "bfloat16", "float16", "float8_e5m2"])
def test_torch(torch: Any, st: Any, source: str) -> None:
    x = torch.from_numpy(values("float64", 3000, 1)).reshape(60, 50).to(getattr(torch, source)).T
    key = st.key_tensor(KEY)
    for target in FORMATS:
        want = st.cast(x, target, key=key, offset=5)
        assert same(torch, st.cast(x, target, key=key, offset=5, portable=True), want), target


def test_torch_rows_under_vmap_are_parts_of_one_array_and_gradients_go_straight_through(
    torch: Any, st: Any
) -> None:
    x, key = torch.randn(20, 30), st.key_tensor(KEY)
    forms = [
        torch.func.vmap(lambda row, p=p: st.cast(row, "bfloat16", key=key, portable=p), 1, 1)(x)
        for p in (False, True)
    ]
    assert same(torch, *forms)
    x.requires_grad_()
    st.cast(x, "bfloat16", key=key, portable=True).float().mul(3).sum().backward()
    assert torch.equal(x.grad, torch.full_like(x, 3))


@pytest.mark.parametrize("portable", [False, True])
def test_torch_refuses_a_key_of_each_row(torch: Any, st: Any, portable: bool) -> None:
    """Rows would have had the numbers of parts of the keys in the portable form."""
    keys = torch.stack([st.key_tensor(KEY), st.key_tensor(KEY.at(1))])
    cast = torch.func.vmap(lambda row, key: st.cast(row, "bfloat16", key=key, portable=portable))
    with pytest.raises(errors.Error, match="key is"):
        cast(torch.randn(2, 5), keys)


def test_torch_keys_on_devices_are_those_of_the_core(torch: Any, st: Any) -> None:
    """Operations that derive a key on a device are run on the CPU here."""
    from popsr.sr._portable.of_torch import derived

    key = st.key_tensor(KEY)
    for data in (0, 3, 2**31, 2**40 + 1, 2**64 - 1, torch.tensor(5)):
        number = int(data)
        assert torch.equal(derived(key, data, True), st.key_tensor(KEY.at(number)))
        assert torch.equal(derived(key, data, False), st.key_tensor(KEY.fold_in(number)))
    assert torch.equal(derived(key, "layers.1", False), st.key_tensor(KEY.fold_in("layers.1")))


def test_torch_arguments_are_checked(torch: Any, st: Any) -> None:
    x, key = torch.randn(3), st.key_tensor(KEY)
    for options, words in (
        ({"mode": "up"}, "unknown mode"),
        ({"overflow": "wrap"}, "unknown overflow"),
        ({"offset": -1}, "offset"),
        ({"key": None}, "key is missing"),
    ):
        with pytest.raises(
            (errors.ArgumentTypeError, errors.AttributeValueError, errors.OutOfRangeError), match=words
        ):
            st.cast(x, "bfloat16", **{"key": key, "portable": True, **options})
    with pytest.raises(errors.DTypeError, match="not a float format"):
        st.cast(torch.arange(3), "bfloat16", key=key, portable=True)


# JAX


def same_arrays(a: Any, b: Any) -> bool:
    return bool(a.dtype == b.dtype) and np.array_equal(
        np.asarray(a).view(np.uint8), np.asarray(b).view(np.uint8)
    )


@pytest.fixture
def jax() -> Any:
    return pytest.importorskip("jax")


@pytest.fixture
def sj() -> Any:
    pytest.importorskip("jax")
    return pytest.importorskip("popsr.sr.jax")


@pytest.mark.parametrize("target", ["bfloat16", "float16", "float8_e4m3fn", "float32"])
def test_jax_compiled(jax: Any, sj: Any, target: str) -> None:
    x = values("float32", 3000, 2).reshape(50, 60)
    cast = jax.jit(
        lambda x, step: sj.cast(x, target, key=sj.Key(7).fold_in("w").at(step), offset=5, portable=True)
    )
    assert "callback" not in cast.lower(x, 3).as_text()
    assert same_arrays(cast(x, 3), sr.cast(x, target, key=KEY, offset=5))


def test_jax_formats_of_16_bits_are_not_flushed(jax: Any, sj: Any) -> None:
    for source in ("bfloat16", "float16"):
        x = np.arange(2**16, dtype=np.uint16).view(FORMATS[source].numpy)
        got = jax.jit(lambda x: sj.cast(x, "float8_e5m2", key=KEY, portable=True))(x)
        assert same_arrays(got, sr.cast(x, "float8_e5m2", key=KEY)), source


@pytest.mark.share(2)
@pytest.mark.parametrize("axes", [(0, None), (1, None), (0, 0), (None, 0)])
def test_jax_rows_under_vmap(jax: Any, sj: Any, axes: Any) -> None:
    x, steps = jax.numpy.asarray(values("float32", 600, 3).reshape(20, 30)), jax.numpy.arange(20)
    found = [
        jax.vmap(lambda row, step, p=p: sj.cast(row, "bfloat16", key=sj.Key(7).at(step), portable=p), axes)(
            x, 3 if axes[1] is None else steps
        )
        for p in (False, True)
    ]
    assert same_arrays(*found)


def test_jax_gradients_go_straight_through(jax: Any, sj: Any) -> None:
    x = jax.numpy.linspace(0.1, 2, 30)
    grad = jax.grad(lambda x: 3 * sj.cast(x, "bfloat16", key=KEY, portable=True).astype("float32").sum())(x)
    assert (grad == 3).all()
