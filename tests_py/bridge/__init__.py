"""Tests of steps that are read from other frameworks."""
