"""Prints, as JSON, where the memory goes of training with the given number of replicas, micro batch 1.

With a second argument it is the program of mnist.py, with that gradient accumulation.
"""

import json
import sys
from pathlib import Path

import numpy as np

import popsr
from bench.programs import basic, mnist


def peak() -> int:
    """Bytes that this process had resident at most. Not ru_maxrss: a child starts with its parent's."""
    [line] = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) * 1024


def data_of(replicas: int, accumulation: int | None) -> list[np.ndarray]:
    """Images and labels of a run."""
    if accumulation is None:
        return list(basic.batches(replicas, 1, 1, 2))
    leading = tuple(n for n in (accumulation, replicas) if n > 1)
    return [x[0].reshape(leading + x.shape[3:]) for x in mnist.batches(replicas, 1, accumulation, 1)]


def build(replicas: int, accumulation: int | None) -> tuple[popsr.Ir, tuple]:
    """The program, and its streams of images and labels."""
    if accumulation is None:
        program = basic.training(replicas, 1, 1, 2)
        return program.ir, (program.images, program.labels)
    adam = mnist.training(replicas, 1, accumulation)
    return adam.ir, adam.inputs


def main(replicas: int, accumulation: int | None = None) -> None:
    # A tiny program first: what popsr itself needs once is not of the program measured.
    ir, stream = basic.echo()
    with popsr.Session(ir) as session:
        session.run({stream: [0.0] * 4})
    data = data_of(replicas, accumulation)
    before = peak()
    ir, streams = build(replicas, accumulation)
    inputs = dict(zip(streams, data, strict=True))
    with popsr.Session(ir, num_threads=2) as session:
        for _ in range(3):
            session.run(inputs)
        memory = session.memory()
    # Values of the forward pass and their gradients: input, before and after gelu, softmax.
    width = basic.SIZES[0] + 2 * sum(basic.SIZES[1:])
    # Of further micro batches what the gradients of the weights are made of.
    kept = basic.SIZES[0] + 2 * sum(basic.SIZES[1:-1]) + basic.SIZES[-1]
    activations = 4 * replicas * (2 * width + kept * ((accumulation or 1) - 1))
    grown = peak() - before
    figures = {
        "peak": grown,
        "activations by hand": activations,
        "peak less activations": grown - activations,
        "variables": memory["variables"],
        "activations as planned": memory["activations"],
        "streams": memory["streams"],
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
