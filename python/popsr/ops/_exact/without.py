"""Ops of floats without exact meaning, and why."""

from __future__ import annotations

__all__ = ["WITHOUT"]

_POSITIONS = "numbers decide which elements are read"
_REMOTE = "remote memory is not run"
_MERGED = "merged ops are made for sessions alone"

WITHOUT: dict[str, str] = {
    "grid_sample": _POSITIONS,
    "grid_sample_grad": _POSITIONS,
    "grid_sample_grid_grad": _POSITIONS,
    "roi_align": _POSITIONS,
    "roi_align_grad": _POSITIONS,
    "quantize_linear": "it rounds to integers",
    "dequantize_linear": "quantised numbers are not run",
    "remote_load": _REMOTE,
    "remote_load_": _REMOTE,
    "remote_store": _REMOTE,
    "multi_exchange": _MERGED,
    "multi_replicated_all_gather": _MERGED,
    "multi_replicated_all_reduce": _MERGED,
    "multi_replicated_reduce_scatter": _MERGED,
}
"""Reasons by name of the op. Special forms of others may be refused, too, such as margins of pools."""
