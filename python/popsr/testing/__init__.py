"""Tools for tests of programs."""

from popsr._support.lazy import names_only
from popsr.testing._dtypes import get_all_dtypes, get_all_int_dtypes
from popsr.testing._evaluate import evaluate
from popsr.testing._gradient_report import GradientCheck, GradientRow
from popsr.testing._gradients import check_gradients
from popsr.testing._in_step import assert_in_step, assert_same_training

__all__ = [
    "GradientCheck",
    "GradientRow",
    "assert_in_step",
    "assert_same_training",
    "check_gradients",
    "evaluate",
    "get_all_dtypes",
    "get_all_int_dtypes",
]

__dir__ = names_only(__all__)
