"""Speed of ``popsr.bridge.audit``: files of several ranks compared byte by byte, and hashes of state dicts.

``python -m bench.analysis.bench_audit [--gigabytes 2]`` makes files of two ranks in a temporary folder and
prints, for each format, bytes of both files a second on one thread, and from that the time for 100 GB; then the speed
of ``log_hashes``.
The files were just written, so they come from the page cache and not from the disk.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from bench.record import Recorder, duration
from popsr.bridge.audit import audit, log_hashes

record = Recorder(Path(__file__))


def state(gigabytes: float) -> dict[str, np.ndarray]:
    """Tensors of 64 MB that make up this size."""
    rng = np.random.default_rng(0)
    block = rng.integers(0, 1 << 16, 32_000_000, dtype=np.uint16)
    return {f"layer{i}.w": block ^ np.uint16(i) for i in range(max(1, round(gigabytes * 1e9 / block.nbytes)))}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=2, help="size of the files of both ranks")
    args = parser.parse_args()
    mine = state(args.gigabytes / 2)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "safetensors").mkdir()
        for rank in range(2):
            save_file(mine, folder / f"safetensors/rank{rank}.safetensors")
        kinds = ["safetensors"]
        try:
            import torch
        except ImportError:
            pass
        else:
            (folder / "pt").mkdir()
            for rank in range(2):
                torch.save(
                    {k: torch.from_numpy(v.view(np.int16)) for k, v in mine.items()},
                    folder / f"pt/rank{rank}.pt",
                )
            kinds.append("pt")
        for kind in kinds:
            seconds = []
            for _ in range(3):
                start = time.perf_counter()
                report = audit(folder / kind)
                seconds.append(time.perf_counter() - start)
            assert report.ok
            show(f"files of two ranks, {kind}", report.nbytes, sorted(seconds)[1])
        start = time.perf_counter()
        log_hashes(mine, folder / "log.jsonl", step=0, rank=0)
        show("`log_hashes`", sum(each.nbytes for each in mine.values()), time.perf_counter() - start)
    record.save()


def show(what: str, nbytes: int, seconds: float) -> None:
    """A row of the table."""
    speed = nbytes / 1e9 / seconds
    cells = {"bytes": f"{nbytes / 1e9:.2f} GB", "speed": f"{speed:.2f} GB/s", "100 GB": duration(100 / speed)}
    record("One thread, from the page cache", what, **cells)


if __name__ == "__main__":
    main()
