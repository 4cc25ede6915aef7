"""Tests of ``popsr.testing``."""
