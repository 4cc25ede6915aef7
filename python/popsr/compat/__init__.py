"""Programs written for PopXL run as they are: their imports get popsr's modules.

After :func:`install`, ``import popxl`` is ``import popsr``, and so for every module below; ``popxl_addons`` is
``popsr.addons``, and ``popart``, ``popdist`` and ``stochastorch`` have the names of :mod:`popsr.compat.popart`,
:mod:`popsr.compat.popdist` and :mod:`popsr.compat.stochastorch`. ``python -m popsr run script.py`` installs and runs a
script, ``python -m popsr check script.py`` lists what the script uses and popsr lacks.
"""

from popsr.compat._finder import install, uninstall

__all__ = ["install", "uninstall"]
