"""Rules of popsr's own operators, whose results are rounded stochastically."""

from __future__ import annotations

from typing import Any

from popsr.bridge.torch._rules.table import Gap, Site, own_rule

__all__: list[str] = []


@own_rule("stepped.default")
def _stepped(_site: Site, text: str, *_: Any) -> Any:
    """A step of an optimiser: weights and state are a function of all operands, which have its options and seed."""
    raise Gap("a step that rounds", name=f"popsr.sr.torch.{text.split()[0]}.step", exact=True)
