"""Tests of audits of real jobs."""
