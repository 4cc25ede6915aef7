"""Programs written for PopXL run as they are: their imports get popsr's modules.

After :func:`install`, ``import popxl`` is ``import popsr``, and so for every module below; ``popxl_addons`` is
``popsr.addons``, and ``popart``, ``popdist``, ``cppimport`` and ``stochastorch`` have the names of the modules below
this one. ``python -m popsr run script.py`` installs and runs a script, ``python -m popsr check script.py`` lists what
the script uses and popsr lacks. :func:`custom_op` registers a function of popsr ops for an operator that a program has
in C++, and :func:`rotary_ops` those of rotary position embeddings that models publish.
"""

from popsr.compat._finder import install, uninstall
from popsr.compat._objects.members import custom_op
from popsr.compat._published_ops import rotary_ops

__all__ = ["custom_op", "install", "rotary_ops", "uninstall"]
