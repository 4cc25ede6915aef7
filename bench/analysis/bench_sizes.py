"""Processor time and memory of a comparison with one device at published sizes: Llama 3 405B on a mesh of 8 x 8 x 2."""

import time
import warnings

import pytest

pytest.importorskip("jax")

from bench.programs.llama_step import Llama, step_of
from bench.record import at_most, duration, mebibytes
from bench.sides.processes import forget_peak, peak


@pytest.mark.parametrize("wrong", [False, True], ids=["right", "wrong"])
def test_llama(record, wrong):
    import popsr

    warnings.simplefilter("ignore")
    step, args, options = step_of(Llama(wrong=wrong))
    forget_peak()
    start = time.process_time()
    found = popsr.prove(step, *args, **options, like="one device").same
    seconds = time.process_time() - start
    assert found.verdict == ("differs" if wrong else "same"), found
    case = "gradients not divided by the parts of weights" if wrong else "right"
    cells = {"time": duration(seconds), "memory": mebibytes(peak()), "found": found.headline}
    record(
        "A step of Llama 3 405B by shapes, processor time",
        case,
        **cells,
        **({} if wrong else at_most(60, seconds, duration)),
    )
