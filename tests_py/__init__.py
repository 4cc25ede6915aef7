"""The Python tests. Rooms by idea; helpers, oracles and programs that several rooms share are in ``support``."""

from pathlib import Path

ROOT = Path(__file__).parents[1]
"""The root of the repository."""
