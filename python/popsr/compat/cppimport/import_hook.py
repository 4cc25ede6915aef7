"""``import cppimport.import_hook``: imports find C++ files whose first line says ``cppimport``."""

from popsr.compat.cppimport import _hook

force_rebuild = False
"""As of the package; nothing is compiled."""

_hook.start()
