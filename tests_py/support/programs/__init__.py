"""Programs that several rooms run: written out, random, and in the style of model repositories."""

from pathlib import Path
from typing import Literal

from popsr._program.options.options import RoundingMode

PUBLISHED = Path(__file__).parent / "published"
"""Programs in the style of model repositories, which ``sys.path`` has while they run."""

Rounding = RoundingMode | Literal["off"]
"""The rounding of a test program: to nearest, or in a mode."""
