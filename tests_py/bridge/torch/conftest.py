"""Quiet logs: torch traces itself at a level that pytest records."""

from __future__ import annotations

import logging

logging.getLogger("torch.__trace").disabled = True
