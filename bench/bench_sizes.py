"""Processor time and memory of a comparison with one device at published sizes: Llama 3 405B on a mesh of 8 x 8 x 2."""

import resource
import time
import warnings

import pytest

from bench.llama_step import Llama, step_of


@pytest.mark.parametrize("wrong", [False, True], ids=["right", "wrong"])
def test_llama(wrong):
    pytest.importorskip("jax")
    import popsr

    warnings.simplefilter("ignore")
    step, args, options = step_of(Llama(wrong=wrong))
    start = time.process_time()
    found = popsr.prove(step, *args, **options, like="one device").same
    seconds = time.process_time() - start
    assert found.verdict == ("differs" if wrong else "same"), found
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"\n| {found.headline} | {seconds:.1f} s | {memory:.2f} GiB | {dict(found.sizes)} |")
