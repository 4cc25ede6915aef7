"""Programs that several rooms run: written out, random, and in the style of model repositories."""

from pathlib import Path

PUBLISHED = Path(__file__).parent / "published"
"""Programs in the style of model repositories, which ``sys.path`` has while they run."""
