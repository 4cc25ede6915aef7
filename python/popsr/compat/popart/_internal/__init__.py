"""PopART's private package; :mod:`popsr.compat.popart._internal.ir` has the names that programs use."""
