"""Programs that are spelled in many ways, and what ``check`` finds in each."""

from tests_py.compat.checked import imports, names, objects
from tests_py.compat.checked.cases import Case

__all__ = ["CASES", "Case"]

CASES = names.CASES | objects.CASES | imports.CASES
