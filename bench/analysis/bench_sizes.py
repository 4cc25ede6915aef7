"""Processor time and memory of a comparison with one device at published sizes: Llama 3 405B on a mesh of 8 x 8 x 2."""

import time
import warnings

import pytest

pytest.importorskip("jax")

from bench.programs.llama_step import Llama, step_of
from bench.sides.processes import forget_peak, peak


@pytest.mark.parametrize("wrong", [False, True], ids=["right", "wrong"])
def test_llama(wrong):
    import popsr

    warnings.simplefilter("ignore")
    step, args, options = step_of(Llama(wrong=wrong))
    forget_peak()
    start = time.process_time()
    found = popsr.prove(step, *args, **options, like="one device").same
    seconds = time.process_time() - start
    assert found.verdict == ("differs" if wrong else "same"), found
    print(f"\n| {found.headline} | {seconds:.1f} s | {peak() / 2**30:.2f} GiB | {dict(found.sizes)} |")
