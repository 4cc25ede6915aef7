"""``python -m popsr check``: programs are read without being run, and compared with what popsr has."""
