"""Keys and the numbers that they give: against a cipher written from its description, and as values."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from popsr import errors, sr
from tests_py.support.oracles import ars
from tests_py.support.unchecked import unchecked

SEEDS = (0, 1, 7, 255, 2**32, 2**63 + 5, 2**64 - 1)


def test_cipher_of_the_oracle_gives_known_answers() -> None:
    """Of Random123's ars4x32 with 7 rounds."""
    ones = (ars.MASK, ars.MASK)
    assert ars.ars7((0, 0), (0, 0)) == (0xC45798F3DACF61FF, 0x101E27F3113C7EEB)
    assert ars.ars7(ones, ones) == (0xBB547EF9FBAAFF1F, 0x7AAA969B13D8CD78)
    assert ars.ars7((0x13198A2E03707344, 0x243F6A8885A308D3), (0x082EFA98EC4E6C89, 0xA4093822299F31D0)) == (
        0xE24A6F64E6FEE4C9,
        0x789166F13F1CA3A5,
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_key_of_a_seed(seed: Any) -> None:
    assert sr.Key(seed).words == ars.seed_key(seed)


@pytest.mark.parametrize("number", [0, 1, 12, 2**40, 2**64 - 1])
def test_fold_in_an_int(number: Any) -> None:
    assert sr.Key(3).fold_in(number).words == ars.fold_int(ars.seed_key(3), number)


@pytest.mark.parametrize("text", ["", "w", "layer3.w", "12345678", "123456789", "Gewicht ä 重み", "a\0b"])
def test_fold_in_a_str(text: Any) -> None:
    assert sr.Key(3).fold_in(text).words == ars.fold_str(ars.seed_key(3), text)


@pytest.mark.parametrize("step", [0, 1, 2**33, 2**64 - 1])
def test_at_a_step(step: Any) -> None:
    assert sr.Key(3).at(step).words == ars.at(ars.seed_key(3), step)


@pytest.mark.parametrize("offset", [0, 1, 5, 8, 1000, 2**32 - 3, 2**40 + 1, 2**63, 2**64 - 40])
def test_uniform_bits_are_those_of_the_layout(offset: Any) -> None:
    key = sr.Key(11).fold_in("w").at(4)
    expect = [ars.uniform(key.words, offset + i) for i in range(40)]
    got = sr.uniform_bits(key, 40, offset)
    assert got.dtype == np.uint64
    assert got.shape == (40,)
    assert got.tolist() == expect


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 600), st.integers(0, 599))
def test_uniform_bits_of_a_part_are_a_part_of_those_of_the_whole(seed: Any, offset: Any, skip: Any) -> None:
    key = sr.Key(seed)
    whole = sr.uniform_bits(key, 600, offset)
    assert np.array_equal(sr.uniform_bits(key, 600 - skip, offset + skip), whole[skip:])


def test_uniform_bits_of_nothing() -> None:
    assert sr.uniform_bits(sr.Key(0), 0).shape == (0,)


# As values


def test_keys_are_values() -> None:
    key = sr.Key(5).fold_in("w").fold_in(2).at(9)
    same = sr.Key(5).fold_in("w").fold_in(2).at(9)
    assert key == same
    assert hash(key) == hash(same)
    assert key != sr.Key(5)
    assert key != key.words
    assert len({key, same, sr.Key(5)}) == 2


@pytest.mark.parametrize(
    "key", [sr.Key(0), sr.Key(2**64 - 1).fold_in("a'b").at(3), sr.Key(1).fold_in(2)], ids=repr
)
def test_repr_and_pickle_give_the_key_back(key: Any) -> None:
    assert eval(repr(key), {"Key": sr.Key, "popsr": __import__("popsr")}) == key
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        assert pickle.loads(pickle.dumps(key, protocol)) == key


def test_repr_shows_the_seed() -> None:
    assert "1234" in repr(sr.Key(1234))


def test_keys_are_immutable() -> None:
    key = sr.Key(1)
    before = key.words
    for name in ("words", "seed", "anything"):
        with pytest.raises((AttributeError, TypeError)):
            setattr(key, name, 3)
    key.fold_in(1)
    key.at(2)
    assert key.words == before


def test_every_way_to_fold_gives_another_key() -> None:
    key = sr.Key(1)
    keys = [key, key.fold_in(1), key.at(1), key.fold_in("1"), key.fold_in(""), key.fold_in(0), key.at(0)]
    keys += [
        key.fold_in("ab"),
        key.fold_in("a").fold_in("b"),
        key.fold_in(1).fold_in(2),
        key.fold_in(2).fold_in(1),
    ]
    keys += [
        key.fold_in("\0"),
        key.fold_in("\0\0"),
        key.fold_in(1).at(2),
        key.at(2).fold_in(1),
        sr.Key(0),
        sr.Key(2),
    ]
    assert len(set(keys)) == len(keys)
    assert len({int(sr.uniform_bits(k, 1)[0]) for k in keys}) == len(keys)


def test_numpy_integers_are_integers() -> None:
    assert sr.Key(unchecked(np.uint64(2**64 - 1))) == sr.Key(2**64 - 1)
    assert sr.Key(1).fold_in(unchecked(np.int32(4))).at(unchecked(np.uint8(2))) == sr.Key(1).fold_in(4).at(2)


@pytest.mark.parametrize(
    "make",
    [
        lambda: sr.Key(2**64),
        lambda: sr.Key(-1),
        lambda: sr.Key(unchecked(1.5)),
        lambda: sr.Key(unchecked("1")),
        lambda: sr.Key(unchecked(None)),
        lambda: sr.Key(1).fold_in(unchecked(1.5)),
        lambda: sr.Key(1).fold_in(-1),
        lambda: sr.Key(1).fold_in(2**64),
        lambda: sr.Key(1).fold_in(unchecked(None)),
        lambda: sr.Key(1).fold_in(unchecked(b"w")),
        lambda: sr.Key(1).at(unchecked("x")),
        lambda: sr.Key(1).at(unchecked(1.0)),
        lambda: sr.Key(1).at(-1),
        lambda: sr.Key(1).at(2**64),
        lambda: sr.Key(1).fold_in("\ud800"),
    ],
)
def test_values_that_are_not_keys_are_refused(make: Any) -> None:
    with pytest.raises(errors.Error) as caught:
        make()
    assert isinstance(caught.value, (TypeError, ValueError))
    assert "\n" not in str(caught.value)
    assert "got" in str(caught.value)


# Randomness


def test_small_seeds_are_as_good_as_others() -> None:
    """The first 32 numbers of seeds 0 to 255: every bit is set in about half of them (9 standard errors)."""
    bits = np.stack([sr.uniform_bits(sr.Key(seed), 32) for seed in range(256)])
    assert len(np.unique(bits)) == bits.size
    unpacked = (bits[..., None] >> np.arange(64, dtype=np.uint64)) & np.uint64(1)
    for axis in ((0,), (1,)):
        count = unpacked.shape[axis[0]]
        assert np.all(np.abs(unpacked.mean(axis) - 0.5) < 9 * 0.5 / count**0.5)
    assert abs(unpacked.mean() - 0.5) < 5 * 0.5 / unpacked.size**0.5


def test_words_of_a_number_are_independent() -> None:
    bits = sr.uniform_bits(sr.Key(7), 1 << 16)
    for shift in (16, 32, 48):
        agree = ((bits >> np.uint64(shift)) ^ bits) & np.uint64(0xFFFF)
        counts = np.bincount(agree.astype(np.int64), minlength=1 << 16)
        assert counts.max() < 12  # Poisson with mean 1: P(any of 65,536 >= 12) < 1e-4
