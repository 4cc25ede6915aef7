"""Only regular files are opened: a FIFO would wait for ever, a device has no end."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from popsr._support.host.regular_files import open_regular, read_regular
from popsr.errors import CheckpointError, Error, FileError


@pytest.fixture
def kinds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Paths by what messages call them."""
    monkeypatch.chdir(tmp_path)  # names of sockets are short
    os.mkfifo("pipe")
    Path("folder").mkdir()
    for name in ("pipe", "folder"):
        Path(f"link_to_{name}").symlink_to(name)
    with socket.socket(socket.AF_UNIX) as made:
        made.bind("socket")
    return {
        "pipe": "a FIFO",
        "folder": "a folder",
        "link_to_pipe": "a FIFO",
        "link_to_folder": "a folder",
        "/dev/zero": "a device",
        "socket": "a socket",
        "missing": "No such file",
    }


@pytest.mark.parametrize("error", [FileError, CheckpointError])
def test_what_is_not_a_regular_file_is_refused_at_once(kinds: dict[str, str], error: type[Error]) -> None:
    for path, kind in kinds.items():
        raised = FileError if path == "missing" else error
        with pytest.raises(raised, match=f"^audit: cannot read '{path}', got {kind}"):
            open_regular(path, "audit", error)


def test_a_file_is_read_up_to_its_limit(tmp_path: Path) -> None:
    path = tmp_path / "five"
    path.write_bytes(b"12345")
    link = tmp_path / "link"
    link.symlink_to(path)
    assert read_regular(path, "audit", 5) == read_regular(str(link), "audit", 9) == b"12345"
    with pytest.raises(CheckpointError, match="is too long, got 5 bytes, expected at most 4"):
        read_regular(path, "audit", 4, CheckpointError)
    os.truncate(path, 1 << 40)  # takes no room on the disk
    with pytest.raises(FileError, match="is too long, got 1099511627776 bytes, expected at most 4"):
        read_regular(path, "audit", 4)
