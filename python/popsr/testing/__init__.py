"""What tests of programs need."""

from popsr._lazy import names_only
from popsr.testing._dtypes import get_all_dtypes, get_all_int_dtypes

__all__ = ["get_all_dtypes", "get_all_int_dtypes"]

__dir__ = names_only(__all__)
