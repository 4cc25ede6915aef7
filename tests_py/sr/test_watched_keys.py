"""Keys that draw the same numbers twice, beside sets of these numbers."""

from __future__ import annotations

import functools
import itertools
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from popsr import errors, sr
from popsr.sr._runs import runs_of
from popsr.sr._watch import draws

KEY = sr.Key(0).at(3)
X = np.ones(8, np.float16)


def told(run: Callable[[], Any]) -> list[str]:
    """Texts of the warnings of calls that are watched."""
    with warnings.catch_warnings(record=True) as seen, sr.watch_keys():
        warnings.simplefilter("always")
        run()
    assert all(each.category is errors.KeyReuseWarning for each in seen)
    return [str(each.message) for each in seen]


def cast(**options: Any) -> Any:
    return sr.cast(np.ones(8), np.float16, **options)


def adamw(key: sr.Key, step: int) -> Any:
    return sr.adamw_(X.copy(), X, np.zeros(8, np.float32), np.zeros(8, np.float32), key=key, step=step)


# Two calls, and the ops that the warning names; empty without one.
PAIRS: list[tuple[Callable[[], Any], Callable[[], Any], tuple[str, ...]]] = [
    (lambda: sr.add(X, 0.0005, key=KEY), lambda: cast(key=KEY), ("add", "cast")),
    (lambda: sr.add(X, 0.0005, key=KEY), lambda: sr.add(X, 1.0, key=KEY), ("add", "add")),
    (lambda: sr.add(X, 0.5, key=KEY.fold_in("w")), lambda: sr.add(X, 0.5, key=KEY.fold_in("b")), ()),
    (lambda: cast(key=KEY), lambda: cast(key=sr.Key(0).at(4)), ()),
    (lambda: cast(key=KEY), lambda: cast(key=KEY, offset=8), ()),
    (lambda: cast(key=KEY), lambda: cast(key=KEY, offset=7), ("cast", "cast")),
    (lambda: cast(key=KEY), lambda: cast(key=KEY, mode="rn"), ()),
    (lambda: cast(key=KEY, mode="sr_bits=4"), lambda: cast(key=KEY, mode="sr_equal"), ("cast", "cast")),
    (lambda: sr.add(X[:0], 1.0, key=KEY), lambda: cast(key=KEY), ()),
    # A sum over an axis draws a number for each of its results.
    (lambda: sr.sum(np.ones((4, 8)), np.float16, axis=1, key=KEY), lambda: cast(key=KEY, offset=4), ()),
    (
        lambda: sr.sum(np.ones((4, 8)), np.float16, axis=1, key=KEY),
        lambda: cast(key=KEY, offset=3),
        ("sum", "cast"),
    ),
    (
        lambda: sr.cast_blocks(np.ones(32), "mxfp4", key=KEY),
        lambda: sr.mul(X, X, key=KEY, offset=31),
        ("cast_blocks", "mul"),
    ),
    (lambda: adamw(sr.Key(0), 3), lambda: cast(key=KEY), ("adamw_", "cast")),
    (lambda: adamw(sr.Key(0), 3), lambda: adamw(sr.Key(0), 4), ()),
]


@pytest.mark.parametrize("number", range(len(PAIRS)))
def test_two_calls(number: int) -> None:
    first, second, ops = PAIRS[number]
    line = first.__code__.co_firstlineno
    texts = told(lambda: (first(), second()))
    assert len(texts) == bool(ops)
    if ops:
        assert f"got 'Key(0).at(3)' in {ops[0]} at {__file__}:" in texts[0]
        assert f"and in {ops[1]} at {__file__}:" in texts[0]
        assert f"{__file__}:{line}" in texts[0] or ops[0] == "cast" or ops[0] == "adamw_"
    first()  # outside of a context
    second()


def test_two_lines_are_told_once_and_contexts_are_apart() -> None:
    def both() -> None:
        for seed in range(3):
            cast(key=sr.Key(seed))
            sr.add(X, 0.0005, key=sr.Key(seed))

    assert len(told(both)) == 1
    assert told(lambda: cast(key=KEY)) == []
    assert told(lambda: cast(key=KEY)) == []

    def nested() -> None:
        cast(key=KEY)
        with sr.watch_keys():
            cast(key=KEY)
            assert (
                len(told(lambda: cast(key=KEY))) == 1
            )  # of the inner one here: the outer has told of this line

    assert len(told(nested)) == 1
    with warnings.catch_warnings(), sr.watch_keys():
        warnings.simplefilter("error")
        cast(key=KEY)
        with pytest.raises(errors.KeyReuseWarning):
            cast(key=KEY)
    assert told(lambda: cast(key=KEY)) == []


AXIS = st.one_of(st.none(), st.sets(st.integers(0, 3), min_size=1).map(sorted))


@given(st.tuples(st.tuples(AXIS, AXIS), st.tuples(AXIS, AXIS)))
def test_parts_that_share_an_element(parts: Any) -> None:
    whole = np.arange(16).reshape(4, 4)
    held, numbers = [], []
    for part in parts:
        index = [None if each is None else np.array(each) for each in part]
        taken = whole[np.ix_(*(range(4) if each is None else each for each in part))]
        held.append((runs_of((4, 4), tuple(index)), taken.shape))
        numbers.append(set(taken.reshape(-1).tolist()))

    def draw(*order: int) -> None:
        for k in order:
            draws("cast", KEY, "sr", *held[k])

    for order in itertools.permutations(range(2)):
        texts = told(functools.partial(draw, *order))
        assert len(texts) == bool(numbers[0] & numbers[1])


def test_optimisers_with_one_seed() -> None:
    torch = pytest.importorskip("torch")
    models = [torch.nn.Linear(4, 4, dtype=torch.bfloat16) for _ in range(2)]
    for each in models:
        each(torch.ones(2, 4, dtype=torch.bfloat16)).sum().backward()

    def stepped(*seeds: int, general: bool = False) -> list[str]:
        made = [
            sr.torch.AdamW(
                model.parameters(), lr=1e-3, seed=seed, moments=torch.float64 if general else torch.float32
            )
            for model, seed in zip(models, seeds, strict=True)
        ]
        return told(lambda: [each.step() for each in made])

    assert stepped(1, 2) == []
    [text] = stepped(1, 1)
    assert "got 'Key(1).fold_in(0).at(1)' in AdamW.step at " in text
    assert text.count(f"{__file__}:") == 2
    [text] = stepped(1, 1, general=True)
    assert text.count(f"{__file__}:") == 2


def test_compiled_functions() -> None:
    torch = pytest.importorskip("torch")
    function = torch.compile(lambda x, key: sr.torch.cast(x, torch.bfloat16, key=key), backend="aot_eager")
    key = sr.torch.key_tensor(KEY)
    [text] = told(lambda: [function(torch.ones(3), key) for _ in range(2)])
    assert text.count(f"in cast at {__file__}:") == 2


def test_compiled_functions_of_jax() -> None:
    jax = pytest.importorskip("jax")
    function = jax.jit(lambda x: sr.jax.add(x, 1e-3, key=sr.jax.Key(3)))
    x = jax.numpy.ones(4, jax.numpy.bfloat16)
    [text] = told(lambda: [function(x).block_until_ready() for _ in range(2)])
    assert "add: a key draws the same numbers twice" in text
