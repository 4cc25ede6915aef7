"""A program as items that ranks compare before anything runs."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING

from popsr import _core
from popsr._program.options.record import Record
from popsr._support.settings import build_info

if TYPE_CHECKING:
    from popsr._program.ir import Ir

__all__ = ["program_items"]

_OF_ONE_PROCESS = ("enableReplicatedGraphs", "replicatedGraphCount", "globalReplicaOffset")


def program_items(ir: Ir) -> list[tuple[str, str]]:
    """Names and values that must be the same on all ranks, so that they run the same program on the same data."""
    options = _settings(ir.options)
    return [
        ("the version of popsr", _core.__version__),
        ("the instruction-set level", _products_of(build_info()["instruction set"])),
        ("the options that are set", ", ".join(sorted(options))),
        *((f"option {name}", options[name]) for name in sorted(options)),
        ("num_host_transfers", str(ir.num_host_transfers)),
        ("the program", _without_places(ir._core.print_ir())),
        ("the details of the program", _without_places(ir._core.print_state())),
        ("the seed rules of stochastic rounding", str(ir._seed_rules())),
        *_data_items(ir),
    ]


def _settings(options: Record) -> dict[str, str]:
    """The options that the program set, but for those about one process; sets have no order."""
    texts: dict[str, str] = {}
    for row in options._set_rows() if options._values else ():
        if row.key in _OF_ONE_PROCESS:  # compared with its share when the session is made
            continue
        value = options._values[row.key]
        if isinstance(value, Record):
            texts |= {f"{row.key}.{name}": text for name, text in _settings(value).items()}
        else:
            texts[row.key] = repr(sorted(map(repr, value)) if isinstance(value, set) else value)
    return texts


def _products_of(level: str) -> str:
    """Levels whose products have the same bits."""
    return "v3 or v4" if level in ("v3", "v4") else level


def _without_places(text: str) -> str:
    """A printed program without its files, whose folders may differ between machines, and without addresses."""
    text = re.sub(r"  # .*?(?= inputs \[|$)", "", text, flags=re.MULTILINE)
    return re.sub(r"\b0x[0-9a-f]+", "", text)


def _data_items(ir: Ir) -> list[tuple[str, str]]:
    """Digests of the data of variables and constants."""
    items = []
    for id_ in range(ir._core.num_tensors):
        data = ir._core.tensor_data(id_)
        if data is not None:
            digest = hashlib.blake2b(data.tobytes(), digest_size=16).hexdigest()
            items.append((f"the data of '{ir._core.tensor(id_).name}'", f"digest {digest}"))
    return items
