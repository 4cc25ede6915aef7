"""Tools for tests of programs."""

from popsr._lazy import names_only
from popsr._text.entry_points import add_entry_points
from popsr.testing._dtypes import get_all_dtypes, get_all_int_dtypes
from popsr.testing._evaluate import evaluate

__all__ = ["evaluate", "get_all_dtypes", "get_all_int_dtypes"]

__dir__ = names_only(__all__)
add_entry_points(__name__)
