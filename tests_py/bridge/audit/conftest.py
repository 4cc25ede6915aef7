"""Files of real jobs, which are run once for all tests."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest


def run_job(folder: Path, word: str) -> Path:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    job = Path(__file__).with_name("job.py")
    ranks = [
        subprocess.Popen(
            [sys.executable, job, folder, str(rank), port, word], stderr=subprocess.PIPE, text=True
        )
        for rank in range(2)
    ]
    for each in ranks:
        _, text = each.communicate(timeout=300)
        assert each.returncode == 0, text
    return folder


@pytest.fixture(scope="session")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders of a job that drifts and of a good one."""
    torch = pytest.importorskip("torch")
    if not torch.distributed.is_available():
        pytest.skip("PyTorch without torch.distributed")
    return {word: run_job(tmp_path_factory.mktemp(word), word) for word in ("drift", "good")}
