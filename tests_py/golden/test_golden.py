"""Programs compute the bits that they computed before, in the blocks that they used before, however they are run.

``python -m tests_py.golden.write`` writes the digests anew.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests_py.golden import file
from tests_py.golden.digest import (
    ALL,
    SEED,
    Record,
    all_digests,
    digest,
    digests,
    instructions,
    record,
    record_random,
)
from tests_py.golden.sources import ARRAYS, NAMES, RANDOM, ROUNDING


@pytest.mark.parametrize("name", NAMES)
def test_golden_digests(name: str) -> None:
    if name.startswith("programs/"):  # their configurations are files of YAML
        pytest.importorskip("yaml")
    found = list(all_digests(name))
    expected = file.read().get(name, {})
    differences = file.differences(expected, found)
    assert not differences, f"{name}: {'; '.join(differences)}"


def test_the_file_lists_all_programs_and_no_others() -> None:
    expected = file.read()
    assert tuple(expected) == NAMES
    assert len(NAMES) >= 60
    assert len(ROUNDING) == 40
    assert all(tuple(parts) == file.PARTS for parts in expected.values())


def test_programs_have_digests_of_their_own() -> None:
    expected = file.read()
    blocks = [parts["blocks"] for name, parts in expected.items() if name in RANDOM]
    outputs = [expected[name]["outputs"] for name in (*RANDOM, *ARRAYS)]
    assert len(set(blocks)) == len(blocks)
    assert len(set(outputs)) == len(outputs)


def test_random_programs_round_stochastically() -> None:
    """With another seed of the session, other bits."""
    found = {
        number: [digests(record_random(number, ALL[0], seed)) for seed in (SEED, SEED + 1)]
        for number in ROUNDING.values()
    }
    assert sum(one != other for one, other in found.values()) >= 36


@pytest.mark.parametrize("part", ["outputs", "variables"])
def test_one_bit_changes_the_digest(part: str) -> None:
    found = record("training partition", ALL[0])
    before = digests(found)
    array = next(reversed(getattr(found, part).values()))
    array.setflags(write=True)
    array.reshape(-1).view(np.uint8)[0] ^= 1
    after = digests(found)
    assert {name for name in before if before[name] != after[name]} == {part}


def test_names_dtypes_and_shapes_change_the_digest() -> None:
    zeros = np.zeros((2, 3), np.float32)
    others: list[dict[str, Any]] = [
        {"b": zeros},
        {"a": zeros.astype(np.int32)},
        {"a": zeros.reshape(3, 2)},
        {"a": -zeros},
    ]
    assert len({digest(arrays) for arrays in ({"a": zeros}, *others)}) == 5


def test_all_nans_are_one() -> None:
    nans = np.array([0x7FC00000, 0xFFC00001], np.uint32).view(np.float32)
    assert digest({"a": nans[:1]}) == digest({"a": nans[1:]})


def test_instructions_of_a_plan() -> None:
    plan = "repeat 2 times {\n  %x = y f32[4] = add  blocks=2 bytes=32 per replica\n}\nhost_store  blocks=1 bytes=0\n"
    assert instructions(plan) == [("repeat 2 times {", -1), ("add", 2), ("}", -1), ("host_store", 1)]
    one_block_more = Record(plan=plan.replace("blocks=2", "blocks=3"))
    assert digests(one_block_more)["blocks"] != digests(Record(plan=plan))["blocks"]


def test_a_difference_names_its_part_and_configurations() -> None:
    expected = {"outputs": "a", "variables": "b", "blocks": "c", "blocks without sharing": "d"}
    found = [
        (ALL[0], {"outputs": "a", "variables": "b", "blocks": "c"}),
        (ALL[1], {"outputs": "a", "variables": "x", "blocks": "c"}),
        (ALL[2], {"outputs": "a", "variables": "x", "blocks without sharing": "y"}),
    ]
    assert file.differences(expected, found) == [
        "variables differ with (2 threads, v4, dedup=True), (2 threads, v3, dedup=False)",
        "blocks without sharing differ with (2 threads, v3, dedup=False)",
    ]
