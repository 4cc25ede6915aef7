"""Random graphs under popsr and under torch; ``python -m tests_py.bridge.torch.graphs.fuzz FIRST COUNT``."""

from __future__ import annotations

import collections
import gc
import sys
import time
import warnings
from typing import Any

import numpy as np
import pytest

import popsr.bridge.torch as bridge
from popsr.bridge import UnsupportedOpsError
from popsr.bridge.torch import _rules
from popsr.errors import ReplicaWarning

torch = pytest.importorskip("torch")

from tests_py.bridge.torch.all_ranks import run_all  # noqa: E402
from tests_py.bridge.torch.graphs.random_graphs import GROUPS, SHAPE, WORLD, RandomGraph, random_graph  # noqa: E402

__all__ = ["check"]


def _labels(drawn: RandomGraph, path: str) -> list[int]:
    """First rank of the group that each rank shares with."""
    groups = drawn.groups.get(path, [[rank] for rank in range(WORLD)])
    return [next(group[0] for group in groups if rank in group) for rank in range(WORLD)]


def _read(drawn: RandomGraph, state: Any, data: Any) -> tuple[Any, bool]:
    """The step, and whether it can be run."""
    options: dict[str, Any] = {
        "replicas": WORLD,
        "groups": drawn.groups,
        "process_groups": GROUPS,
        "states": {} if drawn.writes_state else {"state": 0},
    }
    try:
        return bridge.from_fx(drawn.module, state, data, **options), True
    except UnsupportedOpsError:
        return bridge.from_fx(drawn.module, state, data, **options, unsupported="conservative"), False


def _expected(drawn: RandomGraph, state: Any, rows: Any) -> list[np.ndarray[Any, Any]]:
    """torch's values: the new state, then the results, a row for each rank."""
    states = [state.clone() for _ in range(WORLD)]
    inputs = [[own, rows[rank].clone()] for rank, own in enumerate(states)]
    made = run_all(drawn.module, inputs, _labels(drawn, "random seed"))
    new = states if drawn.writes_state else [each[0] for each in made]
    values = [new, *([each[i] for each in made] for i in range(len(made[0])))]
    return [np.stack([t.numpy() for t in each]) for each in values]


def check(seed: int) -> str:
    """Assert that popsr computes what torch does and that its claims hold of both; how far it was compared.

    Returns:
        "compared"; "random" for values of random numbers, "unstable" where a change of the inputs by a few units in
        the last place changes torch's values more than popsr may differ, "unsupported" for ops that popsr lacks: of
        these the claims alone are checked.
    """
    drawn = random_graph(seed)
    generator = torch.Generator().manual_seed(seed)
    state = torch.randn(SHAPE, generator=generator)
    rows = torch.randn(WORLD, *SHAPE, generator=generator)[_labels(drawn, "data")]
    step, runs = _read(drawn, state, rows[0])
    gc.collect()  # what a trace leaves behind does no harm
    proof = step.prove()
    expected = _expected(drawn, state, rows)
    facts = [proof.value("state").proved, *(proof.facts.partition(each.tensor) for each in step.results)]
    _sound(facts, expected, f"seed {seed}, torch's values")
    if not runs:
        return "unsupported"
    step.restart(check=True)
    feeds = rows.numpy()[sorted(set(_labels(drawn, "data")))]
    got = step.run({"data": feeds[0] if len(feeds) == 1 else feeds} if "data" in proof_paths(step) else {})
    values = [got["state"], *(got[each.path] for each in step.results)]
    _sound(facts, values, f"seed {seed}, popsr's values")
    if any(each.path == "random seed" for each in step.states):
        return "random"
    apart = [i for i, each in enumerate(values) if not _close(each, expected[i])]
    if apart:
        nudged = _expected(drawn, state * (1 + 3e-7), rows * (1 - 3e-7))
        if all(_close(a, b, 1e-6) for a, b in zip(nudged, expected, strict=True)):
            raise AssertionError(f"seed {seed}: results {apart} differ from torch's")
        return "unstable"
    return "compared"


def proof_paths(step: Any) -> set[str]:
    return {each.path for each in step.arguments}


def _close(a: Any, b: Any, tolerance: float = 1e-4) -> bool:
    scale = max(1.0, float(np.abs(np.nan_to_num(b)).max()))
    return bool(np.allclose(a, b, rtol=0, atol=tolerance * scale, equal_nan=True))


def _sound(facts: list[Any], values: list[Any], where: str) -> None:
    """Replicas of a block have the same bits."""
    for i, (fact, rows) in enumerate(zip(facts, values, strict=True)):
        for block in fact.blocks:
            for other in block[1:]:
                assert rows[block[0]].tobytes() == rows[other].tobytes(), f"{where}: result {i}, {fact}"


# The report


def _counted(uses: collections.Counter[str]) -> None:
    """Let every rule count how often it is used."""
    for table in (_rules.RULES, _rules.COLLECTIVES):
        for name, function in list(table.items()):

            def counting(*args: Any, _name: str = name, _function: Any = function, **options: Any) -> Any:
                uses[_name] += 1
                return _function(*args, **options)

            table[name] = counting


def main(first: int, count: int) -> None:
    """Check many seeds; print the outcomes, and how often ops were drawn and rules used."""
    uses: collections.Counter[str] = collections.Counter()
    ops: collections.Counter[str] = collections.Counter()
    outcomes: collections.Counter[str] = collections.Counter()
    _counted(uses)
    began = time.process_time()
    warnings.simplefilter("ignore", ReplicaWarning)
    for done, seed in enumerate(range(first, first + count), 1):
        ops.update(str(n.target) for n in random_graph(seed).module.graph.nodes if n.op == "call_function")
        try:
            outcomes[check(seed)] += 1
        except Exception as error:
            outcomes["FAILED"] += 1
            print(f"seed {seed}: {type(error).__name__}: {' '.join(str(error).split()):.300}", flush=True)
        if done % 100 == 0 or done == count:
            print(f"{done} programs, {time.process_time() - began:.0f} s: {dict(outcomes)}", flush=True)
    print(f"ops drawn: {len(ops)} overloads, {sum(ops.values())} calls")
    print(f"rules used: {len(uses)} of {len(_rules.RULES) + len(_rules.COLLECTIVES)}")
    for name, number in uses.most_common():
        print(f"{number:8d} {name}")
    print("rules not used:", *sorted({*_rules.RULES, *_rules.COLLECTIVES} - set(uses)))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
