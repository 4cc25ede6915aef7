"""Prints, as JSON, where the memory goes of training with the given number of replicas, micro batch 1."""

import json
import sys
from pathlib import Path

import programs

import popsr


def peak() -> int:
    """Bytes that this process had resident at most. Not ru_maxrss: a child starts with its parent's."""
    [line] = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) * 1024


def main(replicas: int) -> None:
    # A tiny program first: what popsr itself needs once is not of the program measured.
    ir, stream = programs.echo()
    with popsr.Session(ir) as session:
        session.run({stream: [0.0] * 4})
    x, y = programs.batches(replicas, 1, 1, 2)
    before = peak()
    program = programs.training(replicas, 1, 1, 2)
    with popsr.Session(program.ir, num_threads=2) as session:
        for _ in range(3):
            session.run({program.images: x, program.labels: y})
        memory = session.memory()
    # Values of the forward pass and their gradients: input, before and after gelu, softmax.
    width = programs.SIZES[0] + 2 * sum(programs.SIZES[1:])
    activations = 2 * 4 * replicas * width
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
    main(int(sys.argv[1]))
