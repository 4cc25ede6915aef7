"""Processor time of the planted steps by each engine: ``python -m tests_py.bridge.same.figures``."""

from __future__ import annotations

import time

import popsr
from tests_py.bridge.same.transformer import BATCH, OPTIONS, PARAMS, WRONG, Lines, step_of


def main() -> None:
    """Print a row for each step: verdict, processor time, place."""
    for name, lines in {"right": Lines(), **WRONG}.items():
        for exact in (True, False):
            start = time.process_time()
            proof = popsr.prove(step_of(lines), PARAMS, *BATCH, like="one device", exact=exact, **OPTIONS)
            spent = time.process_time() - start
            assert proof.same is not None
            print(
                f"{name:36} {proof.same.engine:8} {proof.same.verdict:8} {spent:5.1f} s  {proof.same.place or ''}"
            )


if __name__ == "__main__":
    main()
