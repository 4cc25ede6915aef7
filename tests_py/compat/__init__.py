"""Old programs: names of PopART and PopXL, custom operators, ``popsr check`` and ``popsr run``."""
