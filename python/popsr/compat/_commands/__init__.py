"""The commands ``run``, ``plan`` and ``report`` of ``python -m popsr``."""
